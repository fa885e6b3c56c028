//! The runs of one job as the leader's decisions name them: pending, active, to be closed, and the ticks without a run.

use crate::scheduler::store::run_writer::RunId;
use crate::{
    env::WallTime,
    node::Record,
    scheduler::{Job, MisfiredTicks, Placement, RequestId, RunCause, RunOutcome, RunRecord, SkipReason},
};
use std::sync::Arc;

/// A run that waits to be started or opened, and the record of an earlier start.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct PendingRun {
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// The key of its record in the ledger.
    pub(in crate::scheduler) key: Arc<str>,
    /// The earliest time at which a record of it may exist.
    pub(in crate::scheduler) at: WallTime,
    /// A majority of the sealed nodes remembers that time.
    pub(in crate::scheduler) remembering: bool,
    /// No worker starts it before this time.
    pub(in crate::scheduler) not_before: WallTime,
    /// The record that decides on it, where one exists.
    pub(in crate::scheduler) seen: Option<Record>,
    /// Too few nodes can remember a record of this time: its start cannot reach a majority that counts.
    pub(in crate::scheduler) unknown: bool,
    /// The number of its interruptions in this term.
    pub(in crate::scheduler) interruptions: u32,
}

impl PendingRun {
    /// Returns whether it was started before, or may have been. Such a run is not skipped for a later tick.
    pub(in crate::scheduler) fn is_unfinished(&self) -> bool {
        self.seen.is_some() || self.unknown
    }

    pub(in crate::scheduler) fn request(&self) -> Option<RequestId> {
        self.cause.request()
    }

    pub(in crate::scheduler) fn run(&self) -> RunId {
        RunId { key: Arc::clone(&self.key), at: self.at, remembering: self.remembering }
    }

    /// Returns whether an earlier leader has opened it: a worker may have taken it, so only its slot can end it (R7).
    pub(in crate::scheduler) fn is_open(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.is_some_and(|seen| matches!(RunRecord::parse(&seen.value), Ok(RunRecord::Open(_))))
    }

    /// Returns whether a worker executes it: it is open already, or the job is placed on any worker.
    pub(in crate::scheduler) fn is_for_workers(&self, job: &Job) -> bool {
        job.placement == Placement::AnyWorker || self.is_open()
    }
}

/// A run that the leader has begun: it executes here, or is open to workers.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct ActiveRun {
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    /// The earliest time at which a record of it may exist.
    pub(in crate::scheduler) at: WallTime,
    pub(in crate::scheduler) request: Option<RequestId>,
    /// The leader executes it.
    pub(in crate::scheduler) here: bool,
}

impl ActiveRun {
    /// Returns the run that begins where `pending` waited.
    pub(in crate::scheduler) fn new(pending: &PendingRun, job: &Job) -> Self {
        Self {
            key: Arc::clone(&pending.key),
            tick: pending.tick,
            at: pending.at,
            request: pending.request(),
            here: !pending.is_for_workers(job),
        }
    }
}

/// A run whose record the leader closes without executing the run.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) struct RunToClose {
    pub(in crate::scheduler) run: PendingRun,
    pub(in crate::scheduler) end: RunOutcome,
    /// The reason, where an earlier leader gave one.
    pub(in crate::scheduler) why: Option<Arc<str>>,
}

/// Ticks that do not run, and the reason.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) enum SkippedTick {
    /// No leader ran them within the misfire window.
    Missed(MisfiredTicks),
    /// It came due during an earlier run of the job. A later tick runs in its place, or too many waited.
    Overtaken(WallTime),
    /// It came due during an earlier run of the job, and the overlap rule skips it then.
    Overlapped(WallTime),
    /// It waited for longer than the misfire window.
    TooLate(WallTime),
    /// The ledger's records decide against it.
    Decided(WallTime, SkipReason),
    /// The job was paused while it waited.
    Paused(PendingRun),
    /// The job's schedule or placement was changed while it waited.
    Changed(WallTime),
}
