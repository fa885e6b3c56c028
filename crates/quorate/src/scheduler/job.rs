//! A job, the argument of its handler, and the words for its runs: cause, outcome, request.

mod cause;
mod context;
mod definition;
mod every;
mod guard;
mod outcome;
mod payload;
mod request_id;
mod rules;

pub use cause::RunCause;
pub use context::RunContext;
pub(super) use context::{RunOutput, tail};
pub use definition::JobDefinition;
pub(super) use every::{handed_out_to, in_name, part_name, whole_and_worker, whole_of};
pub(super) use guard::RunGuard;
pub use outcome::RunOutcome;
pub use payload::Payload;
pub use request_id::RequestId;
pub use rules::JobRules;

use crate::{
    env::WallTime,
    scheduler::{
        alert::{AlertHook, JobAlert},
        policy::{Concurrency, Delivery, Jitter, Labels, Misfire, Overlap, Placement, Retry},
        schedule::Schedule,
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{fmt, sync::Arc, time::Duration};

/// A periodic job: a name, a schedule, rules, and a handler.
///
/// By default, only the leader runs the handler, and never two runs of the job at once.
#[derive(Clone)]
pub struct Job {
    pub(super) name: Arc<str>,
    pub(super) schedule: Schedule,
    /// The shortest time between two ticks of the schedule. It is computed once and stored, because the
    /// computation is slow.
    pub(super) gap: Duration,
    pub(super) rules: JobRules,
    pub(super) on_alert: Option<AlertHook>,
    pub(super) work: Work,
    /// The payload of the runs that the schedule makes.
    pub(super) payload: Option<Payload>,
    /// The time since which the ticks of a job that is stored on the nodes count. `None` for a job of this process.
    pub(super) stored: Option<WallTime>,
}

/// The function that executes a job's runs.
#[derive(Clone)]
pub(super) enum Work {
    Function(Handler),
    /// The function has this name, and this process does not have it.
    Named(Arc<str>),
    /// The function has this name.
    Found(Arc<str>, Handler),
}

pub(super) type Handler = Arc<dyn Fn(RunContext) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

impl Job {
    /// Creates a job with this name and schedule. The ledger stores the job's ticks under the name. So keep the
    /// name when you release a new version, and never use it for another job.
    pub fn new<H, F, E>(name: &str, schedule: impl Into<Schedule>, handler: H) -> Self
    where
        H: Fn(RunContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        Self::with_work(name, schedule.into(), Work::Function(to_handler(handler)))
    }

    /// Creates a job whose handler is the function that workers have registered under this name
    /// ([`Scheduler::handler`](crate::scheduler::Scheduler::handler)). Only such a job can be stored on the nodes: see
    /// [`Jobs::put`](crate::scheduler::Jobs::put). By default, any worker with the handler runs it.
    pub fn named(name: &str, schedule: impl Into<Schedule>, handler: &str) -> Self {
        Self::with_work(name, schedule.into(), Work::Named(handler.into())).placement(Placement::AnyWorker)
    }

    fn with_work(name: &str, schedule: Schedule, work: Work) -> Self {
        let gap = schedule.busiest_gap();
        Self {
            name: name.into(),
            schedule,
            gap,
            rules: JobRules::default(),
            on_alert: None,
            work,
            payload: None,
            stored: None,
        }
    }

    /// Sets the payload that each run gets ([`RunContext::payload`]). Default none.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Sets the rule for ticks that were not planned in time. The default is [`Misfire::default_for`] the
    /// job's schedule.
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.rules.misfire = Some(misfire);
        self
    }

    /// Sets whether a run is repeated if its start is recorded but its end is not, for example after a crash.
    /// Default at least once. A handler that returns an error has ended its run: the run is recorded as failed,
    /// and is not repeated.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.rules.delivery = delivery;
        self
    }

    /// Sets the rule for a tick that is due while an earlier run is active. Default [`Overlap::Queue`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.rules.overlap = overlap;
        self
    }

    /// Sets which workers may run the job's ticks. By default only the leader runs them.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.rules.placement = placement;
        self
    }

    /// Lets only workers with all of these [labels](crate::scheduler::Scheduler::labels) run the job's ticks. Each worker
    /// also has the label `worker=NAME`. If the placement is [`Placement::Leader`], sets it to
    /// [`Placement::AnyWorker`]. If no live worker has the labels, the runs wait.
    pub fn on_workers_with(mut self, labels: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.rules.labels = Labels::new(labels);
        if self.rules.placement == Placement::Leader {
            self.rules.placement = Placement::AnyWorker;
        }
        self
    }

    /// Limits the active runs of all jobs of the group that have the same key to `limit`, on all workers together. Further
    /// runs wait, those of the jobs with the highest priority first. All jobs with a key must have the same limit.
    ///
    /// `{name}` in the key stands for a field of the run's payload, if that is a JSON object: with the key
    /// `customer-{customer}`, only runs for the same customer wait for each other.
    ///
    /// The leader decides when it starts a run, or gives it to a worker: a run counts from then until its end is recorded. So
    /// a run of a job with a key is not opened ahead of its tick. The limit is as the leader knows it: if a majority of the
    /// nodes has forgotten, runs of before may still be active beside it, for at most one TTL. A tick that waits
    /// for longer than its misfire window is skipped. Default no limit.
    pub fn concurrency(mut self, key: &str, limit: usize) -> Self {
        self.rules.concurrency = Some(Concurrency { key: key.into(), limit });
        self
    }

    /// Delays the run of each tick by a pseudo-random time, uniform over `[0, max)`. Every worker computes the
    /// same delay for a tick. The handler still sees the undelayed time of the tick, but lateness counts from
    /// the delayed time. `max` must not be longer than the shortest gap between two ticks. Default none.
    pub fn jitter(mut self, max: Duration) -> Self {
        self.rules.jitter = max;
        self
    }

    /// Sets the time limit of one attempt. After this time the attempt is cancelled. If the handler does not
    /// return within the step-down grace, the handler is dropped. In both cases the attempt has failed, so
    /// [`Job::retries`] applies. Default no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.rules.timeout = Some(timeout);
        self
    }

    /// Sets how often a run that fails or times out is attempted. If a run is executed again after an
    /// interruption or a loss, its attempts are counted from 1 again. Default one attempt.
    pub fn retries(mut self, retries: Retry) -> Self {
        self.rules.retries = retries;
        self
    }

    /// Sets the priority. Among waiting ticks, the one with the highest priority starts first. Default 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.rules.priority = priority;
        self
    }

    /// Sets how many history entries are kept. The oldest entries are pruned. Between two prunings, the history
    /// may have up to twice as many entries, or 16 if that is more. Default 100.
    pub fn history(mut self, entries: usize) -> Self {
        self.rules.history = entries;
        self
    }

    /// Keeps the last `bytes` bytes of the output of a run ([`RunContext::set_output`]) in the history. Any
    /// worker and any client of the nodes can read the history, so the output should not contain secrets.
    /// Default 0, at most 4,096.
    pub fn keep_output(mut self, bytes: usize) -> Self {
        self.rules.keep_output = bytes;
        self
    }

    /// Sets the time within which the job is expected to succeed again. If it does not, it is *overdue*
    /// ([`JobStatus::overdue_since`](crate::scheduler::JobStatus::overdue_since)). The time counts from the last
    /// success, and at first from the moment at which a leader first found the job with such a time. It
    /// starts again when the job is resumed, or gets another schedule or placement. The leader stores these times in the
    /// ledger, so a change of the leader does not. A paused job is not overdue. Default none.
    pub fn expect_within(mut self, time: Duration) -> Self {
        self.rules.expect_within = Some(time);
        self
    }

    /// Pauses the job after this number of runs in a row that failed, timed out or were lost. Each run counts once,
    /// after its last [attempt](Job::retries). A success begins the count again, and so does the resumption of the job;
    /// runs of a back-fill do not count. The pause lasts until the job is resumed, it is in the audit list, and
    /// [`AlertKind::Paused`](crate::scheduler::AlertKind::Paused) reports it. Default never.
    pub fn pause_after_failures(mut self, runs: u32) -> Self {
        self.rules.pause_after_failures = Some(runs);
        self
    }

    /// Reports changes of the job's condition to a function: the first failed run after a success, the first
    /// success after that, a job that becomes overdue ([`Job::expect_within`]), and a job that the leader pauses
    /// ([`Job::pause_after_failures`]).
    ///
    /// The leader stores each alert in the ledger, then calls the function, and removes the alert when the
    /// function's future completes. So each alert is reported at least once, and usually once: if the leader
    /// ends before it has removed the alert, the next leader reports it again. The future must complete by
    /// itself. It delays no run, and it is dropped when the term ends. At most eight alerts of a job wait; a
    /// further alert replaces the oldest.
    #[doc(hidden)]
    pub fn on_alert<H, F>(mut self, hook: H) -> Self
    where
        H: Fn(JobAlert) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_alert = Some(AlertHook::new(hook));
        self
    }

    /// Returns the name, which no other job of the group has.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the schedule, which decides when the job is due.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the name of the job's handler, if it has one: see [`Job::named`].
    pub fn handler_name(&self) -> Option<&Arc<str>> {
        match &self.work {
            Work::Function(_) => None,
            Work::Named(name) | Work::Found(name, _) => Some(name),
        }
    }

    /// Returns the job as data.
    ///
    /// # Errors
    /// The reason why it cannot be stored on the nodes.
    #[doc(hidden)]
    pub fn definition(&self) -> Result<JobDefinition, String> {
        let definition = JobDefinition::of(self)?;
        definition.job()?;
        Ok(definition)
    }

    /// Returns the job's rules as one line of text, for a status page or a log.
    pub fn rules(&self) -> String {
        let JobRules { overlap, delivery, placement, .. } = self.rules;
        let misfire = self.misfire_rule();
        let mut rules = format!("{delivery}; misfire {misfire}; overlap {overlap}; on {placement}");
        if !self.rules.labels.is_empty() {
            rules += &format!(" with labels {}", self.rules.labels);
        }
        if let Some(concurrency) = &self.rules.concurrency {
            rules += &format!("; {concurrency}");
        }
        if let Some(handler) = self.handler_name() {
            rules += &format!("; handler {handler}");
        }
        if !self.rules.jitter.is_zero() {
            rules += &format!("; jitter {:?}", self.rules.jitter);
        }
        if let Some(timeout) = self.rules.timeout {
            rules += &format!("; timeout {timeout:?}");
        }
        if self.rules.retries.attempts() != 1 {
            rules += &format!("; {}", self.rules.retries);
        }
        if self.rules.priority != 0 {
            rules += &format!("; priority {}", self.rules.priority);
        }
        if let Some(time) = self.rules.expect_within {
            rules += &format!("; expected within {time:?}");
        }
        if let Some(runs) = self.rules.pause_after_failures {
            rules += &format!("; paused after {runs} failures in a row");
        }
        rules
    }

    /// Replaces all rules.
    #[doc(hidden)]
    pub fn with_rules(self, rules: JobRules) -> Self {
        Self { rules, ..self }
    }

    pub(super) fn misfire_rule(&self) -> Misfire {
        self.rules.misfire.unwrap_or_else(|| Misfire::default_for_gap(self.gap))
    }

    /// Returns the handler, if this process has it.
    pub(super) fn handler(&self) -> Option<&Handler> {
        match &self.work {
            Work::Function(handler) | Work::Found(_, handler) => Some(handler),
            Work::Named(_) => None,
        }
    }

    /// Returns the time from which the ticks of a new job count: for a job that is stored on the nodes, the time at which
    /// it was stored. Otherwise a single run whose time comes before the leader has registered its job would be lost. The
    /// part of a worker begins with its worker.
    pub(super) fn begins(&self, now: WallTime) -> WallTime {
        self.defined_at().map_or(now, |stored| stored.min(now))
    }

    /// Returns the time since which the ticks of the job count, if it has a definition of its own on the nodes.
    pub(super) fn defined_at(&self) -> Option<WallTime> {
        self.stored.filter(|_| whole_of(&self.name).is_none())
    }

    /// Returns the definition for the workers that execute a run of it, without the payload, which the run has. `None` if the
    /// job is of this process.
    pub(super) fn for_worker(&self) -> Option<Box<JobDefinition>> {
        self.stored?;
        let mut definition = JobDefinition::of(self).ok()?;
        definition.payload = None;
        Some(Box::new(definition))
    }

    /// Returns the name under which the job is counted. Single runs are counted under the name of their handler, because each
    /// has a name of its own.
    pub(super) fn series(&self) -> &Arc<str> {
        self.handler_name().filter(|_| self.is_single_run()).unwrap_or(&self.name)
    }

    /// Returns whether the job is stored on the nodes for one run, after which it is removed.
    pub(super) fn is_single_run(&self) -> bool {
        self.stored.is_some() && self.schedule.is_at()
    }

    pub(super) fn jitters(&self) -> Jitter {
        Jitter::new(&self.name, self.rules.jitter)
    }

    /// Returns whether `other` has the same name, schedule and rules. The handlers are not compared, because
    /// closures cannot be compared.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.name, &self.schedule) == (&other.name, &other.schedule)
            && self.rules == other.rules
            && (self.handler_name(), &self.payload) == (other.handler_name(), &other.payload)
    }
}

/// Returns the function of a job that calls `handler`.
pub(super) fn to_handler<H, F, E>(handler: H) -> Handler
where
    H: Fn(RunContext) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    Arc::new(move |run| handler(run).map(|result| result.map_err(|error| error.to_string())).boxed())
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .field("rules", &self.rules())
            .finish_non_exhaustive()
    }
}
