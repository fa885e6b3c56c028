//! The span of a run, which covers all attempts of the handler and the records of the run.

use crate::{
    env::WallTime,
    node::FencingToken,
    scheduler::job::{Job, RunCause},
};
use tracing::{Span, field::Empty};

/// Returns the span of a run that this worker executes. The leader of `term` has started or opened the run.
pub(in crate::scheduler) fn run_span(job: &Job, tick: WallTime, cause: RunCause, term: FencingToken) -> Span {
    tracing::debug_span!(
        "run",
        job = &*job.name,
        tick = %job.schedule.format(tick),
        %cause,
        term = term.get(),
        outcome = Empty,
        attempts = Empty,
        error = Empty,
    )
}

/// Records the end of an executed run in its span.
pub(in crate::scheduler) fn record_end(span: &Span, outcome: &str, attempts: u32, error: &str) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", outcome).record("attempts", attempts);
    if !error.is_empty() {
        span.record("error", error);
    }
}
