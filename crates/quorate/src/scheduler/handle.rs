use crate::scheduler::{
    check::check, counts::RunCounts, error::ScheduleError, job::Job, registry::JobRegistry,
};
use std::sync::Arc;

/// Changes the jobs of a scheduler while it runs: made by
/// [`Scheduler::handle`](crate::scheduler::Scheduler::handle).
///
/// A handle can be used whether or not this worker leads. A change applies to this worker only. So make each
/// change on every worker, for example with [`SchedulerHandle::set_jobs`] from a file that all workers have.
/// Clones share the jobs.
///
/// ```
/// use quorate::{Job, Scheduler, scheduler::{ScheduleError, every}};
/// use std::time::Duration;
///
/// # fn example(scheduler: &Scheduler) -> Result<(), Box<dyn std::error::Error>> {
/// let handle = scheduler.handle();
/// let period = every(Duration::from_secs(60))?;
/// handle.add(Job::new("heartbeat", period, |_tick| async { Ok::<(), String>(()) }))?;
/// assert!(handle.remove("heartbeat"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SchedulerHandle {
    pub(super) registry: JobRegistry,
}

impl SchedulerHandle {
    /// Adds a job. If the group's ledger does not know the job yet, the job's ticks before this call are not
    /// run.
    ///
    /// # Errors
    /// [`ScheduleError`] if the job cannot be run, or if there is a job of this name. Then nothing changes.
    pub fn add(&self, job: Job) -> Result<(), ScheduleError> {
        self.registry.change(|jobs| {
            let name = Arc::clone(job.name());
            if jobs.contains_key(&name) {
                return Err(ScheduleError::DuplicateJob { name });
            }
            jobs.insert(name, Arc::new(job));
            check(jobs.values().map(|job| &**job))
        })
    }

    /// Removes a job. Returns whether there was a job of this name. No further run of the job starts, and
    /// active runs continue to their end. The leader removes the job's row and state from its ledger, so that
    /// a job of that name that is added later starts as a new one. The history is kept for
    /// [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention).
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.registry.change(|jobs| jobs.remove(name).map(drop).ok_or(()));
        removed.is_ok()
    }

    /// Replaces all jobs. A job that has not changed continues. If the schedule or the placement of a job
    /// differs, its earlier ticks are not run. A change of its other rules, or of its handler, applies from the
    /// next run on.
    ///
    /// # Errors
    /// [`ScheduleError`] if a job cannot be run. Then nothing changes.
    pub fn set_jobs(&self, jobs: Vec<Job>) -> Result<(), ScheduleError> {
        check(jobs.iter())?;
        self.registry.change(|old| {
            *old = jobs.into_iter().map(|job| (Arc::clone(job.name()), Arc::new(job))).collect();
            Ok(())
        })
    }

    /// Returns the jobs, by name.
    pub fn jobs(&self) -> Vec<Job> {
        self.registry.jobs().values().map(|job| Job::clone(job)).collect()
    }

    /// Ends the scheduler in order. No further run starts. The call waits until the active runs or the term
    /// have ended, and resigns. When the call returns,
    /// [`SchedulerRun::until`](crate::scheduler::SchedulerRun::until) has returned too, and this worker does
    /// not lead. The next leader runs the ticks that waited. A drained scheduler cannot be started again: make
    /// a new one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the draining. Call `drain` again to wait for its end.
    pub async fn drain(&self) {
        self.registry.drain();
        self.registry.unused().await;
    }

    /// Returns the number of ticks of the present jobs by outcome, since the scheduler was made. A worker
    /// counts the ticks that end while it leads.
    pub fn counts(&self) -> RunCounts {
        self.registry.snapshot_counts()
    }
}
