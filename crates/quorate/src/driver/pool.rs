use crate::{
    config::{QuorumConfig, SettingError, majority},
    driver::{
        Subscription,
        core::Core,
        message::{DriverMessage, Operation, PendingRequest},
        subscription::WaiterRegistry,
        task::{DriverChannels, drive},
    },
    env::{Env, WallTime},
    node::{Cause, Listen, Node, Owner, Request, Resource},
    sabotage::Sabotage,
    trust::{Marker, NodeRegistry, NodeState, NodeStatus, TrustPolicy},
    vote::{Answer, NodeOutcome, ReplyTo, Report, Vote, VoteReceiver, vote_channel},
};
use std::{fmt, sync::Arc};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// What a fleet tells its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolEvent {
    /// The node may have forgotten what it granted: look at the epochs.
    LostMemory,
}

type Start = Box<dyn FnOnce(Env, Core, DriverChannels) + Send>;

/// A node that waits for its driver. Nodes of different kinds stand in one list: each is erased here.
pub(crate) struct NodeFactory {
    name: Arc<str>,
    watched: bool,
    start: Start,
}

impl NodeFactory {
    pub(crate) fn new<N: Node>(node: N) -> Self {
        let (name, watched) = (node.name().into(), node.ends_leases_by_wall_clock());
        let start: Start = Box::new(move |env: Env, core, channels| {
            let inner = env.clone();
            env.spawn(async move { drive(node, inner, core, channels).await });
        });
        Self { name, watched, start }
    }
}

impl fmt::Debug for NodeFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Starter").field(&self.name).finish()
    }
}

/// All the drivers of a quorum: posts requests, hands out votes.
#[derive(Debug)]
pub(crate) struct NodePool {
    env: Env,
    config: QuorumConfig,
    registry: Arc<NodeRegistry>,
    mailboxes: Vec<mpsc::UnboundedSender<DriverMessage>>,
    waits: Arc<WaiterRegistry>,
    flush: CancellationToken,
}

impl NodePool {
    /// Checks the setup and starts a driver a node.
    pub(crate) fn start(
        env: Env,
        config: QuorumConfig,
        nodes: Vec<NodeFactory>,
        events: &mpsc::UnboundedSender<PoolEvent>,
    ) -> Result<Self, SettingError> {
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        config.validate(&names)?;
        let registry = Arc::new(NodeRegistry::new(&names));
        let policy = Arc::new(TrustPolicy { nodes: Marker::node_set(&names), config: config.clone() });
        let flush = CancellationToken::new();
        let waits = Arc::new(WaiterRegistry::new(majority(names.len())));
        let mut mailboxes = Vec::new();
        for (me, node) in nodes.into_iter().enumerate() {
            let (mailbox, mail) = mpsc::unbounded_channel();
            mailboxes.push(mailbox);
            let (events, waiters) = (events.clone(), Arc::clone(&waits));
            let channels = DriverChannels {
                mail,
                on_lost_memory: Box::new(move || {
                    // A keeper that has gone holds nothing.
                    let _ = events.send(PoolEvent::LostMemory);
                }),
                on_freed: Box::new(move |freed, told| waiters.heard(me, freed, told)),
                changes: registry.wake(me),
                flush: flush.clone(),
                flush_for: config.node_timeout * 2,
            };
            let core = Core::new(me, node.watched, Arc::clone(&policy), Arc::clone(&registry));
            (node.start)(env.clone(), core, channels);
        }
        Ok(Self { env, config, registry, mailboxes, waits, flush })
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

    pub(crate) fn name(&self, node: usize) -> Arc<str> {
        self.registry.name(node)
    }

    pub(crate) fn epoch(&self, node: usize) -> u64 {
        self.registry.epoch(node)
    }

    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        self.registry.status()
    }

    /// The quorum's clock, or our own before a majority has been heard.
    pub(crate) fn wall(&self) -> WallTime {
        if self.config.sabotaged(Sabotage::OwnWallClock) {
            return self.env.wall();
        }
        let reached = self.registry.most_have_reached(self.env.now(), self.config.drift_rate);
        reached.unwrap_or_else(|| self.env.wall())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.registry.changes()
    }

    /// A fresh owner token: it signs one attempt.
    pub(crate) fn sign(&self) -> Owner {
        if self.config.sabotaged(Sabotage::TokenReused) {
            return Owner::sign(&self.config.worker, 0, 0);
        }
        Owner::sign(&self.config.worker, self.env.random(), self.env.random())
    }

    /// Asks one node; the vote comes within the node timeout.
    pub(crate) fn ask(&self, node: usize, request: Request, reply: ReplyTo) {
        let deadline = self.env.now() + self.config.node_timeout;
        self.pending(
            node,
            PendingRequest { operation: Operation::Ask(request), deadline, reply: Some(reply) },
        );
    }

    /// Asks every node at once and gives where the votes will arrive: one a node, within the node timeout.
    pub(crate) fn ask_all(&self, request: impl Fn(usize) -> Request) -> VoteReceiver {
        self.ask_some(0..self.len(), request)
    }

    /// As [`NodePool::ask_all`], for some nodes.
    pub(crate) fn ask_some(
        &self,
        nodes: impl IntoIterator<Item = usize>,
        request: impl Fn(usize) -> Request,
    ) -> VoteReceiver {
        let (sender, votes) = vote_channel();
        for node in nodes {
            self.ask(node, request(node), ReplyTo { sender: sender.clone(), ticket: 0 });
        }
        votes
    }

    /// Frees `resource` wherever `may_stand` says that `owner` may stand. Synchronous, so that `Drop` may call
    /// it; travels behind everything posted before, and is kept for a node that is away until the key has
    /// ended by itself.
    pub(crate) fn release(
        &self,
        resource: &Resource,
        owner: &Owner,
        may_stand: impl Fn(usize) -> bool,
        reply: Option<&ReplyTo>,
    ) {
        let request = Request::Release { resource: resource.clone(), owner: owner.clone() };
        self.free(&request, may_stand, reply);
    }

    /// As [`NodePool::release`], for any request that only takes away.
    pub(crate) fn free(&self, release: &Request, may_stand: impl Fn(usize) -> bool, reply: Option<&ReplyTo>) {
        let deadline = self.env.now() + self.config.quarantine() + self.config.fence();
        for node in (0..self.len()).filter(|&node| may_stand(node)) {
            let request = release.clone();
            self.pending(
                node,
                PendingRequest { operation: Operation::Ask(request), deadline, reply: reply.cloned() },
            );
        }
    }

    /// Begins to wait for a release of `resource`: what is asked after this finds the nodes listening.
    pub(crate) fn waiting(self: &Arc<Self>, resource: &Resource) -> Subscription {
        Subscription::begin(self, resource)
    }

    /// Ends the quarantine of every node that is in one.
    pub(crate) fn admit_all(&self) -> VoteReceiver {
        let (sender, votes) = vote_channel();
        let deadline = self.env.now() + self.config.node_timeout * 2;
        for node in 0..self.len() {
            let reply = Some(ReplyTo { sender: sender.clone(), ticket: 0 });
            self.pending(node, PendingRequest { operation: Operation::Admit, deadline, reply });
        }
        votes
    }

    /// Asks every driver to send what it has and to end.
    pub(crate) fn flush(&self) {
        self.flush.cancel();
    }

    /// The outcome of each node, for an error. A round ends as soon as its verdict is settled, so some nodes may not
    /// have answered by then: the report names what keeps such a node from voting, where that is known.
    pub(crate) fn report(&self, outcomes: impl IntoIterator<Item = NodeOutcome>) -> Report {
        let status = self.status();
        let known = |(status, outcome): (NodeStatus, NodeOutcome)| {
            let outcome = match outcome {
                NodeOutcome::Pending => NodeOutcome::of_state(&status.state),
                answered => answered,
            };
            (status.name, outcome)
        };
        Report { needed: self.majority(), nodes: status.into_iter().zip(outcomes).map(known).collect() }
    }

    /// The state of each node as a report: a node that votes has *agreed*.
    pub(crate) fn report_of(&self, nodes: &[NodeStatus]) -> Report {
        let outcome = |node: &NodeStatus| match node.state {
            NodeState::Trusted => (Arc::clone(&node.name), NodeOutcome::Granted),
            _ => (Arc::clone(&node.name), NodeOutcome::of_state(&node.state)),
        };
        Report { needed: self.majority(), nodes: nodes.iter().map(outcome).collect() }
    }

    /// Whether a majority of the nodes has voted at one time since this worker started.
    pub(crate) fn has_had_quorum(&self) -> bool {
        self.registry.has_had_quorum()
    }

    pub(crate) fn waits(&self) -> &WaiterRegistry {
        &self.waits
    }

    /// Tells every driver what is waited for. One that has ended needs not know.
    pub(crate) fn listen(&self, listen: &Listen) {
        for mailbox in &self.mailboxes {
            let _ = mailbox.send(DriverMessage::Listen(listen.clone()));
        }
    }

    fn pending(&self, node: usize, pending: PendingRequest) {
        // A driver that has ended takes no mail.
        if let Err(mpsc::error::SendError(DriverMessage::PendingRequest(PendingRequest {
            reply: Some(reply),
            ..
        }))) = self.mailboxes[node].send(DriverMessage::PendingRequest(pending))
        {
            let answer = Answer::Failed(Cause::Stopped);
            let memory = self.registry.node_epoch(node);
            let vote = Vote { node, ticket: reply.ticket, sent: None, memory, answer };
            let _ = reply.sender.send(vote);
        }
    }
}
