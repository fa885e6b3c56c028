use super::{MaybeMillis, name};
use quorate::{election::Leader, node::FencingToken};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// The leader of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "GroupLeader")]
pub struct LeaderView {
    /// The name of the worker.
    pub worker: String,
    /// The number of its term, which is the fencing token of its lease.
    pub term: Option<u64>,
    /// The time for which it leads if its lease is not extended again.
    #[serde(rename = "remaining_ms", with = "MaybeMillis")]
    pub remaining: Option<Duration>,
}

impl LeaderView {
    /// Returns the view of a leader.
    pub fn new(leader: &Leader) -> Self {
        Self {
            worker: name(&leader.worker),
            term: leader.term.map(FencingToken::get),
            remaining: leader.remaining,
        }
    }
}
