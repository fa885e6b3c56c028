use super::facade::{Counter, Metric};
use std::sync::Arc;

const CLAIMS: Metric =
    Metric::number("quorate_claims_total", "Number of claims on messages of the set, by their outcome.");

/// The names of the outcomes, in the order of [`ClaimResultKind`].
const OUTCOMES: [&str; 5] = ["claimed", "in-progress", "done", "dead-lettered", "failed"];

/// The outcome of a claim on one message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimResultKind {
    Claimed,
    InProgress,
    Done,
    DeadLettered,
    Failed,
}

impl ClaimResultKind {
    pub(crate) fn as_str(self) -> &'static str {
        OUTCOMES[self as usize]
    }
}

/// The counters of one set of claims.
#[derive(Clone, Debug)]
pub(crate) struct ClaimMeasures(Arc<[Counter; 5]>);

impl ClaimMeasures {
    pub(crate) fn new(set: &str) -> Self {
        Self(Arc::new(OUTCOMES.map(|outcome| CLAIMS.counter(&[("set", set), ("outcome", outcome)]))))
    }

    pub(crate) fn claimed(&self, result: ClaimResultKind) {
        self.0[result as usize].add_one();
    }
}
