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

/// An effect of a decision. The event loop carries the effects out in the order in which the decisions return
/// them.
#[derive(Debug)]
pub(in crate::scheduler) enum Effect {
    /// Writes a row that pruning never removes.
    PutRow { key: Arc<str>, value: Arc<str> },
    /// Writes the row of a new job. The end of the write is reported with the job's place.
    Register { place: usize, job: Arc<str>, key: Arc<str>, value: Arc<str> },
    /// Writes a row with the time `at`, so that pruning removes it later. If `last` is true, no later write
    /// can replace the row.
    CloseRow { key: Arc<str>, value: Arc<str>, at: WallTime, last: bool },
    /// Writes a job's state again, so that pruning does not remove it.
    KeepState(SavedState),
    /// Writes a job's state with this time, so that pruning removes it later.
    CloseState(SavedState, WallTime),
    /// Executes a run on the leader.
    Execute(RunStart),
    /// Opens a run to workers, or continues an open run. Closes the run when it has ended.
    Open(RunStart),
    /// Cancels the run under this key, for this reason.
    Cancel { key: Arc<str>, why: Arc<str> },
    /// Ends the open run under this key, unless a worker has taken it.
    Withdraw { key: Arc<str>, end: RunOutcome, why: Arc<str> },
    /// Stops watching the open run under this key, and leaves it open.
    Release { key: Arc<str> },
    /// Enters the end of a run, or of ticks that did not run, in the history.
    Report(Box<RunReport>),
    /// Counts the time by which a run began late.
    CountLate { job: Arc<str>, by: Duration },
    /// Closes a job's history: no further entry follows.
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
    /// The leader's job at this place of its job table.
    Job(usize),
    /// A job that the leader does not have.
    Unknown,
}

/// The event that the task of a run has ended.
#[derive(Debug)]
pub(in crate::scheduler) struct RunCompletion {
    pub(in crate::scheduler) owner: RunOwner,
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// `None` if the task of the run panicked.
    pub(in crate::scheduler) end: Option<RunEnd>,
}
