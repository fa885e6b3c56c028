//! The effects of the leader's decisions. The event loop carries the effects out, and reports the end of each
//! run to the planner as an event.

use crate::{
    env::WallTime,
    scheduler::{
        alert::JobAlert,
        job::{Job, Payload},
        plan::{active_run::Withdrawal, job_id::JobId},
        run::{on_leader::RunEnd, pending_run::PendingRun},
        store::{JobRequest, JobResponse, run_report::RunReport},
    },
};
use std::{sync::Arc, time::Duration};

/// An effect that the planner's decisions have on the ledger or on runs. The event loop carries the effects out
/// in the order in which the planner returns them.
#[derive(Debug)]
pub(in crate::scheduler) enum Effect {
    /// Writes a row of the ledger.
    PutRow { key: Arc<str>, value: Arc<str> },
    /// Writes the row of a job, then reports these alerts to the job's function.
    Alert { job: Arc<Job>, key: Arc<str>, value: Arc<str>, alerts: Vec<JobAlert> },
    /// Writes the row of a new job. When the write has ended, the event loop passes the id of the job back to the
    /// planner. `due` is the time of the job's first tick.
    Register { id: JobId, job: Arc<str>, key: Arc<str>, value: Arc<str>, due: WallTime },
    /// Removes a row.
    RemoveRow { key: Arc<str> },
    /// Executes a run on the leader.
    Execute(RunStart),
    /// Opens a run to workers, or continues a run that is already open. The leader's task for the run watches
    /// the run, and closes it when it has ended.
    Open(RunStart),
    /// Cancels the active run under this key, for this reason.
    Cancel { key: Arc<str>, why: Arc<str> },
    /// Ends the open run under this key, unless a worker has started the run.
    Withdraw { key: Arc<str>, why: Withdrawal },
    /// Stops watching the open run under this key. The run stays open.
    Release { key: Arc<str> },
    /// Writes the end of a run, or of ticks that did not run, to the history.
    Report(Box<RunReport>),
    /// Writes an action of the leader itself, and its answer, to the audit list.
    Audit(Box<(JobRequest, JobResponse)>),
    /// Adds the lateness of a run that has started to the job's statistics.
    CountLate { job: Arc<str>, by: Duration },
    /// Notes that a job which runs more than once is stored on the nodes, or no longer is.
    OnNodes { job: Arc<str>, is_stored: bool },
    /// Drops the data that the history writer has of a removed job. No further entry of the job follows.
    CloseHistory(Arc<str>),
}

/// A run that is about to start.
#[derive(Debug)]
pub(in crate::scheduler) struct RunStart {
    /// The run's job. `None` if the leader does not have it, for example because it belongs to another version of the
    /// program.
    pub(in crate::scheduler) owner: Option<JobId>,
    pub(in crate::scheduler) job: Arc<Job>,
    /// The state that the job's last run has saved.
    pub(in crate::scheduler) state: Option<Arc<str>>,
    pub(in crate::scheduler) run: PendingRun,
    /// The payload: that of the request, or that of the job.
    pub(in crate::scheduler) payload: Option<Payload>,
    /// The time at which a decision on the job may need the end of the run. `None` if the end is needed at once.
    pub(in crate::scheduler) end_needed_at: Option<WallTime>,
}

/// The event that the leader's task for a run has ended, with the result of the task.
#[derive(Debug)]
pub(in crate::scheduler) struct RunCompletion {
    /// The run's job, as in [`RunStart::owner`].
    pub(in crate::scheduler) owner: Option<JobId>,
    pub(in crate::scheduler) key: Arc<str>,
    /// `None` if the task of the run panicked.
    pub(in crate::scheduler) end: Option<RunEnd>,
}
