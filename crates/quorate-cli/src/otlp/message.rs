//! The messages of OTLP: the spans and the metrics of this process.

use crate::recorder::{Distribution, Family, Labels, Series, Value};
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
    pub(super) fn metrics(
        &self,
        families: &[(String, Family)],
        period: Period,
    ) -> ExportMetricsServiceRequest {
        let metrics = families.iter().filter_map(|(name, family)| metric(name, family, period)).collect();
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

/// Returns the metric of one name, if it has a series.
fn metric(name: &str, family: &Family, period: Period) -> Option<Metric> {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let (_, first) = family.series.first_key_value()?;
    let data = match first {
        Series::Counter(_) => Data::Sum(Sum {
            data_points: numbers(family, period),
            aggregation_temporality,
            is_monotonic: true,
        }),
        // A gauge is a value of one moment.
        Series::Gauge(_) => {
            Data::Gauge(Gauge { data_points: numbers(family, Period { start: period.end, ..period }) })
        }
        Series::Histogram(_) => {
            let point = |(labels, series): (&Labels, &Series)| match series.read() {
                Value::Histogram(values) => Some(distribution(labels, values, period)),
                Value::Counter(_) | Value::Gauge(_) => None,
            };
            let data_points = family.series.iter().filter_map(point).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality })
        }
    };
    let unit = if name.ends_with("_seconds") { "s" } else { "" }.to_owned();
    let description = family.help.as_ref().map(ToString::to_string).unwrap_or_default();
    Some(Metric { name: name.to_owned(), description, unit, data: Some(data), ..Metric::default() })
}

fn numbers(family: &Family, period: Period) -> Vec<NumberDataPoint> {
    let point = |(labels, series): (&Labels, &Series)| {
        let value = match series.read() {
            Value::Counter(number) => number as f64,
            Value::Gauge(number) => number,
            Value::Histogram(_) => return None,
        };
        Some(NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: nanos(period.start),
            time_unix_nano: nanos(period.end),
            value: Some(number_data_point::Value::AsDouble(value)),
            ..NumberDataPoint::default()
        })
    };
    family.series.iter().filter_map(point).collect()
}

fn distribution(labels: &Labels, values: Distribution, period: Period) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: nanos(period.start),
        time_unix_nano: nanos(period.end),
        count: values.counts.iter().sum(),
        sum: Some(values.sum),
        bucket_counts: values.counts,
        explicit_bounds: values.ends.to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| attribute(name, value)).collect()
}

fn nanos(time: WallTime) -> u64 {
    time.as_micros().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Measurements;

    fn attributes_of(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
        pairs.iter().map(|(name, value)| attribute(name, value)).collect()
    }

    #[test]
    fn every_kind_is_sent_with_its_labels_and_values_whatever_the_names_are() {
        let recorder = Measurements::default();
        let job = "a\"b\\c\nd{e}=,\u{fc}";
        let (runs, took) = metrics::with_local_recorder(&recorder, || {
            metrics::describe_counter!("runs_total", "Number \\ of \n runs.");
            metrics::describe_counter!("never_total", "Not measured.");
            metrics::gauge!("offset").set(-2.5e-7);
            metrics::counter!("runs.all", "the node" => "n").increment(2);
            // The series of a job ends with its handle.
            (
                metrics::counter!("runs_total", "job" => job, "outcome" => "done"),
                metrics::histogram!("took_seconds", "job" => job),
            )
        });
        runs.increment(3);
        [0.5, 1000.0].into_iter().for_each(|value| took.record(value));
        let period = Period { start: WallTime::from_micros(1), end: WallTime::from_micros(2) };
        let message = Messages::new("oak", None).metrics(&recorder.families(), period);
        let found = &message.resource_metrics[0].scope_metrics[0].metrics;
        let by_name = |name: &str| found.iter().find(|metric| metric.name == name).unwrap();
        let number = |point: &NumberDataPoint| (point.attributes.clone(), point.value);
        let double = |value| Some(number_data_point::Value::AsDouble(value));

        let metric = by_name("runs_total");
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        assert_eq!((metric.description.as_str(), sum.is_monotonic), ("Number \\ of \n runs.", true));
        let labels = attributes_of(&[("job", job), ("outcome", "done")]);
        assert_eq!(sum.data_points.iter().map(number).collect::<Vec<_>>(), [(labels, double(3.0))]);
        let Some(Data::Gauge(gauge)) = &by_name("offset").data else { panic!("{found:?}") };
        assert_eq!(number(&gauge.data_points[0]), (Vec::new(), double(-2.5e-7)));
        let Some(Data::Sum(sum)) = &by_name("runs_all").data else { panic!("{found:?}") };
        assert_eq!(number(&sum.data_points[0]), (attributes_of(&[("the_node", "n")]), double(2.0)));
        let metric = by_name("took_seconds");
        let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((metric.unit.as_str(), &point.attributes), ("s", &attributes_of(&[("job", job)])));
        assert_eq!((point.count, point.sum), (2, Some(1000.5)));
        assert_eq!(point.bucket_counts, [0, 0, 0, 1, 0, 0, 1]);
        assert_eq!(point.explicit_bounds, [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]);
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1_000, 2_000));
        assert_eq!(found.len(), 4);
    }
}
