//! The recorder of the measurements of this process. `/metrics` and the OpenTelemetry sender read the same
//! one.

mod family;
mod text;

#[cfg(feature = "otlp")]
pub(crate) use family::{Distribution, Labels, Value};
pub(crate) use family::{Family, Series};

use crate::exit::{FAILURE, Failure};
use family::{Buckets, labels_of};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::formatting::sanitize_metric_name;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};

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

/// The measurements of this process. Clones are the same measurements.
///
/// A series of a job is reported while the program has a handle of it, so it ends with the job. All others stay. The
/// exporter of `metrics-exporter-prometheus` cannot drop a series at that moment, and a histogram never without the loss of
/// others that are in use. So only its formatting is used.
#[derive(Clone, Default)]
pub(crate) struct Measurements(Arc<Mutex<Families>>);

/// The measurements of one name each.
type Families = BTreeMap<String, Family>;

impl Measurements {
    /// Installs the recorder of this process. Call it before the quorum is built: measurements that were made
    /// before are lost.
    pub(crate) fn install() -> Result<Self, Failure> {
        let measurements = Self::default();
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
        let mut text = String::new();
        for name in self.names() {
            if let Some(family) = self.family(&name) {
                text::write(&mut text, &name, &family).await;
            }
        }
        text
    }

    /// Returns all measurements, by name.
    #[cfg(feature = "otlp")]
    pub(crate) fn families(&self) -> Vec<(String, Family)> {
        let family = |name: String| self.family(&name).map(|family| (name, family));
        self.names().into_iter().filter_map(family).collect()
    }

    fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the measurements of a name that are in use.
    fn family(&self, name: &str) -> Option<Family> {
        let mut families = self.lock();
        let family = families.get_mut(name)?;
        family.drop_unused();
        Some(family.clone())
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
        Histogram::from_arc(self.series(key, find, (Series::Histogram, buckets_of)))
    }
}

/// Returns a new histogram of this name.
fn buckets_of(name: &str) -> Buckets {
    Buckets::new(BUCKETS.iter().find(|(of, _)| *of == name).map_or(OTHER_BUCKETS, |(_, ends)| ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_series_of_a_job_is_reported_while_the_program_has_a_handle_of_it() {
        let recorder = Measurements::default();
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
        let recorder = Measurements::default();
        metrics::with_local_recorder(&recorder, || {
            for number in 0..10_000 {
                metrics::counter!("quorate_runs_total", "job" => number.to_string()).increment(1);
            }
        });
        assert!(recorder.lock()["quorate_runs_total"].series.len() <= 64);
    }
}
