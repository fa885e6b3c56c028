//! The runs and ticks of one job on which the leader decides: active runs, runs that the leader only closes, and ticks
//! that do not run.

use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RequestId, RunCause, RunOutcome},
        policy::MisfiredTicks,
        run::pending_run::PendingRun,
        store::verdict::SkipReason,
    },
};
use std::sync::Arc;

/// A run that has started. The leader executes it, or it is open to workers.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct ActiveRun {
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    /// The earliest time at which a record of the run may exist.
    pub(in crate::scheduler) at: WallTime,
    /// The time before which no worker starts the run.
    pub(in crate::scheduler) not_before: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// True if the leader executes the run.
    pub(in crate::scheduler) here: bool,
    /// The concurrency key that the run has until it ends.
    pub(in crate::scheduler) uses: Option<Arc<str>>,
}

impl ActiveRun {
    /// Creates the active run from the waiting run `pending`, which starts now.
    pub(in crate::scheduler) fn new(pending: &PendingRun, job: &Job) -> Self {
        Self {
            key: Arc::clone(&pending.key),
            tick: pending.tick,
            at: pending.at,
            not_before: pending.not_before,
            cause: pending.cause,
            here: !pending.is_for_workers(job),
            uses: pending.uses(job),
        }
    }

    pub(in crate::scheduler) fn request(&self) -> Option<RequestId> {
        self.cause.request()
    }

    /// Returns whether the run's tick is due. It is not yet due if the leader opened the run ahead of its tick.
    pub(in crate::scheduler) fn is_due(&self, now: WallTime) -> bool {
        self.here || self.not_before <= now
    }
}

/// Ticks that do not run. The variant is the reason.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) enum SkippedTick {
    /// The ticks were missed, and the misfire rule skips them.
    Missed(MisfiredTicks),
    /// The tick waited to run. Then it was replaced by a later tick, or too many ticks waited.
    Overtaken(WallTime),
    /// The tick was due while an earlier run of the job, which is no catch-up run, was active or waited, and the
    /// overlap rule skips such ticks.
    Overlapped(WallTime),
    /// The tick waited for longer than the misfire window.
    TooLate(WallTime),
    /// Because of the records in the ledger, the tick must not run.
    Decided(WallTime, SkipReason),
    /// The job was paused while the tick waited.
    Paused(PendingRun),
    /// The group was frozen while the tick waited.
    Frozen(PendingRun),
    /// The end of another job's run, after which the run starts, came while an earlier run of the job was active or
    /// waited, and the overlap rule skips it; or too many runs waited.
    Followed(PendingRun),
    /// The job's schedule or placement was changed while the tick waited.
    Changed(WallTime),
}

/// The reason for which a run that waits or is open does not start any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum Withdrawal {
    /// The job was paused.
    Paused,
    /// The group was frozen.
    Frozen,
    /// The job's schedule or placement was changed.
    Changed,
    /// The job was removed.
    Removed,
    /// No worker has had the job for the ledger's retention.
    Ended,
}

impl Withdrawal {
    pub(in crate::scheduler) const fn end(self) -> RunOutcome {
        match self {
            Self::Paused => RunOutcome::SkippedPaused,
            Self::Frozen => RunOutcome::SkippedFrozen,
            Self::Changed => RunOutcome::SkippedMisfire,
            Self::Removed | Self::Ended => RunOutcome::Cancelled,
        }
    }

    pub(in crate::scheduler) const fn outcome(self) -> (RunOutcome, &'static str) {
        (self.end(), self.reason())
    }

    /// Returns the reason in the history.
    pub(in crate::scheduler) const fn reason(self) -> &'static str {
        match self {
            Self::Paused => "the job was paused while it waited",
            Self::Frozen => "the group was frozen",
            Self::Changed => "the job's schedule or placement was changed while it waited",
            Self::Removed => "dropped before it began: the job was removed",
            Self::Ended => "no worker has had the job for the ledger's retention",
        }
    }
}
