use super::{Host, Link, Server, Trace, Truth, link::Fate};
use quorate::node::{Batch, BatchReply, Listen, Push, PushSender, ReleasedLease, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// One connection between a worker and a server, as the network handles it. Requests that have left the
/// sender run on the server in their order, even after the sender has closed its end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) label: String,
    pub(super) truth: Truth,
    pub(super) host: Arc<Host>,
    pub(super) link: Arc<Link>,
    pub(super) server: Arc<Server>,
    pub(super) trace: Trace,
    push_sender: PushSender,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True if the sender's end is closed. Then the sender receives no messages.
    sender_closed: bool,
    /// True if the server's end is closed. Then the server reads no messages.
    reset: bool,
    /// The number of the last request that still arrives. All later requests are lost. `None` if no request
    /// is lost.
    cut_behind: Option<u64>,
    /// The channels on which the sender waits for replies, by the number of the request.
    waiting: BTreeMap<u64, oneshot::Sender<BatchReply>>,
    last_reply: Duration,
    /// The number of messages that have been sent and have not reached the server.
    on_the_way: usize,
    /// The resources whose releases the server must report on this connection.
    listens: BTreeSet<Resource>,
}

/// The content of a message to the server.
#[derive(Debug)]
pub(super) enum Content {
    Batch(Batch),
    Listen(Listen),
}

/// A message in flight to the server.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) content: Content,
    pub(super) arrival: Duration,
    pub(super) fate: Fate,
}

impl Connection {
    pub(super) fn new(
        label: String,
        truth: Truth,
        host: Arc<Host>,
        link: Arc<Link>,
        server: Arc<Server>,
        trace: Trace,
        push_sender: PushSender,
    ) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { label, truth, host, link, server, trace, push_sender, state })
    }

    /// Returns `true` if the sender's end is closed.
    pub(super) fn is_closed_by_sender(&self) -> bool {
        self.state().sender_closed
    }

    /// Returns the channel on which the reply to request `number` will arrive.
    pub(super) fn expect(&self, number: u64) -> oneshot::Receiver<BatchReply> {
        let (tx, rx) = oneshot::channel();
        self.state().waiting.insert(number, tx);
        rx
    }

    /// Closes the sender's end. Messages that the sender has already sent still arrive.
    pub(super) fn hang_up(&self) {
        let mut state = self.state();
        state.sender_closed = true;
        state.waiting.clear();
    }

    /// Closes the server's end. If the link from the server to the sender is open, the sender's end closes too.
    pub(super) fn reset_by_server(&self) {
        self.state().reset = true;
        if self.link.is_open_back() {
            self.break_off(None);
        }
    }

    /// Breaks the connection at both ends, even if the link is cut.
    pub(super) fn tear(&self) {
        self.state().reset = true;
        self.break_off(None);
    }

    /// Closes the sender's end because the connection broke. Requests that the sender sent earlier still
    /// arrive. If `cut_behind` is set, those with a higher number are lost.
    pub(super) fn break_off(&self, cut_behind: Option<u64>) {
        let mut state = self.state();
        state.cut_behind = state.cut_behind.or(cut_behind);
        if state.sender_closed {
            return;
        }
        state.sender_closed = true;
        state.waiting.clear();
        drop(state);
        self.push_sender.push(Push::Closed(quorate::node::Cause::Closed));
    }

    /// Carries requests to the server in their order. Returns once the sender has closed its end and all its
    /// requests have arrived, or once the server's end is closed.
    pub(super) async fn carry(self: Arc<Self>, mut messages: mpsc::UnboundedReceiver<Message>) {
        let mut not_before = Duration::ZERO;
        while let Some(message) = messages.recv().await {
            let _arrives = OnTheWay(&self);
            self.truth.reach(message.arrival.max(not_before)).await;
            self.link.open_there().await;
            if let Fate::BreaksOff { runs, later } = message.fate {
                let cut_behind = if runs { None } else { Some(message.number.saturating_sub(1)) };
                self.trace.note(format_args!("{} breaks off, runs: {runs}", self.label));
                self.break_off(cut_behind);
                not_before = self.truth.now() + later;
                self.truth.reach(not_before).await;
            }
            self.server.awake().await;
            if self.state().reset {
                return;
            }
            if message.fate == Fate::Lost {
                // The connection is a stream without gaps, so all requests after a lost one are lost too.
                self.state().cut_behind.get_or_insert(message.number.saturating_sub(1));
            }
            if self.state().cut_behind.is_some_and(|last| message.number > last) {
                self.trace.note(format_args!("{}.{} lost", self.label, message.number));
                continue;
            }
            self.arrived(message);
        }
    }

    /// Counts a message that is sent to [`Connection::carry`].
    pub(super) fn sent(&self) {
        self.state().on_the_way += 1;
    }

    /// Hands `content` to the server at once, if no message is ahead of it and the network takes no time.
    /// Returns `content` if this is not possible. The reply to a batch is `None` if the connection has ended.
    pub(super) fn deliver_now(&self, content: Content) -> Result<Option<BatchReply>, Content> {
        let ready = self.link.is_instant() && self.server.is_awake() && {
            let state = self.state();
            state.on_the_way == 0 && !state.reset && !state.sender_closed
        };
        if !ready {
            return Err(content);
        }
        Ok(self.accept(content).map(|batch| self.server.run(&batch)))
    }

    /// Begins or ends a subscription, or returns the batch to run.
    fn accept(&self, content: Content) -> Option<Batch> {
        match content {
            Content::Batch(batch) => return Some(batch),
            Content::Listen(Listen::Begin(resource)) => self.state().listens.insert(resource),
            Content::Listen(Listen::End(resource)) => self.state().listens.remove(&resource),
        };
        None
    }

    fn arrived(self: &Arc<Self>, message: Message) {
        let Some(batch) = self.accept(message.content) else { return };
        if self.is_closed_by_sender() {
            self.server.count_request_of_closed_sender();
        }
        let reply = self.server.run(&batch);
        self.note(message.number, &batch, &reply);
        if message.fate != Fate::ReplyLost {
            self.carry_back(message.number, reply);
        }
    }

    /// Returns `true` if the server must report releases of `resource` on this connection.
    pub(super) fn listens(&self, resource: &Resource) -> bool {
        self.state().listens.contains(resource)
    }

    /// Sends a release message to the client. The network may lose the message.
    #[expect(
        clippy::disallowed_methods,
        reason = "the network belongs to no worker: it outlives their crashes"
    )]
    pub(super) fn report_release(self: &Arc<Self>, freed: &ReleasedLease, notified: u32) {
        if self.link.loses_push() {
            return;
        }
        if self.link.is_instant() {
            if !self.is_closed_by_sender() {
                self.push_sender.push(Push::Released { lease: freed.clone(), notified });
            }
            return;
        }
        let arrival = self.link.arrival().max(self.state().last_reply);
        self.state().last_reply = arrival;
        let (connection, freed) = (Arc::clone(self), freed.clone());
        tokio::spawn(async move {
            connection.truth.reach(arrival).await;
            connection.link.open_back().await;
            if !connection.is_closed_by_sender() {
                connection.push_sender.push(Push::Released { lease: freed, notified });
            }
        });
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the network belongs to no worker: it outlives their crashes"
    )]
    fn carry_back(self: &Arc<Self>, number: u64, reply: BatchReply) {
        let arrival = self.link.arrival().max(self.state().last_reply);
        self.state().last_reply = arrival;
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            connection.truth.reach(arrival).await;
            connection.link.open_back().await;
            let waiting = connection.state().waiting.remove(&number);
            if let Some(waiting) = waiting {
                // The send fails if the sender has stopped waiting for the reply. This is not an error.
                let _ = waiting.send(reply);
            }
        });
    }

    fn note(&self, number: u64, batch: &Batch, reply: &BatchReply) {
        if !self.trace.is_written() {
            return;
        }
        let mut text = String::new();
        for (request, reply) in batch.requests.iter().zip(&reply.replies) {
            // `write!` to a string never fails.
            let _ = write!(text, " {}", super::trace::exchange(request, reply));
        }
        self.trace.note(format_args!("{}.{number}{text}", self.label));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a message as arrived, or lost, when it is dropped.
struct OnTheWay<'a>(&'a Connection);

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.on_the_way = state.on_the_way.saturating_sub(1);
    }
}
