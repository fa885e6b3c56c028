use super::{
    Job,
    leader::{self, ticks_kept},
};
use crate::{
    election::{Campaign, Election, ElectionError, Term},
    lease::Quorum,
    ledger::Ledger,
    node::NameError,
};
use std::{sync::Arc, time::Duration};

/// Ticks that a group's ledger keeps at most: it travels whole when a leader seals it.
const TICKS_MAX: u128 = 10_000;

/// Runs periodic jobs on whichever copy leads.
///
/// An election and a scheduler of one group are one leadership, not two that contend: to lead and to run
/// jobs, give [`Scheduler::on`] the election, and call [`Scheduler::lead`] from its work.
#[derive(Clone, Debug)]
pub struct Scheduler {
    election: Election,
    jobs: Vec<Job>,
}

/// Why jobs cannot be run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Two jobs have one name, which keys their ticks.
    #[error("two jobs are called {name:?}; a job's name keys its ticks: give each its own")]
    DuplicateJob {
        /// The name.
        name: Arc<str>,
    },
    /// A job's name cannot be used.
    #[error("a job is called {name:?}; give it 1 to 128 bytes without slashes or control characters")]
    JobName {
        /// The name.
        name: Arc<str>,
    },
    /// The ledger would have to remember too many ticks.
    #[error(
        "the job {name:?} has a misfire window of {window:?}, in which it is due so often that the ledger would keep \
         more than {TICKS_MAX} ticks of all jobs together; shorten the windows or lengthen the periods"
    )]
    TooManyTicks {
        /// The job at which the limit was passed.
        name: Arc<str>,
        /// Its window.
        window: Duration,
    },
    /// The group's name cannot be used.
    #[error(transparent)]
    Group(#[from] NameError),
}

impl Scheduler {
    /// A scheduler of `group`, with an election of its own.
    pub fn new(quorum: &Quorum, group: &str) -> Self {
        Self::on(&Election::new(quorum, group))
    }

    /// A scheduler on an election's leadership.
    pub fn on(election: &Election) -> Self {
        Self { election: election.clone(), jobs: Vec::new() }
    }

    /// How long a crashed leader blocks the others, at most: [`Election::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.election = self.election.ttl(ttl);
        self
    }

    /// How long running jobs have to end once they are told to: [`Election::step_down_grace`].
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.election = self.election.step_down_grace(grace);
        self
    }

    /// Adds a job.
    pub fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    /// The election on whose leadership the jobs run.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The jobs.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Campaigns, and runs the jobs while it leads. Nothing happens until [`SchedulerRun::until`].
    pub fn run(&self) -> SchedulerRun {
        SchedulerRun { scheduler: self.clone() }
    }

    /// Runs the jobs under a term that the caller holds, until it is told to step down and every running job
    /// has ended.
    ///
    /// # Errors
    /// [`ScheduleError`] for names that cannot be used. Nothing that happens to a job, a node or the term is
    /// an error.
    ///
    /// # Cancel safety
    /// Dropping it drops the running jobs; their ticks stand as started and not done.
    pub async fn lead(&self, term: Term) -> Result<(), ScheduleError> {
        let ledger = self.check()?;
        leader::lead(&self.jobs, &ledger, &term).await;
        Ok(())
    }

    fn check(&self) -> Result<Ledger, ScheduleError> {
        let mut names = std::collections::BTreeSet::new();
        let mut kept = 0;
        for job in &self.jobs {
            let name = Arc::clone(job.name());
            if name.is_empty() || name.len() > 128 || name.contains('/') || name.chars().any(char::is_control)
            {
                return Err(ScheduleError::JobName { name });
            }
            kept += ticks_kept(job);
            if kept > TICKS_MAX {
                return Err(ScheduleError::TooManyTicks { name, window: job.misfire.within() });
            }
            if !names.insert(Arc::clone(&name)) {
                return Err(ScheduleError::DuplicateJob { name });
            }
        }
        Ok(Ledger::new(self.election.quorum(), self.election.group())?)
    }
}

/// A scheduler about to run: made by [`Scheduler::run`].
#[derive(Debug)]
#[must_use = "a scheduler does nothing until it is told until when to run"]
pub struct SchedulerRun {
    scheduler: Scheduler,
}

impl SchedulerRun {
    /// Campaigns, runs the jobs while it leads, and campaigns again, until `shutdown` is ready.
    ///
    /// # Errors
    /// [`ElectionError`]; the work's error is a [`ScheduleError`].
    ///
    /// # Cancel safety
    /// Dropping it drops the running jobs, then releases the lease.
    pub async fn until(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ElectionError<ScheduleError>> {
        // Bad names are told before the first campaign, not at the first term.
        self.scheduler.check().map_err(ElectionError::Work)?;
        let scheduler = self.scheduler.clone();
        let campaign: Campaign<_> = self.scheduler.election.run(move |term: Term| {
            let scheduler = scheduler.clone();
            async move { scheduler.lead(term).await }
        });
        campaign.until(shutdown).await
    }
}
