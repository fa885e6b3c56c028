use crate::scheduler::{Job, RunCounts, ScheduleError, check::check, registry::JobRegistry};
use std::sync::Arc;

/// A scheduler's jobs, to be changed while it runs: made by [`Scheduler::handle`](super::Scheduler::handle).
///
/// It works whether or not this worker leads; what is changed here holds for this worker only, so change every copy
/// alike (with [`SchedulerHandle::set_jobs`] from a file that all have, say). Clones are the same.
#[derive(Clone, Debug)]
pub struct SchedulerHandle {
    pub(super) registry: JobRegistry,
}

impl SchedulerHandle {
    /// Adds a job. If the group's ledger does not know it, its ticks count from now on.
    ///
    /// # Errors
    /// [`ScheduleError`] where it cannot be run, or one of its name is there; then nothing changes.
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

    /// Removes a job: no more of it is started, and what runs goes on to its end. The leader's ledger forgets it, so
    /// that a job of that name which is added later begins anew; its history stays for
    /// [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention). Says whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.registry.change(|jobs| jobs.remove(name).map(drop).ok_or(()));
        removed.is_ok()
    }

    /// Has these jobs in place of those that there are. What goes on unchanged goes on; where only the rules or the
    /// handler differ, they hold from the next run on; where the schedule differs, its ticks count from now on.
    ///
    /// # Errors
    /// [`ScheduleError`] where one cannot be run; then nothing changes.
    pub fn set_jobs(&self, jobs: Vec<Job>) -> Result<(), ScheduleError> {
        check(jobs.iter())?;
        self.registry.change(|old| {
            *old = jobs.into_iter().map(|job| (Arc::clone(job.name()), Arc::new(job))).collect();
            Ok(())
        })
    }

    /// The jobs, by name.
    pub fn jobs(&self) -> Vec<Job> {
        self.registry.jobs().into_values().map(|job| (*job).clone()).collect()
    }

    /// Starts nothing more, waits for the end of what runs, or of the term, and resigns. Once it is done,
    /// [`SchedulerRun::until`](super::SchedulerRun::until) has returned, and this worker leads no more; ticks that
    /// waited are the next leader's. There is no way back: make another scheduler.
    ///
    /// # Cancel safety
    /// Dropping it does not stop the draining; call it again to wait for it.
    pub async fn drain(&self) {
        self.registry.drain();
        self.registry.left().await;
    }

    /// How ticks of the present jobs have ended on this worker since the scheduler was made, whatever the term.
    pub fn counts(&self) -> RunCounts {
        self.registry.look_at_counts()
    }
}
