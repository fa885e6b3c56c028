use crate::scheduler::{
    Job, SchedulerHandle,
    check::{TICKS_MAX, check},
    control,
    leader::{self, Leading},
    registry::{JobRegistry, Phase},
    run::worker::{Taking, take_runs},
    store::retention::Retention,
};
use crate::{
    config::SettingError,
    election::{Campaign, Election, ElectionError, Term},
    env::ScopedTask,
    lease::Heartbeat,
    ledger::Ledger,
    quorum::Quorum,
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How many requests wait for the leader's turn.
const ASKED: usize = 64;

/// Runs periodic jobs on whichever copy leads.
///
/// An election and a scheduler of one group are one leadership, not two that contend: to lead and to run
/// jobs, give [`Scheduler::on`] the election, and call [`Scheduler::lead`] from its work.
#[derive(Clone, Debug)]
pub struct Scheduler {
    election: Election,
    jobs: Vec<Job>,
    max_running: Option<usize>,
    /// Made from the jobs when they are first used.
    registry: Arc<OnceLock<JobRegistry>>,
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
    /// One of a job's rules cannot be kept.
    #[error("the job {name:?} has a {field} of {value}; {fix}")]
    Rule {
        /// The job.
        name: Arc<str>,
        /// Which of its rules.
        field: &'static str,
        /// What it says.
        value: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// No job could ever run.
    #[error("the limit of runs at once is 0; use at least 1, or none")]
    NoneAtOnce,
    /// The group's name cannot be used.
    #[error(transparent)]
    Group(#[from] SettingError),
}

impl Scheduler {
    /// A scheduler of `group`, with an election of its own.
    pub fn new(quorum: &Quorum, group: &str) -> Self {
        Self::on(&Election::new(quorum, group))
    }

    /// A scheduler on an election's leadership.
    pub fn on(election: &Election) -> Self {
        Self { election: election.clone(), jobs: Vec::new(), max_running: None, registry: Arc::default() }
    }

    /// How long a crashed leader blocks the others, at most: [`Election::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.election = self.election.ttl(ttl);
        self
    }

    /// How long running jobs have to end once they are told to: [`Election::step_down_grace`]. A run that is
    /// cancelled has as long.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.election = self.election.step_down_grace(grace);
        self
    }

    /// Leads only while `heart` beats: [`Election::renew_while_beating`]. Beat from the task that polls
    /// [`SchedulerRun::until`], at each of its turns, so that whatever blocks the scheduler ends its term:
    ///
    /// ```
    /// # use quorate::{election::ElectionError, lease::Heartbeat, quorum::Quorum};
    /// # use quorate::scheduler::{ScheduleError, Scheduler};
    /// # use std::{future::pending, pin::pin, time::Duration};
    /// # async fn example(quorum: &Quorum) -> Result<(), ElectionError<ScheduleError>> {
    /// let ttl = Duration::from_secs(10);
    /// // At most a third of the TTL: as long as between two extensions.
    /// let heart = quorum.heartbeat(ttl / 3);
    /// let scheduler = Scheduler::new(quorum, "billing").ttl(ttl).renew_while_beating(&heart);
    /// let mut run = pin!(scheduler.run().until(pending::<()>()));
    /// loop {
    ///     heart.beat();
    ///     tokio::select! {
    ///         ended = &mut run => return ended,
    ///         () = quorum.env().sleep(ttl / 12) => {}
    ///     }
    /// }
    /// # }
    /// ```
    pub fn renew_while_beating(mut self, heart: &Heartbeat) -> Self {
        self.election = self.election.renew_while_beating(heart);
        self
    }

    /// Adds a job.
    pub fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self.registry = Arc::default();
        self
    }

    /// How many runs of all jobs go on at once. What is due beyond that waits, in order of priority and then of
    /// time; what waits for longer than its misfire window is misfired. Default no limit.
    pub fn max_running(mut self, limit: usize) -> Self {
        self.max_running = Some(limit);
        self
    }

    /// Whether these jobs can be run beside each other: what a scheduler of them would say before its first campaign.
    ///
    /// # Errors
    /// [`ScheduleError`], of the first that cannot be run.
    pub fn check_jobs<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Result<(), ScheduleError> {
        check(jobs.into_iter())
    }

    /// The election on whose leadership the jobs run.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The jobs that were given to the builder; [`SchedulerHandle::jobs`] are those that there are now.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The jobs to be changed while they run. Take it once the builder has them all.
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle { registry: self.registry().clone() }
    }

    /// Campaigns, and runs the jobs while it leads. Nothing happens until [`SchedulerRun::until`].
    pub fn run(&self) -> SchedulerRun {
        SchedulerRun { scheduler: self.clone() }
    }

    /// Runs the jobs under a term that the caller holds, until it is told to step down, or drained, and every
    /// running job has ended.
    ///
    /// # Errors
    /// [`ScheduleError`] for names and rules that cannot be used. Nothing that happens to a job, a node or the term
    /// is an error.
    ///
    /// # Cancel safety
    /// Dropping it drops the running jobs; their ticks stand as started and not done.
    pub async fn lead(&self, term: Term) -> Result<(), ScheduleError> {
        let ledger = self.check()?;
        let _user = self.registry().enter();
        let (asks, asked) = mpsc::channel(ASKED);
        // Ends with this future.
        let _inbox = term.spawn_scoped(control::tend(ledger.clone(), term.clone(), asks));
        let _vouching = term.spawn_scoped(Retention::new(&ledger).vouch(self.registry().clone()));
        let leading = Leading {
            registry: self.registry().clone(),
            ledger,
            term,
            ttl: self.election.lease_ttl(),
            max_running: self.max_running.unwrap_or(usize::MAX),
            grace: self.election.grace(),
        };
        leader::lead(leading, asked).await;
        Ok(())
    }

    /// Takes and executes runs that are open to workers, until it is told to stop or drained, and what it ran has ended.
    fn take(&self, stop: CancellationToken) -> Result<ScopedTask<()>, ScheduleError> {
        let (quorum, group) = (self.election.quorum(), self.election.group());
        let taking = Taking {
            registry: self.registry().clone(),
            quorum: quorum.clone(),
            ledger: Ledger::new(quorum, group)?,
            group: Arc::clone(group),
            max_running: self.max_running.unwrap_or(usize::MAX),
            ttl: self.election.lease_ttl(),
            grace: self.election.grace(),
        };
        Ok(quorum.env().spawn_scoped(take_runs(taking, stop)))
    }

    fn registry(&self) -> &JobRegistry {
        self.registry.get_or_init(|| JobRegistry::new(&self.jobs))
    }

    fn check(&self) -> Result<Ledger, ScheduleError> {
        if self.max_running == Some(0) {
            return Err(ScheduleError::NoneAtOnce);
        }
        check(self.jobs.iter())?;
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
    /// Campaigns, runs the jobs while it leads, and campaigns again, until `shutdown` is ready or the scheduler is
    /// [drained](SchedulerHandle::drain).
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
        let registry = scheduler.registry().clone();
        let _user = registry.enter();
        let (quorum, group) = (scheduler.election.quorum().clone(), Arc::clone(scheduler.election.group()));
        let campaign: Campaign<_> = self.scheduler.election.run(move |term: Term| {
            let scheduler = scheduler.clone();
            async move { scheduler.lead(term).await }
        });
        // Whether this worker leads or not.
        let stop = CancellationToken::new();
        let ledger = Ledger::new(&quorum, &group).map_err(|error| ElectionError::Work(error.into()))?;
        let retention = Retention::new(&ledger);
        let _vouching = quorum.env().spawn_scoped(retention.vouch(registry.clone()));
        let taking = self.scheduler.take(stop.clone()).map_err(ElectionError::Work)?;
        let end = async {
            tokio::select! { biased;
                () = shutdown => stop.cancel(),
                () = registry.reached(Phase::Drained) => {}
            }
        };
        let ended = campaign.until(end).await;
        if ended.is_err() {
            stop.cancel();
        }
        if let Err(panic) = taking.await {
            std::panic::resume_unwind(panic);
        }
        ended
    }
}
