//! The comparison of two runs.

use crate::report::{Report, shown};
use serde::Deserialize;
use std::{fmt::Write as _, fs, path::Path};

/// The report of an earlier run, as `--json` printed it.
#[derive(Debug, Deserialize)]
pub(crate) struct Earlier {
    machine: Machine,
    sections: Vec<Section>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Machine {
    cores: usize,
    cpu: String,
    kernel: String,
    load: String,
}

#[derive(Debug, Deserialize)]
struct Section {
    scenario: String,
    rows: Vec<Figure>,
}

#[derive(Debug, Deserialize)]
struct Figure {
    rival: String,
    figure: String,
    unit: String,
    /// The measured value. `None` if the value was not finite.
    value: Option<f64>,
    /// The smallest and the largest value of the rounds.
    #[serde(default)]
    spread: Option<(f64, f64)>,
}

impl Earlier {
    /// Reads the report of an earlier run.
    ///
    /// # Errors
    /// A text that names the file and the reason.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("--compare {}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| {
            format!("--compare {} is not the output of quorate-bench --json: {error}", path.display())
        })
    }

    /// Returns a table of the figures that both runs measured.
    ///
    /// The noise of a figure is the range from the smallest to the largest value of a run's rounds. A change
    /// is larger than the noise if the ranges of the two runs do not overlap.
    ///
    /// # Errors
    /// A text, if the new report cannot be read back.
    pub(crate) fn compared(&self, report: &Report) -> Result<String, String> {
        let now: Self = serde_json::from_str(&report.json()).map_err(|error| error.to_string())?;
        let mut out = String::new();
        let (was, is) = (&self.machine, &now.machine);
        if (was.cores, &was.cpu, &was.kernel) != (is.cores, &is.cpu, &is.kernel) {
            let _ = writeln!(
                out,
                "\nThe earlier run was on another machine: {} cores, {}, Linux {}.",
                was.cores, was.cpu, was.kernel
            );
        }
        let _ = writeln!(out, "\nCompared with the earlier run (load {} then, {} now):\n", was.load, is.load);
        let _ =
            writeln!(out, "| scenario | rival | figure | before | now | change | larger than the noise |");
        let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- | --- |");
        for (scenario, figure) in now.figures() {
            let before = self.figures().find(|(other, before)| *other == scenario && before.is_of(figure));
            let Some((_, before)) = before else { continue };
            let (Some(was), Some(is)) = (before.value, figure.value) else { continue };
            let Figure { rival, figure: name, unit, .. } = figure;
            let change =
                if was == 0.0 { "–".to_owned() } else { format!("{:+.1} %", (is / was - 1.0) * 100.0) };
            let _ = writeln!(
                out,
                "| {scenario} | {rival} | {name} | {} {unit} | {} {unit} | {change} | {} |",
                shown(was),
                shown(is),
                beyond(before, figure)
            );
        }
        Ok(out)
    }

    fn figures(&self) -> impl Iterator<Item = (&str, &Figure)> {
        self.sections.iter().flat_map(|section| section.rows.iter().map(|row| (&*section.scenario, row)))
    }
}

impl Figure {
    fn is_of(&self, other: &Self) -> bool {
        (&self.rival, &self.figure, &self.unit) == (&other.rival, &other.figure, &other.unit)
    }
}

/// Returns a note on whether the change of a figure is larger than the noise of the two runs.
fn beyond(before: &Figure, now: &Figure) -> &'static str {
    match (before.spread, now.spread) {
        (Some(before), Some(now)) if before.1 < now.0 || now.1 < before.0 => "yes",
        (Some(_), Some(_)) => "no",
        _ => "unknown: one round",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(spread: Option<(f64, f64)>) -> Figure {
        Figure { rival: "r".into(), figure: "f".into(), unit: "/s".into(), value: Some(2.0), spread }
    }

    #[test]
    fn a_change_is_larger_than_the_noise_if_the_ranges_do_not_meet() {
        let of = |before, now| beyond(&figure(before), &figure(now));
        assert_eq!(of(Some((1.0, 2.0)), Some((2.1, 3.0))), "yes");
        assert_eq!(of(Some((2.1, 3.0)), Some((1.0, 2.0))), "yes");
        assert_eq!(of(Some((1.0, 2.0)), Some((2.0, 3.0))), "no");
        assert_eq!(of(None, Some((2.0, 3.0))), "unknown: one round");
    }
}
