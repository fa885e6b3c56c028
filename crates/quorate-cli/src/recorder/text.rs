//! Writes the text format of Prometheus.

use super::family::{Family, Labels, Series, Value};
use metrics_exporter_prometheus::formatting::{write_help_line, write_type_line};
use std::fmt::{Display, Write};
use tokio::task::yield_now;

/// The number of series that are written before other tasks get their turn.
const WRITTEN_AT_ONCE: usize = 256;

/// Appends the series of one name, if there are any.
pub(super) async fn write(text: &mut String, name: &str, family: &Family) {
    let Some((_, first)) = family.series.first_key_value() else { return };
    if let Some(help) = &family.help {
        write_help_line(text, name, None, None, help);
    }
    let kind = match first {
        Series::Counter(_) => "counter",
        Series::Gauge(_) => "gauge",
        Series::Histogram(_) => "histogram",
    };
    write_type_line(text, name, None, None, kind);
    for (place, (labels, series)) in family.series.iter().enumerate() {
        write_series(text, name, &between_braces(labels), &series.read());
        if place % WRITTEN_AT_ONCE == WRITTEN_AT_ONCE - 1 {
            yield_now().await;
        }
    }
    text.push('\n');
}

fn write_series(text: &mut String, name: &str, labels: &str, value: &Value) {
    match value {
        Value::Counter(number) => line(text, (name, ""), labels, "", number),
        Value::Gauge(number) => line(text, (name, ""), labels, "", number),
        Value::Histogram(values) => {
            let mut count = 0;
            for (place, number) in values.counts.iter().enumerate() {
                count += number;
                let end = values.ends.get(place).map_or_else(|| "+Inf".to_owned(), f64::to_string);
                line(text, (name, "_bucket"), labels, &format!("le=\"{end}\""), count);
            }
            line(text, (name, "_sum"), labels, "", values.sum);
            line(text, (name, "_count"), labels, "", count);
        }
    }
}

/// Writes the line of one value. `more` is one more label, or nothing.
fn line(text: &mut String, (name, suffix): (&str, &str), labels: &str, more: &str, value: impl Display) {
    let comma = if labels.is_empty() || more.is_empty() { "" } else { "," };
    // `write!` to a string never fails.
    let _ = if labels.is_empty() && more.is_empty() {
        writeln!(text, "{name}{suffix} {value}")
    } else {
        writeln!(text, "{name}{suffix}{{{labels}{comma}{more}}} {value}")
    };
}

fn between_braces(labels: &Labels) -> String {
    let label = |(label, value): &(String, String)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{label}=\"{value}\"")
    };
    labels.iter().map(label).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use crate::recorder::Measurements;

    #[tokio::test]
    async fn the_text_is_that_of_prometheus() {
        let recorder = Measurements::default();
        let took = metrics::with_local_recorder(&recorder, || {
            metrics::describe_histogram!("quorate_run_seconds", "How long\nruns took.");
            metrics::histogram!("quorate_run_seconds", "job" => "a \"b\"\\\n")
        });
        [0.01, 0.02, 1e9].into_iter().for_each(|value| took.record(value));
        let text = recorder.render().await;
        let labels = r#"job="a \"b\"\\\n""#;
        let expected = [
            "# HELP quorate_run_seconds How long\\nruns took.".to_owned(),
            "# TYPE quorate_run_seconds histogram".to_owned(),
            format!("quorate_run_seconds_bucket{{{labels},le=\"0.01\"}} 1"),
            format!("quorate_run_seconds_bucket{{{labels},le=\"0.1\"}} 2"),
            format!("quorate_run_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("quorate_run_seconds_sum{{{labels}}} 1000000000.03"),
            format!("quorate_run_seconds_count{{{labels}}} 3"),
        ];
        for line in expected {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
