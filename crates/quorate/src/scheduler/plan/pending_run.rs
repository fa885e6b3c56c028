//! The runs and ticks of one job on which the leader decides: runs that wait, active runs, runs to close, and
//! ticks that do not run.

use crate::scheduler::store::run_writer::RunId;
use crate::{
    env::WallTime,
    node::Record,
    scheduler::{Job, MisfiredTicks, Placement, RequestId, RunCause, RunOutcome, RunRecord, SkipReason},
};
use std::sync::Arc;

/// A run that waits to be started or opened. If an earlier leader started or opened it, `seen` is the run's
/// record.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct PendingRun {
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// The key of the run's record in the ledger.
    pub(in crate::scheduler) key: Arc<str>,
    /// The earliest time at which a record of the run may exist.
    pub(in crate::scheduler) at: WallTime,
    /// True if the seal was answered by a majority of nodes that would remember a record of the time `at`.
    pub(in crate::scheduler) remembering: bool,
    /// No worker starts the run before this time.
    pub(in crate::scheduler) not_before: WallTime,
    /// The record that decides on the run; `None` if there is no record.
    pub(in crate::scheduler) seen: Option<Record>,
    /// True if no node has a record of the run, and too few nodes would remember a record of the time `at`.
    pub(in crate::scheduler) unknown: bool,
    /// The number of times that the run was interrupted in this term.
    pub(in crate::scheduler) interruptions: u32,
}

impl PendingRun {
    /// Returns whether the run was started before, or may have been started. If so, the run is not skipped in
    /// favour of a later tick.
    pub(in crate::scheduler) fn is_unfinished(&self) -> bool {
        self.seen.is_some() || self.unknown
    }

    pub(in crate::scheduler) fn request(&self) -> Option<RequestId> {
        self.cause.request()
    }

    pub(in crate::scheduler) fn run(&self) -> RunId {
        RunId { key: Arc::clone(&self.key), at: self.at, remembering: self.remembering }
    }

    /// Returns whether an earlier leader has opened the run. A worker may then have taken the run, so it can
    /// be ended only through its slot (rule R7 of `docs/design/scheduler.md`).
    pub(in crate::scheduler) fn is_open(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.is_some_and(|seen| matches!(RunRecord::parse(&seen.value), Ok(RunRecord::Open(_))))
    }

    /// Returns whether a worker executes the run: the run is already open, or the job is placed on any
    /// worker.
    pub(in crate::scheduler) fn is_for_workers(&self, job: &Job) -> bool {
        job.placement == Placement::AnyWorker || self.is_open()
    }
}

/// A run that the leader has started or opened: the leader executes it, or it is open to workers.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct ActiveRun {
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    /// The earliest time at which a record of the run may exist.
    pub(in crate::scheduler) at: WallTime,
    pub(in crate::scheduler) request: Option<RequestId>,
    /// True if the leader executes the run.
    pub(in crate::scheduler) here: bool,
}

impl ActiveRun {
    /// Returns the active run that replaces the waiting run `pending`.
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
    /// The reason, if an earlier leader recorded one.
    pub(in crate::scheduler) why: Option<Arc<str>>,
}

/// Ticks that do not run, and the reason.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) enum SkippedTick {
    /// No leader ran them in time, and the misfire rule skips them.
    Missed(MisfiredTicks),
    /// The tick waited, and a later tick runs in its place, or too many ticks waited.
    Overtaken(WallTime),
    /// The tick came due during an earlier run of the job, and the job's overlap rule skips such ticks.
    Overlapped(WallTime),
    /// The tick waited for longer than the misfire window.
    TooLate(WallTime),
    /// The ledger's records do not permit that the tick runs.
    Decided(WallTime, SkipReason),
    /// The job was paused while the tick waited.
    Paused(PendingRun),
    /// The job's schedule or placement was changed while the tick waited.
    Changed(WallTime),
}
