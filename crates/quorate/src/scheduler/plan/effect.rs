//! The effects of the leader's decisions, and the events that the event loop reports back after it has
//! carried the effects out.

use crate::scheduler::{
    plan::pending_run::PendingRun,
    run::on_leader::RunEnd,
    store::{history_writer::RunReport, saved_state::SavedState},
};
use crate::{
    env::WallTime,
    scheduler::{Job, RunCause, RunOutcome},
};
use std::{sync::Arc, time::Duration};

/// An effect of the planner's decisions on the ledger or on runs. The event loop carries the effects out in the
/// order in which the planner returns them.
#[derive(Debug)]
pub(in crate::scheduler) enum Effect {
    /// Writes a row of the ledger that pruning never removes.
    PutRow { key: Arc<str>, value: Arc<str> },
    /// Writes the row of a new job. When the write ends, the event loop reports this to the planner with the
    /// job's `place` in the job table.
    Register { place: usize, job: Arc<str>, key: Arc<str>, value: Arc<str> },
    /// Writes a row with the time `at`, so that pruning removes it later. If `last` is true, no later write
    /// can replace the row.
    CloseRow { key: Arc<str>, value: Arc<str>, at: WallTime, last: bool },
    /// Writes a job's state with a time that pruning never reaches, because the job was added again.
    KeepState(SavedState),
    /// Writes a job's state with this time, so that pruning removes it later. The job was removed.
    CloseState(SavedState, WallTime),
    /// Executes a run on the leader.
    Execute(RunStart),
    /// Opens a run to workers, or continues a run that is already open. The run's task watches the run, and
    /// closes it when it has ended.
    Open(RunStart),
    /// Cancels the active run under this key, for this reason.
    Cancel { key: Arc<str>, why: Arc<str> },
    /// Ends the open run under this key, unless a worker has taken it.
    Withdraw { key: Arc<str>, end: RunOutcome, why: Arc<str> },
    /// Stops watching the open run under this key. The run stays open.
    Release { key: Arc<str> },
    /// Writes the end of a run, or of ticks that did not run, to the history.
    Report(Box<RunReport>),
    /// Adds to the job's statistics the time by which a run began late.
    CountLate { job: Arc<str>, by: Duration },
    /// Drops the history writer's data of a removed job, because no further entry follows.
    CloseHistory(Arc<str>),
}

/// A run that is about to start.
#[derive(Debug)]
pub(in crate::scheduler) struct RunStart {
    pub(in crate::scheduler) owner: RunOwner,
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) state: SavedState,
    pub(in crate::scheduler) run: PendingRun,
}

/// The job to which a run belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum RunOwner {
    /// A job of the leader, given by its place in the job table.
    Job(usize),
    /// A job that the leader does not have, for example a job of another version of the program.
    Unknown,
}

/// The event that the task of a run has ended, with the run's result.
#[derive(Debug)]
pub(in crate::scheduler) struct RunCompletion {
    pub(in crate::scheduler) owner: RunOwner,
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// `None` if the task of the run panicked.
    pub(in crate::scheduler) end: Option<RunEnd>,
}
