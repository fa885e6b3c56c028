use super::{
    SHARDS_MAX, Shard,
    assignment::Announcement,
    leader::lead,
    member::Member,
    set::{Held, Set, group_of, ledger_of},
};
use crate::{
    backoff::Backoff,
    config::SettingError,
    lease::{AcquireError, Bell, LeaseOptions, lease_options},
    measure::ShardMeasures,
    node::Resource,
    quorum::Quorum,
    session::Sessions,
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{
    fmt::{self, Display},
    pin::pin,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

/// The largest weight of a worker.
const WEIGHT_MAX: u32 = 1_000;
/// The shortest pause before work begins again.
const SHORTEST: Duration = Duration::from_millis(10);

/// A set of numbered shards. Each has one owner among the workers that run the set. Clones are the same worker.
///
/// ```
/// use quorate::{Quorum, node::MemoryNode, shards::{Shard, Shards}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let (done, shutdown) = tokio::sync::mpsc::channel::<()>(1);
/// let work = move |shard: Shard| {
///     let done = done.clone();
///     async move {
///         let token = shard.fencing_token()?; // pass it to each write
///         println!("shard {} of {}, token {token}", shard.number(), shard.count());
/// #       drop(done.send(()).await); // this example ends
///         shard.step_down_token().cancelled().await; // a service works until then
///         Ok::<(), quorate::LeaseLost>(())
///     }
/// };
/// let mut shutdown = shutdown;
/// // a service: `.until(quorate::shutdown_signal())`, or only `.await`
/// Shards::new(&quorum, "orders", 8).run(work).until(async move { shutdown.recv().await }).await?;
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Shards {
    quorum: Quorum,
    set: Arc<str>,
    count: usize,
    weight: u32,
    grace: Option<Duration>,
    backoff: Backoff,
    options: LeaseOptions,
    held: Held,
}

impl Shards {
    /// Returns the set called `set`, which has `count` shards. All workers of a set must be given the same number: see [the
    /// module](crate::shards#another-number-of-shards). The worker does nothing until it is [`run`](Shards::run).
    pub fn new(quorum: &Quorum, set: impl AsRef<str>, count: usize) -> Self {
        Self {
            quorum: quorum.clone(),
            set: set.as_ref().into(),
            count,
            weight: 1,
            grace: None,
            backoff: Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) },
            options: LeaseOptions::new(),
            held: Held::default(),
        }
    }

    lease_options!();

    /// Sets the weight of this worker, 1 to 1,000: a worker of weight 2 gets twice as many shards as one of weight 1. Default 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets how long the work of a shard may go on after it was asked to stop because another worker is to get the shard, or
    /// because of a shutdown. Then it is dropped. The lease is extended meanwhile, so this time may be longer than a TTL. The default
    /// is the lease's step-down grace.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets the pause after a failure of the work, before the same worker begins it again. The pause is `first` after the first
    /// failure, and twice as long after each further failure, up to `longest`. The actual pause is random, between half of this
    /// time and all of it. If the work ran for `longest` without an error, the pauses begin again with `first`. Default 1 s to 30 s,
    /// at least 10 ms. Work that returns `Ok` by itself begins again after `first`.
    pub fn restart_backoff(mut self, first: Duration, longest: Duration) -> Self {
        let first = first.max(SHORTEST);
        self.backoff = Backoff { first, longest: longest.max(first) };
        self
    }

    /// Returns the name of the set.
    pub fn set(&self) -> &Arc<str> {
        &self.set
    }

    /// Returns the shards that this worker owns at this moment, by their numbers.
    pub fn owned(&self) -> Vec<Shard> {
        self.held.all().into_iter().filter(Shard::is_valid).collect()
    }

    /// Runs `work` for each shard that this worker owns. The run begins when the returned value is awaited, by itself or with
    /// [`ShardsRun::until`].
    pub fn run<W, F, E>(&self, work: W) -> ShardsRun<W>
    where
        W: Fn(Shard) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        ShardsRun { shards: self.clone(), work }
    }

    fn checked(&self, who: Announcement) -> Result<Set, AcquireError> {
        let config = self.quorum.config();
        let of_1_to = |field: &'static str, value: String, most: usize| {
            let (reason, fix) = (format!("not between 1 and {most}"), format!("give it 1 to {most}"));
            Err(SettingError::new(field, value, reason, fix).into())
        };
        if !(1..=SHARDS_MAX).contains(&self.count) {
            return of_1_to("count", self.count.to_string(), SHARDS_MAX);
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return of_1_to("weight", self.weight.to_string(), WEIGHT_MAX as usize);
        }
        self.options.params(config)?;
        let (ttl, step_down) = (self.options.effective_ttl(config), self.options.effective_grace(config));
        let (ledger, group) = (ledger_of(&self.quorum, &self.set)?, group_of(&self.set));
        Ok(Set {
            quorum: self.quorum.clone(),
            name: Arc::clone(&self.set),
            who,
            options: self.options.clone(),
            ttl,
            grace: self.grace.unwrap_or(step_down),
            backoff: self.backoff,
            sessions: Sessions::new(&self.quorum, &group, ttl, step_down),
            group,
            workers: ledger.part("workers"),
            ledger,
            bell: Bell::new(self.quorum.inner(), Resource::shard(&self.set, &"bell")),
            held: self.held.clone(),
            measures: ShardMeasures::new(&self.set),
            reads: AtomicU64::new(0),
        })
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("set", &self.set)
            .field("count", &self.count)
            .field("weight", &self.weight)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A worker with its work, made by [`Shards::run`].
///
/// Await it to work for as long as the quorum is open, or use [`ShardsRun::until`] to end at a shutdown.
#[must_use = "shards are not worked on until the run is awaited"]
pub struct ShardsRun<W> {
    shards: Shards,
    work: W,
}

impl<W> fmt::Debug for ShardsRun<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardsRun").field("shards", &self.shards).finish_non_exhaustive()
    }
}

/// Works without a shutdown signal: see [`ShardsRun::until`].
impl<W, F, E> IntoFuture for ShardsRun<W>
where
    W: Fn(Shard) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    type Output = Result<(), AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.until(std::future::pending::<()>()).boxed()
    }
}

impl<W, F, E> ShardsRun<W>
where
    W: Fn(Shard) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    /// Owns shards and runs their work, until `shutdown` completes. Then the work of every shard is asked to stop, and may end
    /// within the [grace](Shards::grace). The call returns once all of it has ended, and has been dropped if it took longer. The
    /// other workers get the shards as they become free.
    ///
    /// # Errors
    /// - [`AcquireError::Setting`] if a setting or the set's name cannot be used, or if the set is already running on this
    ///   quorum.
    /// - [`AcquireError::Closed`] if the quorum is closed.
    /// - An error of [`AcquireError::is_permanent`] if no majority could vote since the quorum was built, for a reason that only
    ///   an operator can fix.
    ///
    /// A quorum that cannot be reached is not an error: the worker waits for it. Work that fails begins again after a pause.
    ///
    /// # Cancel safety
    /// Dropping the future ends the task of every shard, which drops its work, and then releases the shard. The drop does not
    /// wait for that.
    pub async fn until<S>(self, shutdown: S) -> Result<(), AcquireError>
    where
        S: Future + Send,
    {
        let Self { shards, work } = self;
        let worker = Arc::clone(&shards.quorum.config().worker);
        let who = Announcement { worker, weight: shards.weight, count: shards.count };
        let set = Arc::new(shards.checked(who)?);
        let _running = Running::begin(&set).ok_or_else(|| already_running(&shards.set))?;
        let mut member = Member::new(&set, Arc::new(work));
        let ended = {
            let shutdown = pin!(shutdown);
            tokio::select! { biased;
                _ = shutdown => Ok(()),
                () = set.bell.listen() => Ok(()),
                error = member.serve() => Err(error),
                error = lead(&set) => Err(error),
            }
        };
        member.leave().await;
        ended
    }
}

fn already_running(set: &str) -> SettingError {
    let reason =
        "which is already running on this quorum: a second run would only be another worker of this process";
    SettingError::new("the shard set", format!("{set:?}"), reason, "set the weight of this worker instead")
}

/// Keeps a set from being run twice on one quorum.
struct Running(Arc<Set>);

impl Running {
    fn begin(set: &Arc<Set>) -> Option<Self> {
        set.quorum.inner().begin_campaign(&set.group).then(|| Self(Arc::clone(set)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.quorum.inner().end_campaign(&self.0.group);
    }
}
