//! Clocks, timers, tasks and randomness: the only door to the world.
//!
//! # What is not guaranteed
//!
//! A sleep may end late (the process was paused, the machine slept), so whoever wakes looks at the clock
//! again. [`BootTime`] counts while the machine sleeps, but a paused virtual machine may stop every clock it
//! has: only a node's time can tell. [`WallTime`] may step either way at any moment.
//!
//! # Why a door
//!
//! The shipped code runs unmodified in a seeded simulation in which every worker has a clock of its own.
//! That only works while nothing reads a clock, starts a task, sleeps or draws a random number except
//! through [`Env`]; `clippy.toml` keeps it so.

mod clock;
mod scoped;
mod system;

pub use clock::{BootTime, WallTime};
pub use scoped::ScopedTask;
pub use system::SystemWorld;
pub(crate) use system::host_name;

use futures_util::future::BoxFuture;
use std::{fmt::Debug, sync::Arc, time::Duration};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What a worker takes from the world. Implemented by [`SystemWorld`] and by simulations.
pub trait World: Debug + Send + Sync + 'static {
    /// The boot clock: monotonic, and counting while the machine sleeps.
    fn now(&self) -> BootTime;
    /// The wall clock, which may step.
    fn wall(&self) -> WallTime;
    /// 64 bits nobody can guess.
    fn random(&self) -> u64;
    /// Sleeps until about `at`. May return early or late: [`Env::sleep_until`] looks again.
    ///
    /// # Cancel safety
    /// Safe: dropping it only stops waiting.
    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()>;
    /// Runs `work` as a task counted by `tasks`. A simulation wraps the future, so that a worker can be
    /// paused or cut off whole.
    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>);
}

/// A handle on the world and on the tasks that one owner has started in it.
#[derive(Clone, Debug)]
pub struct Env {
    world: Arc<dyn World>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Env {
    /// An environment over `world`, with no task yet.
    pub fn new(world: Arc<dyn World>) -> Self {
        Self { world, tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// The real world.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemWorld))
    }

    /// The same world with a task list and a stop signal of its own.
    pub fn sibling(&self) -> Self {
        Self::new(Arc::clone(&self.world))
    }

    /// The world behind this environment.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// The boot clock now.
    pub fn now(&self) -> BootTime {
        self.world.now()
    }

    /// The wall clock now.
    pub fn wall(&self) -> WallTime {
        self.world.wall()
    }

    /// 64 random bits.
    pub fn random(&self) -> u64 {
        self.world.random()
    }

    /// A duration drawn evenly from `[0, below)`; zero if `below` is zero.
    pub fn random_below(&self, below: Duration) -> Duration {
        let nanos = u64::try_from(below.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random().checked_rem(nanos).unwrap_or(0))
    }

    /// Sleeps until the boot clock shows `at`, however long the machine slept meanwhile.
    ///
    /// # Cancel safety
    /// Safe: dropping it only stops waiting.
    pub async fn sleep_until(&self, at: BootTime) {
        while self.now() < at {
            self.world.sleep_until(at).await;
        }
    }

    /// Sleeps for `time` on the boot clock.
    ///
    /// # Cancel safety
    /// Safe: dropping it only stops waiting.
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now() + time).await;
    }

    /// `work`'s output, or `None` if the boot clock shows `at` first. Where both are ready the output wins,
    /// so whoever cares about the clock looks at it afterwards.
    ///
    /// # Cancel safety
    /// As safe as `work`, which is dropped with it.
    pub async fn before<T>(&self, at: BootTime, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! { biased;
            done = work => Some(done),
            () = self.sleep_until(at) => None,
        }
    }

    /// Starts a task that [`Env::stopped`] and [`Env::finish`] know of.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.world.spawn(&self.tasks, Box::pin(work));
    }

    /// Starts a task that ends when its handle is dropped, and that hands over its output or its panic.
    pub fn spawn_scoped<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> ScopedTask<T> {
        ScopedTask::start(self, work)
    }

    /// The signal that asks the tasks of this environment to end.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    /// How many tasks of this environment have not ended.
    pub fn tasks_alive(&self) -> usize {
        self.tasks.len()
    }

    /// Asks every task to end and waits until all have. Idempotent.
    ///
    /// # Cancel safety
    /// Dropping it leaves the tasks asked to end; call it again to wait for them.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
