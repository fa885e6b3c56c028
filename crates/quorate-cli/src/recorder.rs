//! The recorder of the measurements of this process. `/metrics` and the OpenTelemetry sender read the same
//! one.

use crate::exit::{FAILURE, Failure};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The time for which a counter or a gauge is reported after the last handle of it was dropped: those of a removed job.
const REPORTED_AFTER: Duration = Duration::from_secs(600);

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

/// The measurements of this process. Clones are the same measurements.
///
/// Counters and gauges of which the program has no handle any more, such as those of a removed job, are reported for
/// ten more minutes. Histograms stay: the exporter has no way to keep one that does not change and to drop another.
#[derive(Clone)]
pub(crate) struct Measurements {
    exporter: PrometheusHandle,
    series: Arc<AllSeries>,
}

impl Measurements {
    /// Installs the recorder of this process. Call it before the quorum is built: measurements that were made
    /// before are lost.
    pub(crate) fn install() -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(FAILURE, format!("cannot install the recorder of measurements: {error}"))
        };
        let (recorder, measurements) = Self::build(REPORTED_AFTER).map_err(|error| failed(&error))?;
        metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?;
        Ok(measurements)
    }

    fn build(
        reported_after: Duration,
    ) -> Result<(SeriesRecorder, Self), metrics_exporter_prometheus::BuildError> {
        let kinds = MetricKindMask::COUNTER | MetricKindMask::GAUGE;
        let mut builder = PrometheusBuilder::new().idle_timeout(kinds, Some(reported_after));
        for (name, ends) in BUCKETS {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), ends)?;
        }
        let exporter = builder.build_recorder();
        let measurements = Self { exporter: exporter.handle(), series: Arc::default() };
        Ok((SeriesRecorder { exporter, series: Arc::clone(&measurements.series) }, measurements))
    }

    /// Returns all measurements in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        self.series.touch();
        self.exporter.render()
    }

    /// Keeps the memory bounded while no client reads the measurements. Call it from time to time.
    pub(crate) fn upkeep(&self) {
        self.series.touch();
        self.exporter.run_upkeep();
    }
}

impl fmt::Debug for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measurements").finish_non_exhaustive()
    }
}

/// The counters and gauges of which the program may have handles.
#[derive(Default)]
struct AllSeries(Mutex<Vec<Weak<dyn Touch + Send + Sync>>>);

impl AllSeries {
    fn add(&self, series: Weak<dyn Touch + Send + Sync>) {
        self.lock().push(series);
    }

    /// Marks every series of which a handle exists as used, so that the exporter keeps it.
    fn touch(&self) {
        self.lock().retain(|series| match series.upgrade() {
            Some(series) => {
                series.touch();
                true
            }
            None => false,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Touch + Send + Sync>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A series that the exporter keeps if it was used.
trait Touch {
    fn touch(&self);
}

/// A counter or a gauge of the exporter, for as long as the program has a handle of it.
struct Series<T>(T);

impl Touch for Series<Counter> {
    fn touch(&self) {
        self.0.increment(0);
    }
}

impl CounterFn for Series<Counter> {
    fn increment(&self, value: u64) {
        self.0.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.0.absolute(value);
    }
}

impl Touch for Series<Gauge> {
    fn touch(&self) {
        self.0.increment(0.0);
    }
}

impl GaugeFn for Series<Gauge> {
    fn increment(&self, value: f64) {
        self.0.increment(value);
    }

    fn decrement(&self, value: f64) {
        self.0.decrement(value);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
    }
}

/// The exporter's recorder, which also knows of which series the program has handles.
struct SeriesRecorder {
    exporter: PrometheusRecorder,
    series: Arc<AllSeries>,
}

impl SeriesRecorder {
    fn held<T>(&self, series: T) -> Arc<Series<T>>
    where
        Series<T>: Touch + Send + Sync + 'static,
    {
        let series = Arc::new(Series(series));
        let known: Arc<dyn Touch + Send + Sync> = Arc::clone(&series) as _;
        self.series.add(Arc::downgrade(&known));
        series
    }
}

impl Recorder for SeriesRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.exporter.describe_counter(name, unit, help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.exporter.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.exporter.describe_histogram(name, unit, help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.held(self.exporter.register_counter(key, metadata)))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.held(self.exporter.register_gauge(key, metadata)))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.exporter.register_histogram(key, metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_reported_while_the_program_has_a_handle_of_it() {
        let (recorder, measurements) = Measurements::build(Duration::ZERO).unwrap();
        let (kept, dropped) = metrics::with_local_recorder(&recorder, || {
            let of = |job: &'static str| {
                let gauge = metrics::gauge!("quorate_job_running", "job" => job);
                gauge.set(1.0);
                (metrics::counter!("quorate_runs_total", "job" => job), gauge)
            };
            (of("kept"), of("removed"))
        });
        kept.0.increment(2);
        let reports = |job: &str| {
            let text = measurements.render();
            ["quorate_runs_total", "quorate_job_running"]
                .map(|name| text.contains(&format!("{name}{{job=\"{job}\"}}")))
        };
        for _ in 0..3 {
            assert_eq!([reports("kept"), reports("removed")], [[true, true]; 2]);
        }
        drop(dropped);
        reports("removed");
        for _ in 0..3 {
            assert_eq!([reports("kept"), reports("removed")], [[true, true], [false, false]]);
        }
        kept.0.increment(1);
        assert!(measurements.render().contains("quorate_runs_total{job=\"kept\"} 3"));
        assert_eq!(measurements.series.lock().len(), 2, "those of the job that was kept");
    }
}
