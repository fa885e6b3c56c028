use super::{Delivery, Misfire, Schedule};
use crate::{election::Term, env::WallTime, lease::LeaseLost, node::FencingToken};
use futures_util::{FutureExt, future::BoxFuture};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A periodic job. Its handler runs on the leader only, and never beside itself: a tick that falls due while
/// an earlier one of the same job runs waits; under a misfire rule other than run-all only the latest does.
#[derive(Clone)]
pub struct Job {
    pub(super) name: Arc<str>,
    pub(super) schedule: Schedule,
    pub(super) misfire: Misfire,
    pub(super) delivery: Delivery,
    pub(super) timeout: Option<Duration>,
    pub(super) handler: Handler,
}

pub(super) type Handler = Arc<dyn Fn(Tick) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

impl Job {
    /// The job called `name`, due by `schedule`. The name keys its ticks in the ledger: keep it over
    /// versions, and never use it for another job.
    pub fn new<H, F, E>(name: &str, schedule: impl Into<Schedule>, handler: H) -> Self
    where
        H: Fn(Tick) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let handler: Handler =
            Arc::new(move |tick| handler(tick).map(|done| done.map_err(|error| error.to_string())).boxed());
        let schedule = schedule.into();
        Self {
            name: name.into(),
            misfire: Misfire::default_for(&schedule),
            schedule,
            delivery: Delivery::default(),
            timeout: None,
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

    /// How long one run may take; then it is dropped, and recorded as failed. Default as long as it likes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .field("misfire", &self.misfire)
            .field("delivery", &self.delivery)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What a job's handler is given.
#[derive(Clone, Debug)]
pub struct Tick {
    pub(super) job: Arc<str>,
    pub(super) at: WallTime,
    pub(super) made_up: bool,
    pub(super) term: Term,
    pub(super) stop: CancellationToken,
    pub(super) interrupted: Arc<AtomicBool>,
}

impl Tick {
    /// The job's name.
    pub fn job(&self) -> &Arc<str> {
        &self.job
    }

    /// When the run was due.
    pub fn at(&self) -> WallTime {
        self.at
    }

    /// Whether the run makes up for a tick that was missed or interrupted.
    pub fn is_made_up(&self) -> bool {
        self.made_up
    }

    /// The term under which it runs.
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// The fencing token, if this worker still leads at this moment: pass it to the write that follows.
    ///
    /// # Errors
    /// [`LeaseLost`] once it does not.
    pub fn check(&self) -> Result<FencingToken, LeaseLost> {
        self.term.check()
    }

    /// Says that this run did not come to an end of its own, though the term may go on: whatever the handler
    /// returns is not recorded, and an at-least-once tick runs again under the next leader.
    pub fn mark_interrupted(&self) {
        self.interrupted.store(true, Ordering::Release);
    }

    /// Fires when the run should end: at step-down, shutdown or timeout. What still runs when validity ends
    /// is dropped.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
