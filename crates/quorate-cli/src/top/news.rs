//! The data that the poller reads from the nodes.

use super::sidecar::LeaseLine;
use crate::{jobs::WhyPage, status::NodeLine};
use quorate::env::{BootTime, WallTime};
use quorate_operator::view::{JobView, RunEnd, ShardSetView, WorkerView};
use std::{sync::Arc, time::Duration};

/// A part of the data, as the poller reads it.
#[derive(Clone, Debug)]
pub(super) enum News {
    /// The states of the nodes.
    Nodes(Vec<NodeLine>),
    /// The leader, or the reason why it could not be read.
    Leader(Result<Option<Leader>, String>),
    /// The jobs, or the reason why they could not be read.
    Jobs(Result<Vec<JobView>, String>),
    /// The leases of a sidecar's clients, or the reason why they could not be read.
    Leases(Result<Vec<LeaseLine>, String>),
    /// The live workers.
    Workers(Vec<WorkerView>),
    /// The sets of shards.
    Shards(Vec<ShardSetView>),
    Detail(Box<Detail>),
    /// The answer to an action.
    Answer(Result<String, String>),
}

/// The leader of the group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leader {
    pub(super) worker: String,
    pub(super) term: Option<u64>,
    /// The time for which the lease lasts if it is not extended.
    pub(super) remaining: Option<Duration>,
    /// The reason why the leader cannot use the records of the jobs, if too few copies of them are complete.
    pub(super) waiting: Option<String>,
}

/// The runs of one job, and the reason why it did or did not run.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    pub(super) job: Arc<str>,
    pub(super) history: Result<Vec<RunEnd>, String>,
    pub(super) why: Result<WhyPage, String>,
}

/// A point in time, by both clocks of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) boot: BootTime,
    pub(super) wall: WallTime,
}

/// A value with the time at which it was read.
#[derive(Clone, Debug)]
pub(super) struct Dated<T> {
    pub(super) value: T,
    pub(super) read: Moment,
}

impl<T> Dated<T> {
    pub(super) fn age(&self, now: Moment) -> Duration {
        now.boot.since(self.read.boot)
    }
}
