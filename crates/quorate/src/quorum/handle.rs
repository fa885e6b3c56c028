use crate::{
    config::{QuorumConfig, SettingError},
    driver::{NodeFactory, NodePool},
    env::{Env, WallTime},
    lease::{Heartbeat, Inspection, Lock, Locks, QuorumInner, ReadLease, inspect},
    node::{Node, Reply, Resource},
    quorum::QuorumStatus,
    vote::{Answer, NoMajority, NodeOutcome},
};
use std::{fmt, sync::Arc, time::Duration};

/// A set of independent nodes that grants leases by majority. Clones are the same quorum.
///
/// ```
/// use quorate::{Quorum, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Nodes in this process. For nodes that several processes share, see [`Quorum::connect`].
/// let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let status = quorum.ready(std::time::Duration::from_secs(5)).await?;
/// assert!(status.has_majority());
///
/// let lease = quorum.lock("invoice-42").acquire().await?;
/// println!("write under token {}", lease.fencing_token()?);
/// lease.release().await?;
/// quorum.close().await; // the last line of `main`: sends releases that dropped leases have posted
/// # Ok(())
/// # }
/// ```
///
/// A quorum ends when [`Quorum::close`] is called, or when the last clone and the last lease are gone.
#[derive(Clone)]
pub struct Quorum(Arc<QuorumInner>);

impl Quorum {
    /// Returns a builder. Add nodes to it, then call [`QuorumBuilder::build`].
    pub fn builder() -> QuorumBuilder {
        QuorumBuilder { env: None, config: QuorumConfig::default(), changes: Vec::new(), nodes: Vec::new() }
    }

    /// Returns the lock called `name`, to be acquired.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.0), Resource::lock(name.as_ref()))
    }

    /// Returns several locks, to be acquired together or independently. A name that is given twice counts
    /// once.
    pub fn locks<I>(&self, names: I) -> Locks
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let names = names.into_iter().map(|name| Resource::lock(name.as_ref())).collect();
        Locks::new(Arc::clone(&self.0), names)
    }

    /// Returns `k` numbered slots called `name`. A worker acquires one of them, so that at most `k` workers hold a
    /// slot at a time.
    ///
    /// Each slot is a lock of its own, `NAME/slot-I`, with its own fencing counter. [`Locks::acquire_any`]
    /// returns the number `I` and the lease. A token orders the holders of *one* slot, so a store that checks
    /// tokens must also know the slot. All workers must give the same `k`: a worker with a larger `k` also
    /// acquires slots that no other worker uses.
    ///
    /// # Why no counting semaphore
    ///
    /// A quorum cannot count holders safely. Take five nodes, each with room for two holders: together they
    /// can give ten grants. Three workers need three grants each, which makes nine. So all three workers can
    /// have a majority, although no node counts more than two of them. Two majorities may overlap in only one
    /// node, and that node grants to both workers if it has room.
    ///
    /// A lock has room for one lease on each node, so two workers cannot both have a majority. `k` slots are
    /// `k` locks, and each of them has at most one holder.
    pub fn slots(&self, name: impl AsRef<str>, k: usize) -> Locks {
        Locks::slots(Arc::clone(&self.0), name.as_ref(), k)
    }

    /// Returns a heartbeat whose longest silence is `max_silence`, for
    /// [`LeaseOptions::renew_while_beating`](crate::LeaseOptions::renew_while_beating).
    #[doc(hidden)]
    pub fn heartbeat(&self, max_silence: Duration) -> Heartbeat {
        Heartbeat::new(self.env(), max_silence)
    }

    /// Returns the lock called `name`, to be acquired for reading: many readers may hold it, or one writer.
    ///
    /// A writer acquires [`Quorum::lock`] with the same name. So readers, a writer, and any other Redlock
    /// client that uses the name exclude each other. Only readers share the lock.
    ///
    /// ```
    /// use quorate::{Quorum, node::MemoryNode};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let quorum = Quorum::builder().node(MemoryNode::new("a")).trust_new_nodes(true).build()?;
    /// let one = quorum.read_lock("catalogue").acquire().await?;
    /// let two = quorum.read_lock("catalogue").acquire().await?;
    /// assert!(quorum.lock("catalogue").try_acquire().await?.is_contended());
    /// // … read …
    /// one.ensure_held()?; // no client has held the lock for writing since
    /// one.release().await?;
    /// two.release().await?;
    /// let written = quorum.lock("catalogue").acquire().await?;
    /// # drop(written);
    /// # quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_lock(&self, name: impl AsRef<str>) -> Lock<ReadLease> {
        Lock::for_reading(Arc::clone(&self.0), Resource::lock(name.as_ref()))
    }

    /// Returns the settings.
    pub fn config(&self) -> &QuorumConfig {
        self.0.pool().config()
    }

    /// Returns the environment of this quorum: its clocks, timers and tasks.
    #[doc(hidden)]
    pub fn env(&self) -> &Env {
        self.0.pool().env()
    }

    /// Returns the quorum's clock: the latest time that the wall clocks of a majority of all nodes have
    /// certainly reached. A tick is due once this clock has reached the tick. The quorum's clock is computed
    /// from the clock readings in the nodes' replies. Between replies it advances with this worker's boot
    /// clock. If the number of nodes is odd and all have replied, the result is the median of the nodes'
    /// clocks.
    ///
    /// The call sends no request and does not wait. Until a majority has replied, it returns this worker's
    /// own wall clock, which has no influence afterwards.
    ///
    /// A node whose clock jumps, or is far off, has no influence while a majority of the other nodes agrees.
    /// A node that is unreachable counts with its last reply, less `drift_rate` of the time since. Nodes in
    /// memory or in files have this host's clock.
    ///
    /// The quorum's clock is behind the nodes' clocks by the travel time of their replies. The quorum's clock
    /// may step back: a little when a connection is new, and further when clocks of nodes are set back, or
    /// when this machine's boot clock was stopped. In the last case the next replies correct it. Code that
    /// must not go back has to store the latest time that it has used. The scheduler, for example, stores
    /// which ticks it has planned.
    pub fn wall(&self) -> WallTime {
        self.0.pool().wall()
    }

    /// Returns the state of each node as this worker last saw it. The call sends no request.
    pub fn nodes(&self) -> QuorumStatus {
        QuorumStatus::new(self.0.pool().status())
    }

    /// Waits until each node has been reached or found unreachable, and returns the state of each node. The
    /// wait lasts for `wait` at most.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn met(&self, wait: Duration) -> QuorumStatus {
        self.settled(wait, |status| !status.is_connecting()).await
    }

    /// Waits until a majority of nodes may vote, and returns the state of each node. The wait lasts for
    /// `wait` at most. It ends early, even without a majority, once every node has been reached or found
    /// unreachable. A node that was reached may still be in quarantine.
    ///
    /// # Errors
    /// [`NoMajority`] if no majority votes, with the cause for each node. A cause that only an operator can remove
    /// ends the wait at once: see [`NoMajority::is_permanent`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn ready(&self, wait: Duration) -> Result<QuorumStatus, NoMajority> {
        let pool = self.0.pool();
        let is_refused = |status: &QuorumStatus| pool.report_of(status).is_permanent();
        let status = self
            .settled(wait, |status| status.has_majority() || !status.is_connecting() || is_refused(status))
            .await;
        if status.has_majority() {
            return Ok(status);
        }
        Err(pool.report_of(&status).of("no quorum"))
    }

    /// Asks the nodes for the holder of `resource`.
    ///
    /// # Errors
    /// [`NoMajority`] if fewer than a majority answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn inspect(&self, resource: &Resource) -> Result<Inspection, NoMajority> {
        inspect(&self.0, resource).await
    }

    /// Ends the quarantine of every reachable node for every worker, by a change of the node's marker. Use
    /// this call only for nodes that are new. A node that lost its memory may have granted a lease that a
    /// worker still holds. For such a node, the call can lead to two holders.
    ///
    /// # Errors
    /// [`NoMajority`] if the call failed for a node. The other nodes are trusted even then.
    ///
    /// # Cancel safety
    /// If the future is dropped, each node may or may not be trusted.
    pub async fn trust_nodes(&self) -> Result<(), NoMajority> {
        let mut votes = self.0.pool().trust_all();
        let mut outcomes = vec![NodeOutcome::Pending; self.0.pool().len()];
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = match &vote.answer {
                Answer::Reply(Reply::Marked) => NodeOutcome::Granted,
                other => NodeOutcome::of(other),
            };
        }
        if outcomes.iter().all(|outcome| matches!(outcome, NodeOutcome::Granted)) {
            return Ok(());
        }
        Err(self.0.pool().report(outcomes).of("not every node could be trusted"))
    }

    /// Closes the quorum: ends every lease, sends the queued releases of dropped leases and of attempts that are under
    /// way, and ends every task. The call takes two node timeouts at most, and may be repeated.
    ///
    /// Call it in the last line of `main`. When a lease is dropped, its release is only queued, and a task
    /// sends it. If the runtime ends before that task has run, the lock stays taken until its TTL is over.
    ///
    /// # Cancel safety
    /// If the future is dropped, the quorum continues to close; call the function again to wait.
    pub async fn close(&self) {
        self.env().finish().await;
    }

    pub(crate) fn inner(&self) -> &Arc<QuorumInner> {
        &self.0
    }

    pub(crate) fn pool(&self) -> &Arc<NodePool> {
        self.0.pool()
    }

    async fn settled(&self, wait: Duration, done: impl Fn(&QuorumStatus) -> bool) -> QuorumStatus {
        let deadline = self.env().now() + wait;
        let mut changes = self.0.pool().changes();
        loop {
            let status = self.nodes();
            if done(&status) {
                return status;
            }
            match self.env().before(deadline, changes.changed()).await {
                Some(Ok(())) => {}
                _ => return self.nodes(),
            }
        }
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of one setting.
type Change = Box<dyn FnOnce(&mut QuorumConfig) + Send>;

/// Builds a quorum from nodes and settings. Each setting has a default: see [`QuorumConfig`].
///
/// ```
/// use quorate::{Quorum, node::MemoryNode};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// let builder = Quorum::builder().nodes(nodes).worker("billing-1").node_timeout(Duration::from_millis(200));
/// let quorum = builder.trust_new_nodes(true).build()?;
/// assert_eq!(&*quorum.config().worker, "billing-1");
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
///
/// Some settings have a method of their own here. If that method is called, its value applies, even if
/// [`QuorumBuilder::config`] is called later. All other settings come from [`QuorumBuilder::config`].
#[must_use = "a builder does nothing until it is built"]
pub struct QuorumBuilder {
    env: Option<Env>,
    config: QuorumConfig,
    changes: Vec<Change>,
    nodes: Vec<NodeFactory>,
}

impl QuorumBuilder {
    /// Adds a node. Nodes of different kinds may be in one list.
    pub fn node<N: Node>(mut self, node: N) -> Self {
        self.nodes.push(NodeFactory::new(node));
        self
    }

    /// Adds several nodes.
    pub fn nodes<N: Node>(self, nodes: impl IntoIterator<Item = N>) -> Self {
        nodes.into_iter().fold(self, Self::node)
    }

    /// Sets the environment: the clocks, timers and tasks. By default it is the operating system's. The
    /// quorum's tasks are counted separately from other tasks of the environment.
    #[doc(hidden)]
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Sets all settings, except those that another method of this builder sets before or after this call.
    pub fn config(mut self, config: QuorumConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets [`QuorumConfig::worker`], the name of this worker in owner tokens.
    pub fn worker(self, worker: impl AsRef<str>) -> Self {
        let worker: Arc<str> = worker.as_ref().into();
        self.change(move |config| config.worker = worker)
    }

    /// Sets [`QuorumConfig::node_timeout`], the longest time that a node may take to answer.
    pub fn node_timeout(self, timeout: Duration) -> Self {
        self.change(move |config| config.node_timeout = timeout)
    }

    /// Sets [`QuorumConfig::ask_all_nodes`]: a lock asks all nodes at once, and not a majority first.
    pub fn ask_all_nodes(self, all: bool) -> Self {
        self.change(move |config| config.ask_all_nodes = all)
    }

    /// Sets [`QuorumConfig::max_ttl`], the longest TTL. Shared by all workers.
    pub fn max_ttl(self, ttl: Duration) -> Self {
        self.change(move |config| config.max_ttl = ttl)
    }

    /// Sets [`QuorumConfig::drift_rate`], the largest relative difference between the rates of two clocks.
    /// All workers must set the same value.
    pub fn drift_rate(self, rate: f64) -> Self {
        self.change(move |config| config.drift_rate = rate)
    }

    /// Sets [`QuorumConfig::clock_step_allowance`], the largest step of a node's clock that leases tolerate.
    /// All workers must set the same value.
    pub fn clock_step_allowance(self, allowance: Duration) -> Self {
        self.change(move |config| config.clock_step_allowance = allowance)
    }

    /// Sets [`QuorumConfig::max_clock_offset`], the largest difference between two wall clocks. All workers
    /// must set the same value.
    pub fn max_clock_offset(self, offset: Duration) -> Self {
        self.change(move |config| config.max_clock_offset = offset)
    }

    /// Sets [`QuorumConfig::fence_retention`], the lifetime of a fencing counter after its last use.
    pub fn fence_retention(self, retention: Duration) -> Self {
        self.change(move |config| config.fence_retention = retention)
    }

    /// Sets [`QuorumConfig::ledger_retention`], the time for which a job's records are kept after its last
    /// worker has ended.
    pub fn ledger_retention(self, retention: Duration) -> Self {
        self.change(move |config| config.ledger_retention = retention)
    }

    /// Sets [`QuorumConfig::durable`]: nodes must keep every write that they have answered, even across a
    /// restart. If a node does not report at the handshake that it does so, the worker refuses the node, and
    /// the reason names this setting. All workers must set the same value.
    pub fn durable(self, durable: bool) -> Self {
        self.change(move |config| config.durable = durable)
    }

    /// Sets [`QuorumConfig::trust_new_nodes`]: nodes without a marker vote at once. Use it only for
    /// development and tests. All workers must set the same value.
    pub fn trust_new_nodes(self, trust: bool) -> Self {
        self.change(move |config| config.trust_new_nodes = trust)
    }

    /// Sets [`QuorumConfig::read_only`]: this worker writes no marker. It uses only nodes that other workers
    /// have marked.
    pub fn read_only(self, read_only: bool) -> Self {
        self.change(move |config| config.read_only = read_only)
    }

    /// Checks the settings and starts the quorum's tasks. Must be called within a tokio runtime.
    ///
    /// The quorum connects in the background. The first round waits for the first handshake with each node,
    /// for up to one second or two node timeouts, whichever is longer. The node timeout of that round begins
    /// after the handshakes.
    ///
    /// # Errors
    /// [`SettingError`], which names the field, its value, the reason and the fix.
    pub fn build(self) -> Result<Quorum, SettingError> {
        let env = self.env.map_or_else(Env::system, |env| env.sibling());
        let mut config = self.config;
        for change in self.changes {
            change(&mut config);
        }
        Ok(Quorum(Arc::new(QuorumInner::start(env, config, self.nodes)?)))
    }

    fn change(mut self, change: impl FnOnce(&mut QuorumConfig) + Send + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }
}

impl fmt::Debug for QuorumBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumBuilder").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
