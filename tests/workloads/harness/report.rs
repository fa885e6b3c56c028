use serde_json::{Map, Value, json};
use std::{process::ExitCode, time::Duration};

/// The figures of a plan and the violations that its checks found.
#[derive(Debug)]
pub(crate) struct Report {
    /// A JSON object.
    pub(crate) figures: Value,
    pub(crate) violations: Vec<String>,
}

impl Report {
    /// Prints the report as one JSON object or as a table. The JSON object contains the violations. Returns a
    /// failure if there are violations.
    pub(crate) fn print(self, as_json: bool) -> ExitCode {
        let Self { mut figures, violations } = self;
        figures["violations"] = json!(violations);
        if as_json {
            println!("{figures}");
        } else {
            let mut rows = Vec::new();
            flatten("", &figures, &mut rows);
            rows.iter().for_each(|(name, value)| println!("{name:44} {value}"));
        }
        if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Converts nested objects to rows whose names are joined by dots.
fn flatten(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let nested = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| flatten(&nested(key), value, rows)),
        Value::Array(items) if items.first().is_some_and(|item| item.is_object() || item.is_string()) => {
            items.iter().enumerate().for_each(|(at, item)| flatten(&nested(&at.to_string()), item, rows));
        }
        value => rows.push((name.to_owned(), value.to_string())),
    }
}

/// A collection of durations, of which a report shows quantiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations(Vec<Duration>);

impl Durations {
    /// The largest number of durations that are kept. It limits the memory of a soak test that runs for days.
    const MOST: usize = 1_000_000;

    pub(crate) fn add(&mut self, duration: Duration) {
        if self.0.len() < Self::MOST {
            self.0.push(duration);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the duration that is not exceeded by `per_mille` in a thousand of the durations. Returns `None`
    /// if there are no durations.
    pub(crate) fn quantile(&self, per_mille: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get((sorted.len() * per_mille).div_ceil(1000).max(1) - 1).copied()
    }

    /// Returns the number of durations, and their quantiles in milliseconds.
    pub(crate) fn json(&self) -> Value {
        let mut fields = Map::from_iter([("times".to_owned(), json!(self.len()))]);
        for (name, per_mille) in
            [("min", 0), ("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999), ("max", 1000)]
        {
            let ms = self.quantile(per_mille).map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
            fields.insert(name.to_owned(), json!(ms));
        }
        Value::Object(fields)
    }
}

impl FromIterator<Duration> for Durations {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        Self(durations.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        assert_eq!(Durations::default().quantile(500), None);
        let durations: Durations = (1..=100).rev().map(Duration::from_millis).collect();
        let quantiles =
            [0, 500, 990, 1000].map(|per_mille| durations.quantile(per_mille).unwrap().as_millis());
        assert_eq!((quantiles, durations.len()), ([1, 50, 99, 100], 100));
    }

    #[test]
    fn nested_figures_become_rows() {
        let mut rows = Vec::new();
        flatten("", &json!({ "a": { "b": 1, "c": [{ "d": 2 }] }, "e": [] }), &mut rows);
        let names: Vec<&str> = rows.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a.b", "a.c.0.d", "e"]);
    }
}
