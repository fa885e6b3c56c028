use crate::scheduler::{
    Delivery, Misfire, Overlap, Placement, Retry, Schedule, policy::Jitter, run::RunContext,
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{fmt, sync::Arc, time::Duration};

/// How many entries of a job's history are kept unless it is told otherwise.
const HISTORY: usize = 100;

/// A periodic job: when it is due, by which rules, and what runs then.
///
/// Unless it is told otherwise its handler runs on the leader only, and never beside itself.
#[derive(Clone)]
pub struct Job {
    pub(super) name: Arc<str>,
    pub(super) schedule: Schedule,
    /// The shortest time between two ticks; found once, for it is costly.
    pub(super) gap: Duration,
    pub(super) misfire: Misfire,
    pub(super) delivery: Delivery,
    pub(super) overlap: Overlap,
    pub(super) placement: Placement,
    pub(super) jitter: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: Retry,
    pub(super) priority: i32,
    pub(super) history: usize,
    pub(super) keep_output: usize,
    pub(super) handler: Handler,
}

pub(super) type Handler = Arc<dyn Fn(RunContext) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

impl Job {
    /// The job called `name`, due by `schedule`. The name keys its ticks in the ledger: keep it over
    /// versions, and never use it for another job.
    pub fn new<H, F, E>(name: &str, schedule: impl Into<Schedule>, handler: H) -> Self
    where
        H: Fn(RunContext) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let handler: Handler =
            Arc::new(move |tick| handler(tick).map(|done| done.map_err(|error| error.to_string())).boxed());
        let schedule = schedule.into();
        let gap = schedule.busiest_gap();
        Self {
            name: name.into(),
            misfire: Misfire::default_for_gap(gap),
            schedule,
            gap,
            delivery: Delivery::default(),
            overlap: Overlap::default(),
            placement: Placement::default(),
            jitter: Duration::ZERO,
            timeout: None,
            retries: Retry::NONE,
            priority: 0,
            history: HISTORY,
            keep_output: 0,
            handler,
        }
    }

    /// What happens to ticks that nobody ran in time. Default [`Misfire::default_for`] the schedule.
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = misfire;
        self
    }

    /// Whether a tick that was started and never recorded as ended runs again. Default at least once. A
    /// handler that returns an error has ended: the tick is recorded as failed, and does not run again.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// What happens where a tick comes due while an earlier run goes on. Default [`Overlap::Queue`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Where its ticks run. Default on the leader.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The run of a tick starts a delay after it that is even over `[0, max)`, and the same on every replica for
    /// one tick. The tick's time stays what it is; what is late is counted from the delayed time. No longer
    /// than the shortest gap between two ticks. Default none.
    pub fn jitter(mut self, max: Duration) -> Self {
        self.jitter = max;
        self
    }

    /// How long one attempt may take; then it is told to stop, dropped after the step-down grace, and has failed.
    /// Default as long as it likes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often a run that fails or times out is tried, within the run and the term. Default once.
    pub fn retries(mut self, retries: Retry) -> Self {
        self.retries = retries;
        self
    }

    /// Among ticks that wait to be run, the one of the highest priority starts first. Default 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// How many entries of its history are kept: the newest, and for a while some more. Default 100.
    pub fn history(mut self, entries: usize) -> Self {
        self.history = entries;
        self
    }

    /// Keeps the last so many bytes of what [`RunContext::set_output`] was given in the history, where any worker can
    /// read it, and anybody who reads the nodes: it may hold secrets. Default 0, at most 4,096.
    pub fn keep_output(mut self, bytes: usize) -> Self {
        self.keep_output = bytes;
        self
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// When it is due.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Its rules, for people.
    pub fn rules(&self) -> String {
        let Self { misfire, overlap, delivery, placement, .. } = self;
        let mut rules = format!("{delivery}; misfire {misfire}; overlap {overlap}; on {placement}");
        if !self.jitter.is_zero() {
            rules += &format!("; jitter {:?}", self.jitter);
        }
        if let Some(timeout) = self.timeout {
            rules += &format!("; timeout {timeout:?}");
        }
        if self.retries.attempts() != 1 {
            rules += &format!("; {}", self.retries);
        }
        if self.priority != 0 {
            rules += &format!("; priority {}", self.priority);
        }
        rules
    }

    pub(super) fn jitters(&self) -> Jitter {
        Jitter::new(&self.name, self.jitter)
    }

    /// Whether another is due at the same times by the same rules; what it runs is not compared.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { name, schedule, misfire, delivery, overlap, placement, jitter, timeout, .. } = self;
        *name == other.name
            && *schedule == other.schedule
            && (*misfire, *delivery, *overlap) == (other.misfire, other.delivery, other.overlap)
            && (*placement, *jitter, *timeout) == (other.placement, other.jitter, other.timeout)
            && (self.retries, self.priority) == (other.retries, other.priority)
            && (self.history, self.keep_output) == (other.history, other.keep_output)
    }
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
