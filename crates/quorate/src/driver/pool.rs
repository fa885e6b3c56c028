use crate::{
    config::{QuorumConfig, SettingError, majority},
    driver::{
        core::Core,
        message::{DriverMessage, PendingRequest, RequestList},
        open_attempts::{OpenAttempt, OpenAttempts},
        order,
        task::{DriverChannels, drive},
        waiters::WaiterRegistry,
    },
    env::{Env, WallTime},
    node::{Cause, Listen, Node, Owner, Reply, Request, Resource},
    sabotage::Sabotage,
    trust::{Marker, NodeRegistry, NodeState, NodeStatus, TrustPolicy},
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, Vote, VoteReceiver, vote_channel},
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// An event that the pool of drivers reports to the lease renewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolEvent {
    /// A node may have lost its grants. Each lease must compare its grants with the nodes' present memory
    /// epochs.
    LostMemory,
}

type StartDriver = Box<dyn FnOnce(Env, Core, DriverChannels) + Send>;

/// A node whose driver has not been started, and the means to start it. This type hides the type of the node,
/// so that one list can contain nodes of several kinds.
pub(crate) struct NodeFactory {
    name: Arc<str>,
    watch_clock: bool,
    start: StartDriver,
}

impl NodeFactory {
    pub(crate) fn new<N: Node>(node: N) -> Self {
        let (name, watch_clock) = (node.name().into(), node.ends_leases_by_wall_clock());
        let start: StartDriver = Box::new(move |env: Env, core, channels| {
            let inner = env.clone();
            env.spawn(async move { drive(node, inner, core, channels).await });
        });
        Self { name, watch_clock, start }
    }
}

impl fmt::Debug for NodeFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeFactory").field(&self.name).finish()
    }
}

/// The drivers of a quorum's nodes. The pool sends requests to the drivers, and returns channels on which
/// their votes arrive.
#[derive(Debug)]
pub(crate) struct NodePool {
    env: Env,
    config: QuorumConfig,
    registry: Arc<NodeRegistry>,
    mailboxes: Vec<mpsc::UnboundedSender<DriverMessage>>,
    waiters: Arc<WaiterRegistry>,
    flush: CancellationToken,
    attempts: OpenAttempts,
    /// The hash of each node's name.
    hashes: Vec<u64>,
}

impl NodePool {
    /// Checks the settings and starts one driver for each node.
    pub(crate) fn start(
        env: Env,
        config: QuorumConfig,
        nodes: Vec<NodeFactory>,
        events: &mpsc::UnboundedSender<PoolEvent>,
    ) -> Result<Self, SettingError> {
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        config.validate(&names)?;
        let registry = Arc::new(NodeRegistry::new(&names));
        let (nodes_of, seed) = (Marker::node_set(&names), env.random());
        let policy = Arc::new(TrustPolicy { nodes: nodes_of, config: config.clone(), seed });
        let (flush, attempts) = (CancellationToken::new(), OpenAttempts::default());
        let waiters = Arc::new(WaiterRegistry::new(names.len()));
        let mut mailboxes = Vec::new();
        for (me, node) in nodes.into_iter().enumerate() {
            let (mailbox, messages) = mpsc::unbounded_channel();
            mailboxes.push(mailbox);
            let (events, node_waiters) = (events.clone(), Arc::clone(&waiters));
            let channels = DriverChannels {
                messages,
                on_lost_memory: Box::new(move || {
                    // The send fails once the renewer has ended. Then there is no lease that the event
                    // concerns.
                    let _ = events.send(PoolEvent::LostMemory);
                }),
                on_release: Box::new(move |freed, notified| node_waiters.on_release(me, freed, notified)),
                changes: registry.wake(me),
                flush: flush.clone(),
                attempts: attempts.clone(),
                flush_timeout: config.node_timeout * 2,
            };
            let core = Core::new(me, node.watch_clock, Arc::clone(&policy), Arc::clone(&registry));
            (node.start)(env.clone(), core, channels);
        }
        let hashes = names.iter().map(|name| order::hash(name)).collect();
        Ok(Self { env, config, registry, mailboxes, waiters, flush, attempts, hashes })
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn config(&self) -> &QuorumConfig {
        &self.config
    }

    pub(crate) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.len())
    }

    pub(crate) fn epoch(&self, node: usize) -> u64 {
        self.registry.epoch(node)
    }

    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        self.registry.status()
    }

    /// Returns the quorum's clock, or this worker's wall clock before a majority of the nodes has replied.
    pub(crate) fn wall(&self) -> WallTime {
        if self.config.sabotaged(Sabotage::OwnWallClock) {
            return self.env.wall();
        }
        let reached = self.registry.majority_has_reached(self.env.now(), self.config.drift_rate);
        reached.unwrap_or_else(|| self.env.wall())
    }

    /// Returns a time after which the quorum's clock has not been for any worker that asks the same nodes, unless a clock was
    /// set back. A node whose clock is unknown may have any time.
    pub(crate) fn latest_wall(&self) -> WallTime {
        self.registry.no_majority_is_past(self.env.now()).unwrap_or_default().max(self.wall())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.registry.changes()
    }

    /// Returns a new owner token. Every attempt gets a token of its own.
    pub(crate) fn sign(&self) -> Owner {
        if self.config.sabotaged(Sabotage::TokenReused) {
            return Owner::sign(&self.config.worker, 0, 0);
        }
        let (high, low) = self.env.random_pair();
        Owner::sign(&self.config.worker, high, low)
    }

    /// Returns the nodes in the order in which a round for `resource` asks them. All workers compute the same
    /// order, with one exception: each worker moves the nodes that do not vote or are late to the end.
    pub(crate) fn order(&self, resource: &Resource) -> Vec<usize> {
        let latencies = self.registry.latencies();
        let mut order = order::rendezvous(resource.key(), &self.hashes);
        // The sort is stable, so prompt nodes keep the order of the hashing.
        order.sort_by_key(|&node| !latencies.is_prompt(node));
        order
    }

    /// Returns the nodes that a round for `resource` need not ask at first: all nodes after the first majority.
    /// Returns none if fewer than a majority are prompt, since all nodes would be needed soon.
    pub(crate) fn spared(&self, resource: &Resource) -> Vec<usize> {
        let mut order = self.order(resource);
        let spared = order.split_off(self.majority());
        let prompt = order.iter().all(|&node| self.registry.latencies().is_prompt(node));
        if prompt { spared } else { Vec::new() }
    }

    /// Returns the time for which a round waits for the nodes that it asked first, before it asks the others.
    pub(crate) fn patience(&self) -> Duration {
        self.registry.latencies().patience(self.config.patience_max())
    }

    /// Records that a node was late. The node is asked last until probes in the background find it prompt
    /// again.
    pub(crate) fn mark_late(&self, node: usize) {
        if self.registry.latencies().mark_late(node) {
            // The send fails once the driver has ended. Then the node needs no probe.
            let _ = self.mailboxes[node].send(DriverMessage::Late);
        }
    }

    /// Answers a release in place of a node to which no message of the lease was sent. Such a node has
    /// nothing to release.
    pub(crate) fn holds_nothing(&self, node: usize, reply: &ReplyTo) {
        let (memory, answer) = (self.registry.node_epoch(node), Answer::Reply(Reply::Released(false)));
        let vote = Vote { node, ticket: reply.ticket, requests: 1, sent: None, memory, answer };
        let _ = reply.sender.send(vote);
    }

    /// Sends a request to one node, or several in one message. The votes come within the node timeout.
    pub(crate) fn ask(&self, node: usize, requests: impl Into<RequestList>, reply: ReplyTo) {
        let deadline = self.env.now() + self.config.node_timeout;
        let requests = Some(requests.into());
        self.send(node, PendingRequest { requests, deadline, reply: Some(reply) });
    }

    /// Sends a request to every node. Returns the channel of the votes, on which each node's vote arrives
    /// within the node timeout.
    pub(crate) fn ask_all(&self, request: Request) -> VoteReceiver {
        self.ask_some(0..self.len(), request)
    }

    /// Sends a request like [`NodePool::ask_all`], but only to some nodes. The nodes share it.
    pub(crate) fn ask_some(&self, nodes: impl IntoIterator<Item = usize>, request: Request) -> VoteReceiver {
        let (request, (sender, votes)) = (RequestList::from(request), vote_channel());
        for node in nodes {
            self.ask(node, request.clone(), ReplyTo { sender: sender.clone(), ticket: 0 });
        }
        votes
    }

    /// Releases the lease of `owner` on `resource`, on every node for which `may_hold` returns true. The
    /// function is synchronous, so that `Drop` may call it. The release is sent after all earlier requests.
    /// The driver of an unreachable node keeps the release until the key has expired.
    pub(crate) fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        may_hold: impl Fn(usize) -> bool,
        reply: Option<&ReplyTo>,
    ) {
        let request = Request::Release { resource: resource.clone(), owner: owner.clone() };
        self.free(request, may_hold, reply);
    }

    /// Sends a request like [`NodePool::release`]. `release` may be any request that only removes keys.
    pub(crate) fn free(
        &self,
        release: impl Into<RequestList>,
        may_hold: impl Fn(usize) -> bool,
        reply: Option<&ReplyTo>,
    ) {
        let release = release.into();
        let deadline = self.env.now() + self.config.quarantine() + self.config.fence();
        for node in (0..self.len()).filter(|&node| may_hold(node)) {
            let requests = Some(release.clone());
            self.send(node, PendingRequest { requests, deadline, reply: reply.cloned() });
        }
    }

    /// Ends the quarantine of every node that is in one.
    pub(crate) fn trust_all(&self) -> VoteReceiver {
        let (sender, votes) = vote_channel();
        let deadline = self.env.now() + self.config.node_timeout * 2;
        for node in 0..self.len() {
            let reply = Some(ReplyTo { sender: sender.clone(), ticket: 0 });
            self.send(node, PendingRequest { requests: None, deadline, reply });
        }
        votes
    }

    /// Counts an attempt to acquire as open until the returned guard is dropped.
    pub(crate) fn begin_attempt(&self) -> OpenAttempt {
        self.attempts.begin()
    }

    /// Asks every driver to send its pending requests, and those of the open attempts, and then end.
    pub(crate) fn flush(&self) {
        self.flush.cancel();
    }

    /// Returns the outcome of each node, for an error. A round ends as soon as its verdict is known, so some
    /// nodes may not have answered by then. For such a node the report says why it cannot vote, if that is
    /// known.
    pub(crate) fn report(&self, outcomes: impl IntoIterator<Item = NodeOutcome>) -> NoMajority {
        let status = self.status();
        let named = |(status, outcome): (NodeStatus, NodeOutcome)| {
            let outcome = match outcome {
                NodeOutcome::Pending => NodeOutcome::of_state(&status.state),
                answered => answered,
            };
            (status.name, outcome)
        };
        NoMajority::new(self.majority(), status.into_iter().zip(outcomes).map(named).collect())
    }

    /// Returns the state of each node as a report. In the report, a node that votes is shown as *agreed*.
    pub(crate) fn report_of(&self, nodes: &[NodeStatus]) -> NoMajority {
        let outcome = |node: &NodeStatus| match node.state {
            NodeState::Trusted => (Arc::clone(&node.name), NodeOutcome::Granted),
            _ => (Arc::clone(&node.name), NodeOutcome::of_state(&node.state)),
        };
        NoMajority::new(self.majority(), nodes.iter().map(outcome).collect())
    }

    /// Returns whether a majority of the nodes could vote at any time since this worker started.
    pub(crate) fn has_had_quorum(&self) -> bool {
        self.registry.has_had_quorum()
    }

    pub(crate) fn waiters(&self) -> &WaiterRegistry {
        &self.waiters
    }

    /// Sends a change of the subscriptions to every driver. The send fails for a driver that has ended, which
    /// needs no subscriptions.
    pub(crate) fn listen(&self, listen: &Listen) {
        for mailbox in &self.mailboxes {
            let _ = mailbox.send(DriverMessage::Listen(listen.clone()));
        }
    }

    fn send(&self, node: usize, pending: PendingRequest) {
        // A driver that has ended does not receive the message. So the pool itself answers the caller.
        let sent = self.mailboxes[node].send(DriverMessage::Request(pending));
        if let Err(mpsc::error::SendError(DriverMessage::Request(pending))) = sent
            && let Some(reply) = &pending.reply
        {
            let (memory, answer) = (self.registry.node_epoch(node), Answer::Failed(Cause::Stopped));
            let (ticket, requests) = (reply.ticket, pending.count());
            let _ = reply.sender.send(Vote { node, ticket, requests, sent: None, memory, answer });
        }
    }
}
