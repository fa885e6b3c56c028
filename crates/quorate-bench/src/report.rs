//! The report as a table and as JSON.

use crate::{machine::Machine, measure::Spread};
use serde::Serialize;
use std::fmt::Write as _;

/// A measured figure of one rival.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    rival: String,
    figure: String,
    unit: &'static str,
    value: f64,
    /// The smallest and the largest value of the rounds, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<(f64, f64)>,
    /// The curve to which the value belongs, and the number of tasks with which it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    point: Option<Point>,
    /// The goal for the figure, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
}

/// The place of a value on a curve of the plot.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) curve: Curve,
    pub(crate) tasks: usize,
}

/// A figure that is measured with several numbers of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Curve {
    /// Cycles a second.
    Cycles,
    /// The time that 99 of 100 acquires do not exceed, in milliseconds.
    AcquireP99,
}

#[derive(Debug, Serialize)]
struct Goal {
    text: String,
    reached: bool,
}

impl Row {
    pub(crate) fn new(rival: &str, figure: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self {
            rival: rival.to_owned(),
            figure: figure.into(),
            unit,
            value,
            spread: None,
            point: None,
            goal: None,
        }
    }

    pub(crate) fn spread(rival: &str, figure: impl Into<String>, unit: &'static str, of: Spread) -> Self {
        Self { spread: Some((of.least, of.most)), ..Self::new(rival, figure, unit, of.median) }
    }

    /// Puts a prefix before the name of the figure.
    pub(crate) fn named(mut self, of: &str) -> Self {
        self.figure = format!("{of}{}", self.figure);
        self
    }

    /// Makes the value a point of a curve.
    pub(crate) fn on(self, curve: Curve, tasks: usize) -> Self {
        Self { point: Some(Point { curve, tasks }), ..self }
    }

    pub(crate) fn at_least(mut self, goal: f64) -> Self {
        self.goal = Some(Goal { text: format!("≥ {goal}"), reached: self.value >= goal });
        self
    }

    pub(crate) fn at_most(mut self, goal: f64) -> Self {
        self.goal = Some(Goal { text: format!("≤ {goal}"), reached: self.value <= goal });
        self
    }
}

#[derive(Debug, Serialize)]
struct Section {
    scenario: &'static str,
    what: &'static str,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    settings: Vec<(&'static str, String)>,
    sections: Vec<Section>,
}

impl Report {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, settings: crate::rivals::settings(), sections: Vec::new() }
    }

    pub(crate) fn about_servers(&mut self, version: &str) {
        self.machine.versions.insert("redis-server", version.to_owned());
    }

    pub(crate) fn add(&mut self, scenario: &'static str, what: &'static str, rows: Vec<Row>) {
        self.sections.push(Section { scenario, what, rows, skipped: None, failed: None });
    }

    pub(crate) fn skip(&mut self, scenario: &'static str, why: &str) {
        let skipped = Some(why.to_owned());
        self.sections.push(Section { scenario, what: "", rows: Vec::new(), skipped, failed: None });
    }

    /// Notes that a scenario failed. The report keeps the figures of the other scenarios, and is not sound.
    pub(crate) fn fail(&mut self, scenario: &'static str, error: String) {
        let failed = Some(error);
        self.sections.push(Section { scenario, what: "", rows: Vec::new(), skipped: None, failed });
    }

    /// Returns whether each scenario that ran has measured figures. It does not matter whether goals were
    /// reached.
    pub(crate) fn is_sound(&self) -> bool {
        let sound = |section: &Section| {
            let finite = section.rows.iter().all(|row| row.value.is_finite());
            section.failed.is_none() && (section.skipped.is_some() || (finite && !section.rows.is_empty()))
        };
        self.sections.iter().all(sound)
    }

    /// Returns the points of a curve: for each rival its values by the number of tasks, in the order of measurement.
    pub(crate) fn curve(&self, curve: Curve) -> Vec<(&str, Vec<(usize, f64)>)> {
        let mut rivals: Vec<(&str, Vec<(usize, f64)>)> = Vec::new();
        for row in self.sections.iter().flat_map(|section| &section.rows) {
            let Some(point) = row.point.filter(|point| point.curve == curve) else { continue };
            match rivals.iter_mut().find(|(rival, _)| *rival == row.rival) {
                Some((_, values)) => values.push((point.tasks, row.value)),
                None => rivals.push((&row.rival, vec![(point.tasks, row.value)])),
            }
        }
        rivals
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).map_or_else(|error| error.to_string(), |text| text + "\n")
    }

    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let machine = &self.machine;
        let versions: Vec<_> = machine.versions.iter().map(|(name, it)| format!("{name} {it}")).collect();
        let _ = writeln!(
            out,
            "{} cores, {}, Linux {}, load {} at the start\n{}\n",
            machine.cores,
            machine.cpu,
            machine.kernel,
            machine.load,
            versions.join(", ")
        );
        for (rival, settings) in &self.settings {
            let _ = writeln!(out, "- *{rival}*: {settings}");
        }
        let _ = writeln!(out, "\n| scenario | rival | figure | value | rounds from … to | to reach | |");
        let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- | --- |");
        for section in &self.sections {
            if let Some(why) = &section.skipped {
                let _ = writeln!(out, "| {} | | not run: {why} | | | | |", section.scenario);
            }
            if let Some(error) = &section.failed {
                let _ = writeln!(out, "| {} | | **failed**: {error} | | | | |", section.scenario);
            }
            for row in &section.rows {
                let spread = row
                    .spread
                    .map_or(String::new(), |(least, most)| format!("{} … {}", shown(least), shown(most)));
                let goal = row.goal.as_ref().map_or("", |goal| &goal.text);
                let reached =
                    row.goal.as_ref().map_or("", |goal| if goal.reached { "yes" } else { "**no**" });
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {} {} | {spread} | {goal} | {reached} |",
                    section.scenario,
                    row.rival,
                    row.figure,
                    shown(row.value),
                    row.unit
                );
            }
        }
        out
    }
}

/// Returns a figure as text, with about three digits.
pub(crate) fn shown(figure: f64) -> String {
    match figure.abs() {
        _ if figure.fract() == 0.0 && figure.abs() < 1e6 => format!("{figure:.0}"),
        size if size >= 1000.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.3}"),
    }
}
