use metrics::{HistogramFn, Key, Label, SharedString};
use metrics_exporter_prometheus::formatting::sanitize_label_key;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The series of one name.
#[derive(Clone, Default)]
pub(crate) struct Family {
    pub(crate) help: Option<SharedString>,
    pub(crate) series: BTreeMap<Labels, Series>,
    /// The number of series at which those of which no handle exists are dropped.
    drop_at: usize,
}

/// The names of labels, as Prometheus allows them, and the values.
pub(crate) type Labels = Arc<[(String, String)]>;

/// One series. The program has the other handles of it.
#[derive(Clone)]
pub(crate) enum Series {
    Counter(Arc<AtomicU64>),
    /// A float, as its bits.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Buckets>),
}

/// The measurements of a series so far.
pub(crate) enum Value {
    Counter(u64),
    Gauge(f64),
    Histogram(Distribution),
}

/// The values of a histogram so far.
#[derive(Debug)]
pub(crate) struct Distribution {
    /// The upper ends of the buckets but the last, which has none.
    pub(crate) ends: &'static [f64],
    /// The number of values in each bucket.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Family {
    pub(super) fn drop_unused(&mut self) {
        let is_of_job = |labels: &Labels| labels.iter().any(|(label, _)| label == "job");
        self.series.retain(|labels, series| series.is_used() || !is_of_job(labels));
        self.drop_at = (2 * self.series.len()).max(64);
    }

    /// Keeps the memory bounded while no client reads the measurements.
    pub(super) fn drop_unused_sometimes(&mut self) {
        if self.series.len() >= self.drop_at {
            self.drop_unused();
        }
    }
}

pub(super) fn labels_of(key: &Key) -> Labels {
    let label = |label: &Label| (sanitize_label_key(label.key()), label.value().to_owned());
    key.labels().map(label).collect()
}

impl Series {
    pub(crate) fn read(&self) -> Value {
        match self {
            Self::Counter(number) => Value::Counter(number.load(Ordering::Acquire)),
            Self::Gauge(bits) => Value::Gauge(f64::from_bits(bits.load(Ordering::Acquire))),
            Self::Histogram(buckets) => Value::Histogram(buckets.read()),
        }
    }

    fn is_used(&self) -> bool {
        match self {
            Self::Counter(number) | Self::Gauge(number) => Arc::strong_count(number) > 1,
            Self::Histogram(buckets) => Arc::strong_count(buckets) > 1,
        }
    }
}

/// A histogram with fixed buckets.
pub(crate) struct Buckets {
    ends: &'static [f64],
    /// The number of values in each bucket, and of those above the last one.
    counts: Vec<AtomicU64>,
    /// The sum of all values, as the bits of a float.
    sum: AtomicU64,
}

impl Buckets {
    pub(super) fn new(ends: &'static [f64]) -> Self {
        let counts = (0..=ends.len()).map(|_| AtomicU64::new(0)).collect();
        Self { ends, counts, sum: AtomicU64::new(0) }
    }

    fn read(&self) -> Distribution {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Acquire)).collect();
        let sum = f64::from_bits(self.sum.load(Ordering::Acquire));
        Distribution { ends: self.ends, counts, sum }
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
