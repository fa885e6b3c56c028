//! The messages of OTLP: the spans and the metrics of this process.

use super::exposition::{Buckets, Family, Labels, Series};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans},
};
use opentelemetry_sdk::trace::SpanData;
use quorate::env::WallTime;
use std::collections::BTreeMap;

/// Writes the messages of one process.
#[derive(Debug)]
pub(super) struct Messages {
    resource: Resource,
}

/// The time that the counts of a message cover: from the start of the recorder until now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) start: WallTime,
    pub(super) end: WallTime,
}

impl Messages {
    pub(super) fn new(worker: &str, group: Option<&str>) -> Self {
        let mut attributes = vec![
            attribute("service.name", "quorate"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", worker),
        ];
        attributes.extend(group.map(|group| attribute("quorate.group", group)));
        Self { resource: Resource { attributes, ..Resource::default() } }
    }

    /// Returns the message with these spans.
    pub(super) fn spans(&self, spans: Vec<SpanData>) -> ExportTraceServiceRequest {
        let spans = spans.into_iter().map(Into::into).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
        }
    }

    /// Returns the message with these metrics.
    pub(super) fn metrics(&self, families: Vec<Family>, period: Period) -> ExportMetricsServiceRequest {
        let metrics = families.into_iter().map(|family| metric(family, period)).collect();
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }],
        }
    }
}

fn scope() -> InstrumentationScope {
    let (name, version) = ("quorate".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

fn metric(family: Family, period: Period) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data = match family.series {
        Series::Counter(series) => {
            let data_points = numbers(series, period);
            Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
        }
        // A gauge is a value of one moment.
        Series::Gauge(series) => {
            Data::Gauge(Gauge { data_points: numbers(series, Period { start: period.end, ..period }) })
        }
        Series::Histogram(series) => {
            let point = |(labels, buckets)| distribution(labels, &buckets, period);
            let data_points = series.into_iter().map(point).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality })
        }
    };
    let unit = if family.name.ends_with("_seconds") { "s" } else { "" }.to_owned();
    Metric { name: family.name, description: family.help, unit, data: Some(data), ..Metric::default() }
}

fn numbers(series: BTreeMap<Labels, f64>, period: Period) -> Vec<NumberDataPoint> {
    let point = |(labels, value)| NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: nanos(period.start),
        time_unix_nano: nanos(period.end),
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    };
    series.into_iter().map(point).collect()
}

/// Returns the message of one series. The text format counts the values up to each end, and OTLP those
/// between two ends.
fn distribution(labels: Labels, buckets: &Buckets, period: Period) -> HistogramDataPoint {
    let mut below = 0.0;
    let between =
        buckets.up_to.iter().map(|(_, up_to)| (up_to - std::mem::replace(&mut below, *up_to)) as u64);
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: nanos(period.start),
        time_unix_nano: nanos(period.end),
        count: buckets.count as u64,
        sum: Some(buckets.sum),
        bucket_counts: between.collect(),
        explicit_bounds: buckets.up_to.iter().map(|(end, _)| *end).filter(|end| end.is_finite()).collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| attribute(&name, &value)).collect()
}

fn nanos(time: WallTime) -> u64 {
    time.as_micros().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_between_the_ends_of_buckets_add_up() {
        let up_to = vec![(0.1, 2.0), (1.0, 2.0), (5.0, 6.0), (f64::INFINITY, 7.0)];
        let buckets = Buckets { up_to, sum: 12.5, count: 7.0 };
        let period = Period { start: WallTime::from_micros(1), end: WallTime::from_micros(2) };
        let point = distribution(vec![("job".to_owned(), "j".to_owned())], &buckets, period);
        assert_eq!((point.count, point.sum), (7, Some(12.5)));
        assert_eq!((point.bucket_counts, point.explicit_bounds), (vec![2, 0, 4, 1], vec![0.1, 1.0, 5.0]));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1_000, 2_000));
    }
}
