use super::{
    Host, Link, Server, Trace, Truth,
    connection::{Connection, Content, Message},
};
use futures_util::{FutureExt, future::ready};
use quorate::node::{Batch, BatchReply, Cause, Hello, Listen, Node, PushSender, Session};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;

/// One server, as seen by the process of one worker over a link.
#[derive(Debug)]
pub struct SimNode {
    truth: Truth,
    host: Arc<Host>,
    link: Arc<Link>,
    server: Arc<Server>,
    trace: Trace,
    opened: AtomicU64,
}

impl SimNode {
    /// Returns the node with which the process `host` reaches `server` over `link`.
    pub fn new(truth: Truth, host: Arc<Host>, link: Arc<Link>, server: Arc<Server>, trace: Trace) -> Self {
        Self { truth, host, link, server, trace, opened: AtomicU64::new(0) }
    }

    /// Waits until a message that is sent now would have reached the server, and until the server's process is
    /// not stopped.
    async fn there(&self) {
        self.truth.reach(self.link.arrival()).await;
        self.link.open_there().await;
        self.server.awake().await;
    }

    async fn back(&self) {
        self.truth.reach(self.link.arrival()).await;
        self.link.open_back().await;
    }
}

impl Node for SimNode {
    type Session = SimSession;

    fn name(&self) -> &str {
        self.server.name()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the network belongs to no worker: it outlives their crashes"
    )]
    async fn open(&self, push_sender: PushSender) -> Result<(SimSession, Hello), Cause> {
        self.there().await;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let label = format!("{}>{}#{number}", self.host.name(), self.server.name());
        let connection = Connection::new(
            label,
            self.truth,
            Arc::clone(&self.host),
            Arc::clone(&self.link),
            Arc::clone(&self.server),
            self.trace.clone(),
            push_sender,
        );
        let hello = self.server.accept(&connection);
        self.back().await;
        let Some(hello) = hello else {
            return Err(Cause::Unreachable("connection refused".into()));
        };
        if connection.is_closed_by_sender() {
            return Err(Cause::Closed);
        }
        self.trace.note(format_args!(
            "{} open: {} {}",
            connection.label,
            hello.run_id,
            if hello.marker.is_some() { "marked" } else { "unmarked" }
        ));
        let (messages, queue) = mpsc::unbounded_channel();
        tokio::spawn(Arc::clone(&connection).carry(queue));
        Ok((SimSession { connection, messages, sent: 0, last_arrival: Duration::ZERO }, hello))
    }
}

/// One worker's end of a connection.
#[derive(Debug)]
pub struct SimSession {
    connection: Arc<Connection>,
    messages: mpsc::UnboundedSender<Message>,
    sent: u64,
    last_arrival: Duration,
}

impl SimSession {
    /// Sends `content` to the server, if the connection is open. Returns the number of the message.
    fn put(&mut self, content: Content) -> Option<u64> {
        let connection = &self.connection;
        // A crashed process has no network. The messages that its tasks send while they are dropped are lost.
        if connection.host.is_crashed() || connection.is_closed_by_sender() {
            return None;
        }
        self.sent += 1;
        connection.sent();
        self.last_arrival = connection.link.arrival().max(self.last_arrival);
        let fate = connection.link.fate();
        // The send fails only if the server's end of the connection is closed. In that case the message is
        // lost, as in a real network.
        let _ = self.messages.send(Message { number: self.sent, content, arrival: self.last_arrival, fate });
        Some(self.sent)
    }
}

impl Session for SimSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let sent = if self.connection.host.is_crashed() {
            Err(Content::Batch(batch))
        } else {
            self.connection.deliver_now(Content::Batch(batch))
        };
        match sent {
            Ok(reply) => ready(reply.ok_or(Cause::Closed)).left_future(),
            Err(content) => {
                let reply = self.put(content).map(|number| self.connection.expect(number));
                let reply = async move { reply.ok_or(Cause::Closed)?.await.map_err(|_| Cause::Closed) };
                reply.right_future()
            }
        }
    }

    fn listen(&mut self, listen: Listen) {
        if !self.connection.host.is_crashed()
            && let Err(content) = self.connection.deliver_now(Content::Listen(listen))
        {
            self.put(content);
        }
    }
}

impl Drop for SimSession {
    fn drop(&mut self) {
        self.connection.hang_up();
    }
}
