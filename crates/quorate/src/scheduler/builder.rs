use crate::{
    config::SettingError,
    election::{Campaign, Election, ElectionError, Term},
    env::ScopedTask,
    lease::Heartbeat,
    ledger::Ledger,
    quorum::Quorum,
    scheduler::{
        alert::{AlertHook, JobAlert},
        check::{JobFault, check, check_labels},
        control::serve_inbox,
        handle::SchedulerHandle,
        job::{Job, RunContext, to_handler},
        leader::{self, Leading},
        plan::planner::Planner,
        policy::Labels,
        registry::{Handlers, JobRegistry, Phase},
        run::{assignment::WorkerParts, worker::take_runs},
        store::retention::Retention,
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The largest number of requests from [`Jobs`](crate::scheduler::Jobs) that wait for the leader's event loop.
const PENDING_REQUESTS_MAX: usize = 64;

/// Plans and runs the periodic jobs of a group. The leader plans all runs. By default, the leader also executes
/// the runs. With [`Placement::AnyWorker`](crate::scheduler::Placement::AnyWorker), any worker of the group may
/// take a run and execute it.
///
/// A scheduler and an [`Election`] of the same group compete for the same leadership. On one quorum only one of them
/// runs; the second fails with [`ElectionError::AlreadyRunning`]. If the leader also has other work to do, use one
/// election for both: pass it to [`Scheduler::on`], and call [`Scheduler::lead`] from
/// the work of that election.
#[derive(Clone, Debug)]
pub struct Scheduler {
    election: Election,
    jobs: Vec<Job>,
    handlers: Handlers,
    max_running: Option<usize>,
    labels: Labels,
    /// The registry of the jobs. It is created from `jobs` when the scheduler is first used.
    registry: Arc<OnceLock<JobRegistry>>,
}

impl Scheduler {
    /// Creates a scheduler of `group`, with an election of its own.
    pub fn new(quorum: &Quorum, group: &str) -> Self {
        Self::on(&Election::new(quorum, group))
    }

    /// Creates a scheduler that plans and runs jobs as leader while this worker leads in `election`.
    pub fn on(election: &Election) -> Self {
        Self {
            election: election.clone(),
            jobs: Vec::new(),
            handlers: Handlers::default(),
            max_running: None,
            labels: Labels::default(),
            registry: Arc::default(),
        }
    }

    /// Sets the TTL of the leader's lease: see [`Election::ttl`]. If the leader crashes, no other worker can
    /// lead for at most this time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.election = self.election.ttl(ttl);
        self
    }

    /// Sets the time within which runs must end after a step-down or a cancellation: see
    /// [`Election::step_down_grace`].
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.election = self.election.step_down_grace(grace);
        self
    }

    /// Leads only while `heartbeat` beats: see [`Election::renew_while_beating`]. Call [`Heartbeat::beat`] in
    /// the task that polls [`SchedulerRun::until`], each time that this task is polled. If a handler blocks
    /// that task, the beats stop, and the term ends:
    ///
    /// ```
    /// # use quorate::{election::ElectionError, lease::Heartbeat, quorum::Quorum};
    /// # use quorate::{Scheduler, SettingError};
    /// # use std::{pin::pin, time::Duration};
    /// # async fn example(quorum: &Quorum) -> Result<(), ElectionError<SettingError>> {
    /// let ttl = Duration::from_secs(10);
    /// // At most a third of the TTL, the time between two extensions.
    /// let heartbeat = quorum.heartbeat(ttl / 3);
    /// let scheduler = Scheduler::new(quorum, "billing").ttl(ttl).renew_while_beating(&heartbeat);
    /// let mut run = pin!(scheduler.run().into_future());
    /// loop {
    ///     heartbeat.beat();
    ///     tokio::select! {
    ///         ended = &mut run => return ended,
    ///         () = quorum.env().sleep(ttl / 12) => {}
    ///     }
    /// }
    /// # }
    /// ```
    #[doc(hidden)]
    pub fn renew_while_beating(mut self, heartbeat: &Heartbeat) -> Self {
        self.election = self.election.renew_while_beating(heartbeat);
        self
    }

    /// Adds a job.
    pub fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self.registry = Arc::default();
        self
    }

    /// Sets the labels of this worker. A job may require labels of its worker: see
    /// [`Job::on_workers_with`](crate::scheduler::Job::on_workers_with). Default none.
    pub fn labels(mut self, labels: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.labels = Labels::new(labels);
        self
    }

    /// Registers the function that executes the runs of the jobs on the nodes which name it: see [`Jobs::put`](crate::scheduler::Jobs::put).
    /// A later function of the same name replaces the earlier one.
    ///
    /// ```
    /// use quorate::{Quorum, Scheduler, scheduler::RunContext};
    ///
    /// # fn example(quorum: &Quorum) -> Scheduler {
    /// Scheduler::new(quorum, "billing").handler("send-mail", |run: RunContext| async move {
    ///     println!("{} bytes", run.payload().len());
    ///     Ok::<(), String>(())
    /// })
    /// # }
    /// ```
    pub fn handler<H, F, E>(mut self, name: &str, handler: H) -> Self
    where
        H: Fn(RunContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send + 'static,
    {
        self.handlers.functions.insert(name.into(), to_handler(handler));
        self.registry = Arc::default();
        self
    }

    /// Reports the alerts of the jobs on the nodes to a function: see [`Job::on_alert`].
    #[doc(hidden)]
    pub fn on_stored_alert<H, F>(mut self, hook: H) -> Self
    where
        H: Fn(JobAlert) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.handlers.on_alert = Some(AlertHook::new(hook));
        self.registry = Arc::default();
        self
    }

    /// Sets how many runs of all jobs this worker executes at once. It is a limit of one worker, not of the group. It
    /// applies separately to the runs that the worker executes as the leader, and to the open runs
    /// ([`Placement::AnyWorker`](crate::scheduler::Placement::AnyWorker)) that it takes, so that the leader may execute
    /// twice as many. Further runs wait, in order of
    /// priority and then of time. A tick that waits for longer than its misfire window is skipped. Default no
    /// limit.
    pub fn max_running(mut self, limit: usize) -> Self {
        self.max_running = Some(limit);
        self
    }

    /// Checks whether these jobs can be run together. A scheduler makes the same check before its first
    /// campaign.
    ///
    /// # Errors
    ///
    /// The first job that cannot be run, and the reason.
    pub fn check_jobs<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Result<(), (Arc<str>, SettingError)> {
        check(jobs.into_iter()).map_err(|JobFault { job, error }| (job, error))
    }

    /// Checks the labels of a worker, as a scheduler does before its first campaign.
    ///
    /// # Errors
    /// [`SettingError`] for a label that cannot be used.
    #[doc(hidden)]
    pub fn check_labels(labels: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), SettingError> {
        check_labels(&Labels::new(labels))
    }

    /// Returns the election under whose leadership the jobs run.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// Returns the jobs that were given to the builder. [`SchedulerHandle::jobs`] returns the present jobs.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns a handle that changes the jobs while they run. Add all jobs first: [`Scheduler::job`] does not
    /// affect a handle that was made before.
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle { registry: self.registry().clone() }
    }

    /// Returns a [`SchedulerRun`]. When it is awaited, it campaigns, and runs the jobs while this worker leads.
    /// Await it directly, or use [`SchedulerRun::until`].
    pub fn run(&self) -> SchedulerRun {
        SchedulerRun { scheduler: self.clone() }
    }

    /// Runs the jobs under a term that the caller holds. Returns once the term has stepped down or the
    /// scheduler is drained, and every run has ended.
    ///
    /// # Errors
    /// [`SettingError`] for names and rules that cannot be used. A failure of a job or a node, or the loss of
    /// the term, is not an error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the active runs. The ledger then has the starts of these runs, but not their
    /// ends. The next leader decides whether they run again.
    pub async fn lead(&self, term: Term) -> Result<(), SettingError> {
        self.lead_term(term).await.map(drop)
    }

    /// Does the same, and returns what is left of the term, which takes a while to drop if the jobs are very many.
    async fn lead_term(&self, term: Term) -> Result<Option<Planner>, SettingError> {
        let ledger = self.check()?;
        let _in_use = self.registry().enter();
        let (sender, requests) = mpsc::channel(PENDING_REQUESTS_MAX);
        // Each of the two guards owns a task: `_inbox` receives requests, and `_vouching` refreshes the
        // retention of the jobs' data. Both tasks end when this future returns or is dropped.
        let _inbox = term.spawn_scoped(serve_inbox(ledger.clone(), term.clone(), sender));
        let _vouching = term.spawn_scoped(Retention::new(&ledger).vouch(self.registry().clone()));
        let leading = Leading {
            registry: self.registry().clone(),
            ledger,
            term,
            ttl: self.election.lease_ttl(),
            max_running: self.max_running.unwrap_or(usize::MAX),
            grace: self.election.grace(),
        };
        Ok(leader::lead(leading, requests).await)
    }

    /// Starts the task that takes and executes open runs. The task takes no more runs once `stop` is cancelled
    /// or the scheduler is drained, and ends when the runs that it executes have ended.
    fn take(&self, stop: CancellationToken) -> Result<ScopedTask<()>, SettingError> {
        let (quorum, group) = (self.election.quorum(), self.election.group());
        let taking = WorkerParts {
            registry: self.registry().clone(),
            quorum: quorum.clone(),
            ledger: Ledger::new(quorum, group)?,
            group: Arc::clone(group),
            labels: self.labels.clone(),
            max_running: self.max_running.unwrap_or(usize::MAX),
            ttl: self.election.lease_ttl(),
            grace: self.election.grace(),
        };
        Ok(quorum.env().spawn_scoped(take_runs(taking, stop)))
    }

    fn registry(&self) -> &JobRegistry {
        let nodes = || self.election.quorum().nodes().into_iter().map(|node| node.name);
        let new = || {
            JobRegistry::new(
                self.election.group(),
                &nodes().collect::<Vec<_>>(),
                &self.jobs,
                self.handlers.clone(),
            )
        };
        self.registry.get_or_init(new)
    }

    fn check(&self) -> Result<Ledger, SettingError> {
        if self.max_running == Some(0) {
            let (reason, fix) = ("so no run could begin", "use at least 1, or no limit");
            return Err(SettingError::new("max_running", "0", reason, fix));
        }
        check_labels(&self.labels)?;
        check(self.jobs.iter())?;
        Ledger::new(self.election.quorum(), self.election.group())
    }
}

/// A scheduler that is ready to run, made by [`Scheduler::run`].
///
/// Await it directly to run until the scheduler is [drained](SchedulerHandle::drain), or use
/// [`SchedulerRun::until`] to stop at a shutdown:
///
/// ```
/// # use quorate::{ElectionError, Scheduler, SettingError};
/// # async fn example(scheduler: Scheduler) -> Result<(), ElectionError<SettingError>> {
/// let shutdown = async { Ok::<(), std::io::Error>(()) }; // such as quorate::shutdown_signal()
/// scheduler.run().until(shutdown).await?;
/// scheduler.run().await?; // without a shutdown of its own
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a scheduler does nothing until it is awaited"]
pub struct SchedulerRun {
    scheduler: Scheduler,
}

/// Runs until the scheduler is [drained](SchedulerHandle::drain), or until an error. To stop at a shutdown too,
/// use [`SchedulerRun::until`].
impl IntoFuture for SchedulerRun {
    type Output = Result<(), ElectionError<SettingError>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.until(std::future::pending::<()>()).boxed()
    }
}

impl SchedulerRun {
    /// Campaigns, runs the jobs while this worker leads, and campaigns again when its term has ended. Returns
    /// when `shutdown` has completed or the scheduler is [drained](SchedulerHandle::drain). The output of
    /// `shutdown` may have any type, such as that of [`shutdown_signal`](crate::shutdown_signal()).
    ///
    /// # Errors
    /// [`ElectionError`]. [`ElectionError::Work`] contains a [`SettingError`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the active runs, then releases the lease.
    pub async fn until<S>(self, shutdown: S) -> Result<(), ElectionError<SettingError>>
    where
        S: Future + Send,
    {
        // The names are checked before the first campaign. Otherwise an operator would see an invalid name only
        // when this worker leads.
        self.scheduler.check().map_err(ElectionError::Work)?;
        let scheduler = self.scheduler.clone();
        let registry = scheduler.registry().clone();
        let _in_use = registry.enter();
        let (quorum, group) = (scheduler.election.quorum().clone(), Arc::clone(scheduler.election.group()));
        // The lease is released before what is left of a term is dropped: the next leader waits for the lease.
        let (left, mut dropped) = mpsc::unbounded_channel();
        let _dropping = quorum.env().spawn_scoped(async move { while dropped.recv().await.is_some() {} });
        let campaign: Campaign<_> = self.scheduler.election.run(move |term: Term| {
            let (scheduler, left) = (scheduler.clone(), left.clone());
            async move { scheduler.lead_term(term).await.map(|planner| drop(left.send(planner))) }
        });
        // A worker that does not lead also takes open runs, and refreshes the retention of its jobs' data.
        let stop = CancellationToken::new();
        let ledger = Ledger::new(&quorum, &group).map_err(ElectionError::Work)?;
        let retention = Retention::new(&ledger);
        let _vouching = quorum.env().spawn_scoped(retention.vouch(registry.clone()));
        let taking = self.scheduler.take(stop.clone()).map_err(ElectionError::Work)?;
        let end = async {
            tokio::select! { biased;
                _ = shutdown => stop.cancel(),
                () = registry.reached(Phase::Drained) => {}
            }
        };
        let ended = campaign.until(end).await;
        if ended.is_err() {
            stop.cancel();
        }
        // If the quorum was closed, the task was stopped and has not panicked.
        if let Err(panic) = taking.await
            && !quorum.env().stopped().is_cancelled()
        {
            std::panic::resume_unwind(panic);
        }
        ended
    }
}
