use crate::{
    config::{QuorumConfig, SettingError},
    driver::{NodeFactory, NodePool},
    env::{Env, WallTime},
    lease::{InspectError, Inspection, Lock, Locks, QuorumInner, RwLock, Slots, inspect},
    node::{Node, Reply, Resource},
    trust::{NodeState, NodeStatus},
    vote::{Answer, NodeOutcome, Report},
};
use std::{sync::Arc, time::Duration};

/// The nodes, together: what hands out leases. Clones are the same quorum.
///
/// It ends when [`Quorum::close`] is called, or when the last clone and the last lease are gone.
#[derive(Clone, Debug)]
pub struct Quorum(Arc<QuorumInner>);

impl Quorum {
    /// A quorum to be described. Add nodes, then [`QuorumBuilder::build`].
    pub fn builder() -> QuorumBuilder {
        QuorumBuilder { env: None, config: QuorumConfig::default(), nodes: Vec::new() }
    }

    /// The lock called `resource`, to be acquired.
    pub fn lock(&self, resource: &str) -> Lock {
        Lock::new(Arc::clone(&self.0), Resource::lock(resource))
    }

    /// Several locks, to be acquired together or each by itself. A name that is given twice counts once.
    pub fn locks<'a>(&self, resources: impl IntoIterator<Item = &'a str>) -> Locks {
        let names = resources.into_iter().map(Resource::lock).collect();
        Locks::new(Arc::clone(&self.0), names)
    }

    /// `k` numbered slots of `resource`, of which to acquire one: at most `k` workers hold one at a time.
    pub fn slots(&self, resource: &str, k: usize) -> Slots {
        Slots::new(Arc::clone(&self.0), resource, k)
    }

    /// The lock called `resource`, to be read under by many or written under by one.
    pub fn rw_lock(&self, resource: &str) -> RwLock {
        RwLock::new(Arc::clone(&self.0), Resource::lock(resource))
    }

    /// The settings on which the workers agree.
    pub fn config(&self) -> &QuorumConfig {
        self.0.pool().config()
    }

    /// The world in which this quorum lives.
    pub fn env(&self) -> &Env {
        self.0.pool().env()
    }

    /// The quorum's clock: the latest time that the wall clocks of a majority of all nodes have certainly reached, by
    /// what each node's replies told of its clock, carried on by this worker's boot clock; with all nodes heard,
    /// the median of their clocks. Ticks are due by it. Before a majority has been heard it is this worker's own
    /// wall clock, which counts for nothing afterwards. Asks nobody and waits for nothing.
    ///
    /// A node whose clock jumps, or is far off, decides nothing while a majority of the others agrees. A node that is
    /// away counts by what it last said, less `drift_rate` of the time since. Nodes in memory or in files have this
    /// host's clock.
    ///
    /// It is behind the nodes' clocks by the way back of their replies. It may step back: by as little when a
    /// connection is new, and further when clocks of nodes are set back, or when this machine's boot clock stood still
    /// (then the next replies put it right). Whoever must not go back keeps a mark, as the scheduler does of the ticks
    /// that it has looked at.
    pub fn wall(&self) -> WallTime {
        self.0.pool().wall()
    }

    /// Each node, in the order of the list, as this worker last saw it. Asks nobody.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.0.pool().status()
    }

    /// Waits until every node has been met or found away, for `wait` at most, and gives how they stand.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn met(&self, wait: Duration) -> Vec<NodeStatus> {
        self.settled(wait, |nodes| !nodes.iter().any(|node| node.state == NodeState::Connecting)).await
    }

    /// Waits until a majority of nodes votes, for `wait` at most, and returns the status of each node. It does not
    /// wait for a node that was met and has no vote, or is away: once every node is one or the other, it ends.
    ///
    /// # Errors
    /// [`NotReady`] where no majority votes, with the cause of each node. What only an operator can fix ends the wait
    /// at once: see [`NotReady::is_permanent`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn ready(&self, wait: Duration) -> Result<Vec<NodeStatus>, NotReady> {
        let pool = self.0.pool();
        let votes = |nodes: &[NodeStatus]| {
            nodes.iter().filter(|node| node.state == NodeState::Trusted).count() >= pool.majority()
        };
        let met = |nodes: &[NodeStatus]| !nodes.iter().any(|node| node.state == NodeState::Connecting);
        let barred = |nodes: &[NodeStatus]| pool.report_of(nodes).is_permanent();
        let nodes = self.settled(wait, |nodes| votes(nodes) || met(nodes) || barred(nodes)).await;
        if votes(&nodes) {
            return Ok(nodes);
        }
        Err(NotReady { report: pool.report_of(&nodes) })
    }

    /// Who holds `resource`, by the word of a majority.
    ///
    /// # Errors
    /// [`InspectError`] where fewer than a majority answered.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn inspect(&self, resource: &Resource) -> Result<Inspection, InspectError> {
        inspect(&self.0, resource).await
    }

    /// Ends the quarantine of every reachable node, in its marker and so for every worker: for a cluster
    /// that is new. Where a worker may still hold a lease, this can make two holders.
    ///
    /// # Errors
    /// [`TrustError`] where a node could not be admitted; the others are.
    ///
    /// # Cancel safety
    /// Dropping it leaves each node admitted or not.
    pub async fn trust_nodes(&self) -> Result<(), TrustError> {
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
        Err(TrustError { report: self.0.pool().report(outcomes) })
    }

    /// Ends every lease of this quorum, sends the releases that dropped guards have posted, and ends every
    /// task. Bounded by two node timeouts. Idempotent.
    ///
    /// # Cancel safety
    /// Dropping it leaves the quorum closing; call it again to wait.
    pub async fn close(&self) {
        self.env().finish().await;
    }

    pub(crate) fn inner(&self) -> &Arc<QuorumInner> {
        &self.0
    }

    pub(crate) fn pool(&self) -> &Arc<NodePool> {
        self.0.pool()
    }

    async fn settled(&self, wait: Duration, done: impl Fn(&[NodeStatus]) -> bool) -> Vec<NodeStatus> {
        let deadline = self.env().now() + wait;
        let mut changes = self.0.pool().changes();
        loop {
            let nodes = self.nodes();
            if done(&nodes) {
                return nodes;
            }
            match self.env().before(deadline, changes.changed()).await {
                Some(Ok(())) => {}
                _ => return self.nodes(),
            }
        }
    }
}

/// Describes a quorum. Every setting has a default: see [`QuorumConfig`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct QuorumBuilder {
    env: Option<Env>,
    config: QuorumConfig,
    nodes: Vec<NodeFactory>,
}

impl QuorumBuilder {
    /// Adds a node. Nodes of different kinds may stand in one list.
    pub fn node<N: Node>(mut self, node: N) -> Self {
        self.nodes.push(NodeFactory::new(node));
        self
    }

    /// Adds several nodes.
    pub fn nodes<N: Node>(self, nodes: impl IntoIterator<Item = N>) -> Self {
        nodes.into_iter().fold(self, Self::node)
    }

    /// Another world than the real one. The quorum's tasks are counted apart from the environment's own.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// What this worker is called in owner tokens: [`QuorumConfig::worker`].
    pub fn worker(mut self, worker: &str) -> Self {
        self.config.worker = worker.into();
        self
    }

    /// How long a node may take to answer: [`QuorumConfig::node_timeout`].
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.config.node_timeout = timeout;
        self
    }

    /// The longest TTL, on which all workers agree: [`QuorumConfig::max_ttl`].
    pub fn max_ttl(mut self, ttl: Duration) -> Self {
        self.config.max_ttl = ttl;
        self
    }

    /// Nodes vote at once though they have no marker, for development and tests: [`QuorumConfig::trust_new_nodes`].
    pub fn trust_new_nodes(mut self, trust: bool) -> Self {
        self.config.trust_new_nodes = trust;
        self
    }

    /// Nodes survive a restart with all they answered for: [`QuorumConfig::durable`]. A node that is not known to is refused
    /// at its handshake, and the reason names the setting.
    pub fn durable(mut self, durable: bool) -> Self {
        self.config.durable = durable;
        self
    }

    /// All settings at once, in place of those given so far.
    pub fn config(mut self, config: QuorumConfig) -> Self {
        self.config = config;
        self
    }

    /// Checks the settings and starts the quorum's tasks, within a runtime. Connects in the background: a first round
    /// waits for the first handshake with each node, which may take one second or two node timeouts, whichever is
    /// longer. The node timeout for a request begins after it.
    ///
    /// # Errors
    /// [`SettingError`], which names the field, its value and the fix.
    pub fn build(self) -> Result<Quorum, SettingError> {
        let env = self.env.map_or_else(Env::system, |env| env.sibling());
        Ok(Quorum(Arc::new(QuorumInner::start(env, self.config, self.nodes)?)))
    }
}

/// Nodes that could not be admitted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("not every node was admitted: {report}")]
pub struct TrustError {
    /// What each node said.
    pub report: Report,
}

/// No majority of the nodes votes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no quorum: {report}")]
pub struct NotReady {
    /// The state of each node.
    pub report: Report,
}

impl NotReady {
    /// Whether only an operator can fix it: trying again will not help.
    pub fn is_permanent(&self) -> bool {
        self.report.is_permanent()
    }
}
