//! Reads the text format of Prometheus, as the recorder of this process writes it.

use std::collections::BTreeMap;

/// A metric with all of its series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) series: Series,
}

/// The series of a metric, by their labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Series {
    Counter(BTreeMap<Labels, f64>),
    Gauge(BTreeMap<Labels, f64>),
    Histogram(BTreeMap<Labels, Buckets>),
}

/// The names and values of labels, in the order of the text.
pub(super) type Labels = Vec<(String, String)>;

/// The distribution of one series of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Buckets {
    /// The upper end of each bucket, and the number of values up to it, in ascending order. The last end is
    /// infinite.
    pub(super) up_to: Vec<(f64, f64)>,
    pub(super) sum: f64,
    pub(super) count: f64,
}

/// Reads the metrics. A line that cannot be read is left out, and so is a metric of another kind than those
/// above.
pub(super) fn parse(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut helps = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            helps.insert(name, unescape(help));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let series = match kind {
                "counter" => Series::Counter(BTreeMap::new()),
                "gauge" => Series::Gauge(BTreeMap::new()),
                "histogram" => Series::Histogram(BTreeMap::new()),
                _ => continue,
            };
            let help = helps.remove(name).unwrap_or_default();
            families.push(Family { name: name.to_owned(), help, series });
        } else if let Some((name, labels, value)) = sample(line)
            && let Some(family) = families.last_mut()
        {
            family.add(name, labels, value);
        }
    }
    families
}

impl Family {
    fn add(&mut self, name: &str, mut labels: Labels, value: f64) {
        let Some(suffix) = name.strip_prefix(self.name.as_str()) else { return };
        match (&mut self.series, suffix) {
            (Series::Counter(series) | Series::Gauge(series), "") => {
                series.insert(labels, value);
            }
            (Series::Histogram(series), "_bucket") => {
                let end = labels.iter().position(|(label, _)| label == "le");
                let Some(end) = end.and_then(|at| number(&labels.remove(at).1)) else { return };
                series.entry(labels).or_default().up_to.push((end, value));
            }
            (Series::Histogram(series), "_sum") => series.entry(labels).or_default().sum = value,
            (Series::Histogram(series), "_count") => series.entry(labels).or_default().count = value,
            _ => {}
        }
    }
}

/// Reads a line with a value: its name, its labels and the value.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let mut labels = Vec::new();
    let mut rest = match rest.strip_prefix('{') {
        None => return Some((name, labels, number(rest.trim())?)),
        Some(rest) => rest,
    };
    loop {
        if let Some(value) = rest.strip_prefix('}') {
            return Some((name, labels, number(value.trim())?));
        }
        let (label, quoted) = rest.strip_prefix(',').unwrap_or(rest).split_once("=\"")?;
        let end = end_of_quoted(quoted)?;
        labels.push((label.to_owned(), unescape(&quoted[..end])));
        rest = &quoted[end + 1..];
    }
}

/// Returns the position of the quotation mark that ends a label's value.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            c => plain.push(c),
        }
    }
    plain
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok() // also reads `+Inf` and `NaN`
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_kind_is_read_with_its_labels_and_values() {
        let text = "# HELP q_total Number \\\\ of \\n things.\n# TYPE q_total counter\nq_total{a=\"1\",b=\"x \\\"y\\\\\\n}\"} 7\n\
                    q_total 2\n\n# TYPE q_up gauge\nq_up{node=\"n{1},=\"} 0.5\nbroken line\nq_up{node=\"open} 1\n\n\
                    # TYPE q_seconds histogram\nq_seconds_bucket{o=\"f\",le=\"0.5\"} 1\nq_seconds_bucket{o=\"f\",le=\"+Inf\"} 3\n\
                    q_seconds_sum{o=\"f\"} 2.25\nq_seconds_count{o=\"f\"} 3\n# TYPE other summary\nother 1\n";
        let families = parse(text);
        let [counter, gauge, histogram] = &families[..] else { panic!("{families:?}") };
        assert_eq!((counter.name.as_str(), counter.help.as_str()), ("q_total", "Number \\ of \n things."));
        let expected =
            [(labels(&[("a", "1"), ("b", "x \"y\\\n}")]), 7.0), (Vec::new(), 2.0)].into_iter().collect();
        assert_eq!(counter.series, Series::Counter(expected));
        assert_eq!(gauge.series, Series::Gauge([(labels(&[("node", "n{1},=")]), 0.5)].into()));
        let buckets = Buckets { up_to: vec![(0.5, 1.0), (f64::INFINITY, 3.0)], sum: 2.25, count: 3.0 };
        assert_eq!(histogram.series, Series::Histogram([(labels(&[("o", "f")]), buckets)].into()));
    }

    #[test]
    fn the_recorder_s_own_text_is_read_whatever_the_names_are() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[0.1, 1.0])
            .unwrap()
            .build_recorder();
        let handle = recorder.handle();
        let job = "a\"b\\c\nd{e}=,\u{fc}";
        metrics::with_local_recorder(&recorder, || {
            metrics::describe_counter!("runs_total", "Runs.");
            metrics::counter!("runs_total", "job" => job, "outcome" => "done").increment(3);
            metrics::gauge!("leader", "group" => "g").set(1.0);
            metrics::gauge!("offset").set(-2.5e-7);
            metrics::histogram!("took_seconds", "job" => job).record(0.5);
        });
        let families: BTreeMap<_, _> =
            parse(&handle.render()).into_iter().map(|family| (family.name, family.series)).collect();
        let runs = labels(&[("job", job), ("outcome", "done")]);
        assert_eq!(families["runs_total"], Series::Counter([(runs, 3.0)].into()));
        assert_eq!(families["leader"], Series::Gauge([(labels(&[("group", "g")]), 1.0)].into()));
        assert_eq!(families["offset"], Series::Gauge([(Vec::new(), -2.5e-7)].into()));
        let buckets =
            Buckets { up_to: vec![(0.1, 0.0), (1.0, 1.0), (f64::INFINITY, 1.0)], sum: 0.5, count: 1.0 };
        assert_eq!(families["took_seconds"], Series::Histogram([(labels(&[("job", job)]), buckets)].into()));
        assert_eq!(families.len(), 4);
    }
}
