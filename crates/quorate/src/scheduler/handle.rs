use crate::{
    config::SettingError,
    scheduler::{
        check::{JobFault, check},
        counts::RunCounts,
        job::Job,
        registry::JobRegistry,
    },
};
use std::sync::Arc;

/// Changes the jobs of a scheduler while it runs. [`Scheduler::handle`](crate::scheduler::Scheduler::handle)
/// returns a handle.
///
/// A handle can be used whether or not this worker leads. A change applies to this worker only, so make each
/// change on every worker. For example, call [`SchedulerHandle::set_jobs`] with the jobs of a file that all
/// workers have. Clones of a handle change the same jobs.
///
/// ```
/// use quorate::{Job, Scheduler, SettingError, scheduler::Schedule};
/// use std::time::Duration;
///
/// # fn example(scheduler: &Scheduler) -> Result<(), Box<dyn std::error::Error>> {
/// let handle = scheduler.handle();
/// let period = Schedule::every(Duration::from_secs(60))?;
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
    /// [`SettingError`] if the job cannot be run, or if there is a job of this name. Then nothing changes.
    pub fn add(&self, job: Job) -> Result<(), SettingError> {
        self.registry.change(|jobs| {
            let name = Arc::clone(job.name());
            if jobs.contains_key(&name) {
                return Err(JobFault::duplicate(&name).into());
            }
            jobs.insert(name, Arc::new(job));
            Ok(check(jobs.values().map(|job| &**job))?)
        })
    }

    /// Removes a job. Returns whether there was a job of this name. No further run of the job starts, and
    /// active runs continue to their end. The leader removes the job's row and state from its ledger. If a
    /// job of the same name is added later, it starts as a new job. The history is kept for
    /// [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention).
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.registry.change(|jobs| jobs.remove(name).map(drop).ok_or(()));
        removed.is_ok()
    }

    /// Replaces all jobs. A job that has not changed continues. If the schedule or the placement of a job has
    /// changed, the ticks before this call are not run, nor a tick whose run is already open to workers: 30 s at most
    /// ahead. A change of another rule, or of the handler, applies
    /// from the next run on.
    ///
    /// # Errors
    /// [`SettingError`] if a job cannot be run. Then nothing changes.
    pub fn set_jobs(&self, jobs: Vec<Job>) -> Result<(), SettingError> {
        check(jobs.iter())?;
        self.registry.change(|old| {
            *old = jobs.into_iter().map(|job| (Arc::clone(job.name()), Arc::new(job))).collect();
            Ok(())
        })
    }

    /// Creates the measurements of these jobs. [`SchedulerHandle::set_jobs`] does this too, and takes a second for tens
    /// of thousands of new jobs. Call this before, on another thread, if the caller must not be blocked for that long.
    #[doc(hidden)]
    pub fn prepare(&self, jobs: &[Job]) {
        self.registry.counts().measures().add(jobs.iter().map(Job::name));
    }

    /// Returns the jobs, by name.
    pub fn jobs(&self) -> Vec<Job> {
        self.registry.jobs().values().map(|job| Job::clone(job)).collect()
    }

    /// Drains the scheduler: from now on no further run starts. This call waits until the active runs have
    /// ended or the term has ended, and then resigns. When it returns,
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

    /// Returns, for each present job, the number of ticks by outcome since the scheduler was made. A worker
    /// counts the ticks that end while it leads.
    #[doc(hidden)]
    pub fn counts(&self) -> RunCounts {
        self.registry.snapshot_counts()
    }
}
