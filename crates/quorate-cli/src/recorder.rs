//! The recorder of the measurements of this process. `/metrics` and the OpenTelemetry sender read the same
//! one.

use crate::exit::{FAILURE, Failure};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::formatting::{
    sanitize_label_key, sanitize_metric_name, write_help_line, write_type_line,
};
use std::{
    collections::BTreeMap,
    fmt::{self, Display, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::task::yield_now;

/// The upper ends of the buckets of each histogram, in seconds.
const BUCKETS: [(&str, &[f64]); 3] = [
    ("quorate_acquire_seconds", &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]),
    (
        "quorate_run_seconds",
        &[0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0],
    ),
    (
        "quorate_tick_lateness_seconds",
        &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3_600.0],
    ),
];

/// The buckets of any other histogram.
const OTHER_BUCKETS: &[f64] = &[0.001, 0.01, 0.1, 1.0, 10.0, 100.0];

/// The number of series that are written before other tasks get their turn.
const WRITTEN_AT_ONCE: usize = 256;

/// The measurements of this process. Clones are the same measurements.
///
/// A series of a job is reported while the program has a handle of it, so it ends with the job. All others stay. The
/// exporter of `metrics-exporter-prometheus` cannot drop a series at that moment, and a histogram never without the loss of
/// others that are in use. So only its formatting is used.
#[derive(Clone)]
pub(crate) struct Measurements(Arc<Mutex<Families>>);

/// The measurements of one name each.
type Families = BTreeMap<String, Family>;

impl Measurements {
    /// Installs the recorder of this process. Call it before the quorum is built: measurements that were made
    /// before are lost.
    pub(crate) fn install() -> Result<Self, Failure> {
        let measurements = Self(Arc::default());
        metrics::set_global_recorder(measurements.clone()).map_err(|error| {
            Failure::new(FAILURE, format!("cannot install the recorder of measurements: {error}"))
        })?;
        Ok(measurements)
    }

    /// Returns all measurements in the text format of Prometheus. With very many jobs it has tens of megabytes, so the
    /// other tasks get their turns meanwhile, such as those that answer health checks.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub(crate) async fn render(&self) -> String {
        let names: Vec<String> = self.lock().keys().cloned().collect();
        let mut text = String::new();
        for name in names {
            let family = self.lock().get_mut(&name).map(|family| {
                family.drop_unused();
                family.clone()
            });
            let Some(Family { help, series, .. }) = family else { continue };
            let Some((_, first)) = series.first_key_value() else { continue };
            if let Some(help) = &help {
                write_help_line(&mut text, &name, None, None, help);
            }
            write_type_line(&mut text, &name, None, None, first.kind());
            for (place, (labels, series)) in series.iter().enumerate() {
                series.write(&name, labels, &mut text);
                if place % WRITTEN_AT_ONCE == WRITTEN_AT_ONCE - 1 {
                    yield_now().await;
                }
            }
            text.push('\n');
        }
        text
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        self.lock().entry(sanitize_metric_name(name.as_str())).or_default().help = Some(help);
    }

    /// Returns the series with this key: the known one, if `find` finds it, or one with a new value.
    fn series<T>(
        &self,
        key: &Key,
        find: fn(&Series) -> Option<&Arc<T>>,
        (wrap, new): (fn(Arc<T>) -> Series, impl FnOnce(&str) -> T),
    ) -> Arc<T> {
        let name = sanitize_metric_name(key.name());
        let mut families = self.lock();
        let family = families.entry(name.clone()).or_default();
        family.drop_unused_sometimes();
        let labels = labels_of(key);
        if let Some(known) = family.series.get(&labels).and_then(find) {
            return Arc::clone(known);
        }
        let handle = Arc::new(new(&name));
        family.series.insert(labels, wrap(Arc::clone(&handle)));
        handle
    }

    fn lock(&self) -> MutexGuard<'_, Families> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measurements").finish_non_exhaustive()
    }
}

impl Recorder for Measurements {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let find: fn(&Series) -> Option<&Arc<AtomicU64>> = |series| match series {
            Series::Counter(counter) => Some(counter),
            _ => None,
        };
        Counter::from_arc(self.series(key, find, (Series::Counter, |_| AtomicU64::new(0))))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let find: fn(&Series) -> Option<&Arc<AtomicU64>> = |series| match series {
            Series::Gauge(gauge) => Some(gauge),
            _ => None,
        };
        Gauge::from_arc(self.series(key, find, (Series::Gauge, |_| AtomicU64::new(0))))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let find: fn(&Series) -> Option<&Arc<Buckets>> = |series| match series {
            Series::Histogram(buckets) => Some(buckets),
            _ => None,
        };
        Histogram::from_arc(self.series(key, find, (Series::Histogram, Buckets::of)))
    }
}

/// The labels of a key as the text format has them, between the braces.
fn labels_of(key: &Key) -> Arc<str> {
    let label = |label: &metrics::Label| {
        let value = label.value().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{}=\"{value}\"", sanitize_label_key(label.key()))
    };
    key.labels().map(label).collect::<Vec<_>>().join(",").into()
}

/// The series of one name.
#[derive(Clone, Default)]
struct Family {
    help: Option<SharedString>,
    /// The series by their labels.
    series: BTreeMap<Arc<str>, Series>,
    /// The number of series at which those of which no handle exists are dropped.
    drop_at: usize,
}

/// One series. The program has the other handles of it.
#[derive(Clone)]
enum Series {
    Counter(Arc<AtomicU64>),
    /// A float, as its bits.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Buckets>),
}

impl Series {
    fn is_used(&self) -> bool {
        match self {
            Self::Counter(number) | Self::Gauge(number) => Arc::strong_count(number) > 1,
            Self::Histogram(buckets) => Arc::strong_count(buckets) > 1,
        }
    }

    fn write(&self, name: &str, labels: &str, text: &mut String) {
        let read = |number: &AtomicU64| number.load(Ordering::Acquire);
        match self {
            Self::Counter(number) => line(text, (name, ""), labels, "", read(number)),
            Self::Gauge(bits) => line(text, (name, ""), labels, "", f64::from_bits(read(bits))),
            Self::Histogram(buckets) => buckets.write(name, labels, text),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Family {
    fn drop_unused(&mut self) {
        let is_of_job = |labels: &str| labels.starts_with("job=\"") || labels.contains(",job=\"");
        self.series.retain(|labels, series| series.is_used() || !is_of_job(labels));
        self.drop_at = (2 * self.series.len()).max(64);
    }

    /// Keeps the memory bounded while no client reads the measurements.
    fn drop_unused_sometimes(&mut self) {
        if self.series.len() >= self.drop_at {
            self.drop_unused();
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

/// A histogram with fixed buckets.
struct Buckets {
    ends: &'static [f64],
    /// The number of values in each bucket, and of those above the last one.
    counts: Vec<AtomicU64>,
    /// The sum of all values, as the bits of a float.
    sum: AtomicU64,
}

impl Buckets {
    fn of(name: &str) -> Self {
        let ends = BUCKETS.iter().find(|(of, _)| *of == name).map_or(OTHER_BUCKETS, |(_, ends)| ends);
        let counts = (0..=ends.len()).map(|_| AtomicU64::new(0)).collect();
        Self { ends, counts, sum: AtomicU64::new(0) }
    }

    fn write(&self, name: &str, labels: &str, text: &mut String) {
        let mut count = 0;
        for (place, number) in self.counts.iter().enumerate() {
            count += number.load(Ordering::Acquire);
            let end = self.ends.get(place).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            line(text, (name, "_bucket"), labels, &format!("le=\"{end}\""), count);
        }
        line(text, (name, "_sum"), labels, "", f64::from_bits(self.sum.load(Ordering::Acquire)));
        line(text, (name, "_count"), labels, "", count);
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let place = self.ends.partition_point(|end| *end < value);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::AcqRel);
        }
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The function always returns a value, so the update succeeds.
        let _ = self.sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurements() -> Measurements {
        Measurements(Arc::default())
    }

    #[tokio::test]
    async fn a_series_of_a_job_is_reported_while_the_program_has_a_handle_of_it() {
        let recorder = measurements();
        let (kept, dropped) = metrics::with_local_recorder(&recorder, || {
            let of = |job: &'static str| {
                let (gauge, histogram) = (
                    metrics::gauge!("quorate_job_running", "job" => job),
                    metrics::histogram!("quorate_run_seconds", "job" => job),
                );
                gauge.set(1.0);
                metrics::gauge!("quorate_nodes_required").set(2.0);
                (metrics::counter!("quorate_runs_total", "job" => job), gauge, histogram)
            };
            (of("kept"), of("removed"))
        });
        kept.0.increment(2);
        let reports = async |job: &str| {
            let text = recorder.render().await;
            ["quorate_runs_total{", "quorate_job_running{", "quorate_run_seconds_count{"]
                .map(|name| text.contains(&format!("{name}job=\"{job}\"}}")))
        };
        assert_eq!([reports("kept").await, reports("removed").await], [[true; 3]; 2]);
        drop(dropped);
        assert_eq!([reports("kept").await, reports("removed").await], [[true; 3], [false; 3]]);
        assert!(recorder.render().await.contains("quorate_nodes_required 2\n"), "without a handle");
        kept.0.increment(1);
        assert!(recorder.render().await.contains("quorate_runs_total{job=\"kept\"} 3"));
    }

    #[test]
    fn series_that_nothing_reads_do_not_pile_up() {
        let recorder = measurements();
        metrics::with_local_recorder(&recorder, || {
            for number in 0..10_000 {
                metrics::counter!("quorate_runs_total", "job" => number.to_string()).increment(1);
            }
        });
        assert!(recorder.lock()["quorate_runs_total"].series.len() <= 64);
    }

    #[tokio::test]
    async fn the_text_is_that_of_prometheus() {
        let recorder = measurements();
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
