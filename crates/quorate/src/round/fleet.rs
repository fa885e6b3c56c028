use super::{
    Answer, Ballots, Marker, NodeOutcome, NodeState, NodeStatus, ReplyTo, Report, Sabotage, Setup,
    SetupError, Vote, Waiting, ballots,
    board::Board,
    core::Core,
    driver::{PostOffice, drive},
    flight::{Errand, Mail, Post},
    majority,
    trust::Judge,
    waiting::Waits,
};
use crate::{
    env::{Env, WallTime},
    node::{Cause, Listen, Node, Owner, Request, Resource},
};
use std::{fmt, sync::Arc};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// What a fleet tells its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetEvent {
    /// The node may have forgotten what it granted: look at the epochs.
    LostMemory,
}

type Start = Box<dyn FnOnce(Env, Core, PostOffice) + Send>;

/// A node that waits for its driver. Nodes of different kinds stand in one list: each is erased here.
pub(crate) struct Starter {
    name: Arc<str>,
    watched: bool,
    start: Start,
}

impl Starter {
    pub(crate) fn new<N: Node>(node: N) -> Self {
        let (name, watched) = (node.name().into(), node.ends_leases_by_wall_clock());
        let start: Start = Box::new(move |env: Env, core, office| {
            let inner = env.clone();
            env.spawn(async move { drive(node, inner, core, office).await });
        });
        Self { name, watched, start }
    }
}

impl fmt::Debug for Starter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Starter").field(&self.name).finish()
    }
}

/// All the drivers of a quorum: posts requests, hands out votes.
#[derive(Debug)]
pub(crate) struct Fleet {
    env: Env,
    setup: Setup,
    board: Arc<Board>,
    mailboxes: Vec<mpsc::UnboundedSender<Mail>>,
    waits: Arc<Waits>,
    flush: CancellationToken,
}

impl Fleet {
    /// Checks the setup and starts a driver a node.
    pub(crate) fn start(
        env: Env,
        setup: Setup,
        nodes: Vec<Starter>,
        events: &mpsc::UnboundedSender<FleetEvent>,
    ) -> Result<Self, SetupError> {
        let names: Vec<Arc<str>> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        setup.check(&names)?;
        let board = Arc::new(Board::new(&names));
        let judge = Arc::new(Judge { nodes: Marker::node_set(&names), setup: setup.clone() });
        let flush = CancellationToken::new();
        let waits = Arc::new(Waits::new(majority(names.len())));
        let mut mailboxes = Vec::new();
        for (me, node) in nodes.into_iter().enumerate() {
            let (mailbox, mail) = mpsc::unbounded_channel();
            mailboxes.push(mailbox);
            let (events, ears) = (events.clone(), Arc::clone(&waits));
            let office = PostOffice {
                mail,
                on_lost_memory: Box::new(move || {
                    // A keeper that has gone holds nothing.
                    let _ = events.send(FleetEvent::LostMemory);
                }),
                on_freed: Box::new(move |freed, told| ears.heard(me, freed, told)),
                changes: board.wake(me),
                flush: flush.clone(),
                flush_for: setup.node_timeout * 2,
            };
            let core = Core::new(me, node.watched, Arc::clone(&judge), Arc::clone(&board));
            (node.start)(env.clone(), core, office);
        }
        Ok(Self { env, setup, board, mailboxes, waits, flush })
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(crate) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.len())
    }

    pub(crate) fn name(&self, node: usize) -> Arc<str> {
        self.board.name(node)
    }

    pub(crate) fn epoch(&self, node: usize) -> u64 {
        self.board.epoch(node)
    }

    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        self.board.status()
    }

    /// The quorum's clock, or our own before a majority has been heard.
    pub(crate) fn wall(&self) -> WallTime {
        if self.setup.sabotaged(Sabotage::OwnWallClock) {
            return self.env.wall();
        }
        let reached = self.board.most_have_reached(self.env.now(), self.setup.drift_rate);
        reached.unwrap_or_else(|| self.env.wall())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.board.changes()
    }

    /// A fresh owner token: it signs one attempt.
    pub(crate) fn sign(&self) -> Owner {
        if self.setup.sabotaged(Sabotage::TokenReused) {
            return Owner::sign(&self.setup.worker, 0, 0);
        }
        Owner::sign(&self.setup.worker, self.env.random(), self.env.random())
    }

    /// Asks one node; the vote comes within the node timeout.
    pub(crate) fn ask(&self, node: usize, request: Request, reply: ReplyTo) {
        let deadline = self.env.now() + self.setup.node_timeout;
        self.post(node, Post { errand: Errand::Ask(request), deadline, reply: Some(reply) });
    }

    /// Asks every node at once and gives where the votes will arrive: one a node, within the node timeout.
    pub(crate) fn ask_all(&self, request: impl Fn(usize) -> Request) -> Ballots {
        self.ask_some(0..self.len(), request)
    }

    /// As [`Fleet::ask_all`], for some nodes.
    pub(crate) fn ask_some(
        &self,
        nodes: impl IntoIterator<Item = usize>,
        request: impl Fn(usize) -> Request,
    ) -> Ballots {
        let (ballots, votes) = ballots();
        for node in nodes {
            self.ask(node, request(node), ReplyTo { ballots: ballots.clone(), ticket: 0 });
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

    /// As [`Fleet::release`], for any request that only takes away.
    pub(crate) fn free(&self, release: &Request, may_stand: impl Fn(usize) -> bool, reply: Option<&ReplyTo>) {
        let deadline = self.env.now() + self.setup.quarantine() + self.setup.fence();
        for node in (0..self.len()).filter(|&node| may_stand(node)) {
            let request = release.clone();
            self.post(node, Post { errand: Errand::Ask(request), deadline, reply: reply.cloned() });
        }
    }

    /// Begins to wait for a release of `resource`: what is asked after this finds the nodes listening.
    pub(crate) fn waiting(self: &Arc<Self>, resource: &Resource) -> Waiting {
        Waiting::begin(self, resource)
    }

    /// Ends the quarantine of every node that is in one.
    pub(crate) fn admit_all(&self) -> Ballots {
        let (ballots, votes) = ballots();
        let deadline = self.env.now() + self.setup.node_timeout * 2;
        for node in 0..self.len() {
            let reply = Some(ReplyTo { ballots: ballots.clone(), ticket: 0 });
            self.post(node, Post { errand: Errand::Admit, deadline, reply });
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
        self.board.has_had_quorum()
    }

    pub(super) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Tells every driver what is waited for. One that has ended needs not know.
    pub(super) fn listen(&self, listen: &Listen) {
        for mailbox in &self.mailboxes {
            let _ = mailbox.send(Mail::Listen(listen.clone()));
        }
    }

    fn post(&self, node: usize, post: Post) {
        // A driver that has ended takes no mail.
        if let Err(mpsc::error::SendError(Mail::Post(Post { reply: Some(reply), .. }))) =
            self.mailboxes[node].send(Mail::Post(post))
        {
            let answer = Answer::Failed(Cause::Stopped);
            let memory = self.board.recall(node);
            let vote = Vote { node, ticket: reply.ticket, sent: None, memory, answer };
            let _ = reply.ballots.send(vote);
        }
    }
}
