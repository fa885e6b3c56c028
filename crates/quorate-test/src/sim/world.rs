use super::{Changes, Host, SeedRng};
use futures_util::future::BoxFuture;
use quorate::env::{BootTime, WallTime, World};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// The longest duration of a single timer. For a longer wait, `Env` sets the next timer when this one has
/// fired.
const LONGEST_NAP: Duration = Duration::from_secs(3600);

/// The clocks, timers and random numbers of a worker's simulated machine, which replace those of the operating
/// system.
#[derive(Debug)]
pub struct SimWorld {
    host: Arc<Host>,
    rng: Mutex<SeedRng>,
    oversleep: Duration,
    changes: Option<Arc<Changes>>,
}

impl SimWorld {
    /// Creates the world of the process `host`, with the clocks of its machine and random numbers of its own.
    pub fn new(host: Arc<Host>, rng: SeedRng) -> Self {
        Self { host, rng: Mutex::new(rng), oversleep: Duration::ZERO, changes: None }
    }

    /// Makes the timers fire late by this time. A test uses this to show that the invariants detect late
    /// timers.
    pub fn oversleeping(mut self, by: Duration) -> Self {
        self.oversleep = by;
        self
    }

    /// Lets waiters sleep until the next change instead of polling. `changes` must know of every change that a
    /// poll could find.
    pub fn knowing(mut self, changes: Arc<Changes>) -> Self {
        self.changes = Some(changes);
        self
    }
}

impl World for SimWorld {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.host.machine().boot())
    }

    fn wall(&self) -> WallTime {
        WallTime::from_micros(self.host.machine().wall() / 1_000)
    }

    fn random(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).bits()
    }

    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(self.host.machine()).timer(at.as_nanos(), LONGEST_NAP, self.oversleep))
    }

    fn next_change(&self, since: BootTime) -> Option<Arc<Notify>> {
        let changes = self.changes.as_ref()?;
        let unchanged = changes.age() > since.until(self.now());
        unchanged.then(|| Arc::clone(changes.next()))
    }

    fn prefers_exact_timers(&self) -> bool {
        self.changes.is_some()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the simulated door")]
    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        tokio::spawn(tasks.track_future(self.host.gate(work)));
    }
}
