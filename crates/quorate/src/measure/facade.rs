use std::{fmt, time::Duration};

/// The labels of a series: names, which are fixed, and values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// A metric: its name, and the sentence that describes it to the exporter.
pub(super) struct Metric {
    name: &'static str,
    help: &'static str,
    in_seconds: bool,
}

/// A number that only grows.
#[derive(Clone)]
pub(super) struct Counter(#[cfg(feature = "metrics")] metrics::Counter);

/// A number that may change in both directions.
#[derive(Clone)]
pub(super) struct Gauge(#[cfg(feature = "metrics")] metrics::Gauge);

/// A distribution of durations.
#[derive(Clone)]
pub(super) struct Histogram(#[cfg(feature = "metrics")] metrics::Histogram);

impl Metric {
    pub(super) const fn number(name: &'static str, help: &'static str) -> Self {
        Self { name, help, in_seconds: false }
    }

    pub(super) const fn seconds(name: &'static str, help: &'static str) -> Self {
        Self { name, help, in_seconds: true }
    }
}

#[cfg(feature = "metrics")]
mod with_feature {
    use super::{Counter, Gauge, Histogram, Labels, Metric};
    use metrics::{Key, Label, Level, Metadata, Unit, with_recorder};

    static METADATA: Metadata<'static> = Metadata::new("quorate", Level::INFO, Some("quorate"));

    impl Metric {
        /// Describes the metric and returns one of its series, which then exists.
        pub(in crate::measure) fn counter(&self, labels: Labels<'_>) -> Counter {
            Counter(with_recorder(|recorder| {
                recorder.describe_counter(self.name.into(), self.unit(), self.help.into());
                recorder.register_counter(&self.key(labels), &METADATA)
            }))
        }

        /// Describes the metric and returns one of its series, which then exists.
        pub(in crate::measure) fn gauge(&self, labels: Labels<'_>) -> Gauge {
            Gauge(with_recorder(|recorder| {
                recorder.describe_gauge(self.name.into(), self.unit(), self.help.into());
                recorder.register_gauge(&self.key(labels), &METADATA)
            }))
        }

        /// Describes the metric and returns one of its series, which then exists.
        pub(in crate::measure) fn histogram(&self, labels: Labels<'_>) -> Histogram {
            Histogram(with_recorder(|recorder| {
                recorder.describe_histogram(self.name.into(), self.unit(), self.help.into());
                recorder.register_histogram(&self.key(labels), &METADATA)
            }))
        }

        fn key(&self, labels: Labels<'_>) -> Key {
            let label = |&(name, value): &(&'static str, &str)| Label::new(name, value.to_owned());
            Key::from_parts(self.name, labels.iter().map(label).collect::<Vec<_>>())
        }

        fn unit(&self) -> Option<Unit> {
            self.in_seconds.then_some(Unit::Seconds)
        }
    }

    impl Counter {
        pub(in crate::measure) fn add_one(&self) {
            self.0.increment(1);
        }
    }

    impl Gauge {
        pub(in crate::measure) fn set(&self, value: f64) {
            self.0.set(value);
        }
    }

    impl Histogram {
        pub(in crate::measure) fn record(&self, seconds: f64) {
            self.0.record(seconds);
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod without_feature {
    use super::{Counter, Gauge, Histogram, Labels, Metric};

    impl Metric {
        pub(in crate::measure) fn counter(&self, _labels: Labels<'_>) -> Counter {
            let _ = (self.name, self.help, self.in_seconds);
            Counter()
        }

        pub(in crate::measure) fn gauge(&self, _labels: Labels<'_>) -> Gauge {
            Gauge()
        }

        pub(in crate::measure) fn histogram(&self, _labels: Labels<'_>) -> Histogram {
            Histogram()
        }
    }

    impl Counter {
        pub(in crate::measure) fn add_one(&self) {}
    }

    impl Gauge {
        pub(in crate::measure) fn set(&self, _value: f64) {}
    }

    impl Histogram {
        pub(in crate::measure) fn record(&self, _seconds: f64) {}
    }
}

impl Gauge {
    pub(super) fn set_duration(&self, time: Duration) {
        self.set(time.as_secs_f64());
    }

    pub(super) fn set_flag(&self, flag: bool) {
        self.set(f64::from(u8::from(flag)));
    }

    pub(super) fn set_count(&self, count: usize) {
        self.set(count as f64);
    }
}

impl Histogram {
    pub(super) fn record_duration(&self, time: Duration) {
        self.record(time.as_secs_f64());
    }
}

// The handles of a recorder have a long `Debug` text, which would become a part of the `Debug` text of every
// lock.
macro_rules! short_debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}
short_debug!(Counter, Gauge, Histogram);
