//! The layer that turns the library's spans into spans of OpenTelemetry, and puts those that ended into a
//! queue.

use crate::log::SubscriberLayer;
use opentelemetry::{
    Context, Value,
    trace::{Status, TracerProvider},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer, filter::filter_fn};

/// The outcomes of spans that count as errors.
const ERRORS: [&str; 3] = ["failed", "timed-out", "lost"];

/// Returns the layer, and the queue of the spans that ended. A span that finds the queue full is dropped, and
/// counted in `lost`.
///
/// Events are not collected: they are in the log, and the span of a term may last for months.
pub(super) fn layer(room: usize, lost: &Arc<AtomicU64>) -> (SubscriberLayer, mpsc::Receiver<SpanData>) {
    let (spans, ended) = mpsc::channel(room);
    // Sampler and resource are given here, so that no variable of the environment changes them.
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_resource(Resource::builder_empty().build())
        .with_span_processor(Queue { spans, lost: Arc::clone(lost) })
        .build();
    let filter = filter_fn(|metadata| {
        let is_ours = metadata.target().split("::").next().is_some_and(|name| name == "quorate");
        is_ours && metadata.is_span() && *metadata.level() <= LevelFilter::DEBUG
    });
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("quorate"))
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_filter(filter.with_max_level_hint(LevelFilter::DEBUG));
    (Box::new(layer), ended)
}

/// Puts the spans that ended into a queue. Never waits.
#[derive(Debug)]
struct Queue {
    spans: mpsc::Sender<SpanData>,
    lost: Arc<AtomicU64>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        span.status = status(&span);
        if self.spans.try_send(span).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Returns the status of a span, by its field `outcome`. The field `error` describes it.
fn status(span: &SpanData) -> Status {
    let field = |name: &str| {
        let found = span.attributes.iter().rev().find(|attribute| attribute.key.as_str() == name);
        found.and_then(|attribute| match &attribute.value {
            Value::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        })
    };
    match field("outcome") {
        Some(outcome) if ERRORS.contains(&outcome.as_str()) => {
            Status::error(field("error").unwrap_or(outcome))
        }
        _ => Status::Unset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn spans_of_the_library_are_queued_with_parent_and_status_and_a_full_queue_drops_them() {
        let lost = Arc::new(AtomicU64::new(0));
        let (layer, mut ended) = layer(3, &lost);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let term =
                tracing::debug_span!(target: "quorate::election", "term", outcome = tracing::field::Empty);
            let run = term.in_scope(|| {
                tracing::debug_span!(target: "quorate::scheduler", "run", job = "j", outcome = "failed", error = "exit 3")
            });
            tracing::info!(target: "quorate::scheduler", parent: &run, "an event");
            drop(run);
            term.record("outcome", "resigned");
            drop(term);
            drop(tracing::info_span!(target: "quorate_postgres", "other"));
            drop(tracing::info_span!(target: "hyper::client", "other"));
            drop(tracing::trace_span!(target: "quorate::driver", "other"));
            for _ in 0..3 {
                drop(tracing::debug_span!(target: "quorate", "acquire"));
            }
        });
        let run = ended.try_recv().unwrap();
        assert_eq!((&*run.name, &run.status), ("run", &Status::error("exit 3")));
        assert!(run.events.is_empty(), "{:?}", run.events);
        let names: Vec<_> = run.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(names, ["job", "outcome", "error"], "and nothing that the library did not record");
        let term = ended.try_recv().unwrap();
        assert_eq!((&*term.name, &term.status), ("term", &Status::Unset));
        assert_eq!(run.parent_span_id, term.span_context.span_id());
        assert_eq!(run.span_context.trace_id(), term.span_context.trace_id());
        assert_eq!(ended.try_recv().unwrap().name, "acquire");
        assert!(ended.try_recv().is_err());
        assert_eq!(lost.load(Ordering::Relaxed), 2);
    }
}
