//! The effects of the leader's decisions, and the events that the event loop reports back after it has carried the
//! effects out.

use crate::scheduler::{
    plan::{pending_run::PendingRun, reporter::RunReport},
    run::on_leader::RunEnd,
    store::saved_state::SavedState,
};
use crate::{
    env::WallTime,
    scheduler::{Job, RunCause, RunOutcome},
};
use std::{sync::Arc, time::Duration};

/// An effect of a decision. The event loop carries the effects out in the order in which the decisions return them.
#[derive(Debug)]
pub(in crate::scheduler) enum Effect {
    /// Write a row that pruning never removes.
    PutRow { key: Arc<str>, value: Arc<str> },
    /// Write the row of a new job, and report the end of the write with the job's place.
    Register { place: usize, job: Arc<str>, key: Arc<str>, value: Arc<str> },
    /// Write a row for the last time, so that pruning removes it later. If it is `last`, no later write overwrites it.
    CloseRow { key: Arc<str>, value: Arc<str>, at: WallTime, last: bool },
    /// Write a job's state again, so that pruning does not remove it.
    KeepState(SavedState),
    /// Write a job's state for the last time, so that pruning removes it later.
    CloseState(SavedState, WallTime),
    /// Execute a run.
    Execute(RunStart),
    /// Open a run to workers, or continue an open one. Close the run when it has ended.
    Open(RunStart),
    /// Cancel the run under this key, for this reason.
    Cancel { key: Arc<str>, why: Arc<str> },
    /// End the open run under this key before a worker takes it.
    Withdraw { key: Arc<str>, end: RunOutcome, why: Arc<str> },
    /// Stop watching the open run under this key, and leave it open.
    Release { key: Arc<str> },
    /// Enter the end of a run, or of ticks without one, in the history.
    Report(Box<RunReport>),
    /// Count the time by which a run began late.
    CountLate { job: Arc<str>, by: Duration },
    /// Close a job's history: no further entry follows.
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
