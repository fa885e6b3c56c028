//! Points in time: [`BootTime`] to measure durations on one machine, and [`WallTime`] for the time of day.
//!
//! ```
//! use quorate::env::WallTime;
//! use std::time::{Duration, SystemTime};
//!
//! let due = WallTime::from(SystemTime::now()) + Duration::from_secs(60);
//! println!("due at {due}");
//! ```
//!
//! # What is not guaranteed
//!
//! A sleep may end late, because the process was paused or the machine slept. So read the clock again after a
//! sleep. [`BootTime`] counts while the machine sleeps. In a paused virtual machine, however, every clock may
//! stop; only the clock of a node on another machine shows the pause. [`WallTime`] may step in either
//! direction at any time.
//!
//! # One interface to the operating system
//!
//! The library reads clocks, starts tasks, sleeps and draws random numbers only through [`Env`]. So a
//! simulation can run the same code as production with a fixed seed, and give every worker a clock of its
//! own. `clippy.toml` forbids other ways.

mod clock;
mod scoped;
mod system;

pub use clock::{BootTime, WallTime};
#[doc(hidden)]
pub use scoped::ScopedTask;
#[doc(hidden)]
pub use system::SystemWorld;
pub(crate) use system::{host_name, is_in_pid_namespace};

use futures_util::future::BoxFuture;
use std::{fmt::Debug, sync::Arc, time::Duration};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The clocks, timers, tasks and random numbers that a worker uses. [`SystemWorld`] and simulations implement
/// it.
#[doc(hidden)]
pub trait World: Debug + Send + Sync + 'static {
    /// Reads the boot clock. It is monotonic, and counts while the machine sleeps.
    fn now(&self) -> BootTime;
    /// Reads the wall clock, which may step.
    fn wall(&self) -> WallTime;
    /// Returns 64 unpredictable bits.
    fn random(&self) -> u64;
    /// Returns 128 unpredictable bits, the high half first.
    fn random_pair(&self) -> (u64, u64) {
        (self.random(), self.random())
    }
    /// Sleeps until about `at`. It may return early or late: [`Env::sleep_until`] reads the clock again.
    ///
    /// # Cancel safety
    /// Safe: dropping the future only stops the wait.
    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()>;
    /// Returns the signal that wakes its waiters at the next change on the nodes. Returns `None` if something may
    /// have changed at `since` or later. The default is always `None`, because no process knows all changes. A
    /// simulation without network delays knows them, so that its waiters need not poll.
    fn next_change(&self, since: BootTime) -> Option<Arc<Notify>> {
        let _ = since;
        None
    }
    /// Returns `true` if a timer that elapses too early costs more than a new timer. In production it costs less. In
    /// a simulation each distinct moment has a cost. The default is `false`.
    fn prefers_exact_timers(&self) -> bool {
        false
    }
    /// Runs `work` as a task that `tasks` counts. A simulation wraps the future, so that it can pause or stop
    /// a whole worker.
    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>);
}

/// A handle to a [`World`] and to the tasks that one owner has started in it.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Env {
    world: Arc<dyn World>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Env {
    /// Creates an environment over `world`, without tasks.
    pub fn new(world: Arc<dyn World>) -> Self {
        Self { world, tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// Creates an environment over the operating system.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemWorld))
    }

    /// Creates an environment over the same world, with a task list and a stop signal of its own.
    pub fn sibling(&self) -> Self {
        Self::new(Arc::clone(&self.world))
    }

    /// Returns the world of this environment.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Reads the boot clock.
    pub fn now(&self) -> BootTime {
        self.world.now()
    }

    /// Reads the wall clock.
    pub fn wall(&self) -> WallTime {
        self.world.wall()
    }

    /// Returns 64 random bits.
    pub fn random(&self) -> u64 {
        self.world.random()
    }

    /// Returns 128 random bits, the high half first.
    pub fn random_pair(&self) -> (u64, u64) {
        self.world.random_pair()
    }

    /// Returns a random duration, evenly distributed in `[0, below)`. The result is zero if `below` is zero.
    pub fn random_below(&self, below: Duration) -> Duration {
        let nanos = u64::try_from(below.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random().checked_rem(nanos).unwrap_or(0))
    }

    /// Sleeps until the boot clock shows `at`, even if the machine sleeps meanwhile.
    ///
    /// # Cancel safety
    /// Safe: dropping the future only stops the wait.
    pub async fn sleep_until(&self, at: BootTime) {
        // This call yields to other tasks from time to time. Otherwise a loop of sleeps until times in the past
        // would never yield, and could not be cancelled.
        tokio::task::consume_budget().await;
        while self.now() < at {
            self.world.sleep_until(at).await;
        }
    }

    /// Sleeps for `time` on the boot clock.
    ///
    /// # Cancel safety
    /// Safe: dropping the future only stops the wait.
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now() + time).await;
    }

    /// Sleeps before the caller polls the nodes again. The caller began its last poll at `polled`. The sleep ends
    /// at `at`, or later if the [`World`] knows that nothing has changed since `polled`: then it ends with the
    /// next change, and at `latest` at the latest. A poll whose result changes with time alone must not be later
    /// than `latest`.
    ///
    /// # Cancel safety
    /// Safe: dropping the future only stops the wait.
    pub async fn sleep_until_poll(&self, polled: BootTime, at: BootTime, latest: BootTime) {
        self.sleep_until(at).await;
        if self.now() < latest
            && let Some(change) = self.world.next_change(polled)
        {
            self.before(latest, change.notified()).await;
        }
    }

    /// Returns the output of `work`, or `None` if the boot clock shows `at` first. If both are ready, it
    /// returns the output. A caller that must not act after `at` must therefore read the clock afterwards.
    ///
    /// # Cancel safety
    /// As safe as `work`: dropping this future drops `work`.
    pub async fn before<T>(&self, at: BootTime, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! { biased;
            done = work => Some(done),
            () = self.sleep_until(at) => None,
        }
    }

    /// Starts a task. [`Env::stopped`] asks it to end, and [`Env::finish`] waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.world.spawn(&self.tasks, Box::pin(work));
    }

    /// Starts a task that ends when its handle is dropped. The handle returns the task's output or its panic.
    pub fn spawn_scoped<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> ScopedTask<T> {
        ScopedTask::start(self, work)
    }

    /// Returns the token that asks the tasks of this environment to end.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns the number of tasks of this environment that have not ended.
    pub fn tasks_alive(&self) -> usize {
        self.tasks.len()
    }

    /// Asks every task to end, and waits until all have ended. May be called more than once.
    ///
    /// # Cancel safety
    /// If the future is dropped, the tasks are still asked to end. Call this function again to wait for them.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
