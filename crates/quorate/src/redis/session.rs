use crate::redis::{
    address::Login,
    command::cmd,
    durability::Durability,
    encode::encode,
    handshake::Handshake,
    keys::Keys,
    link::Link,
    plain_acquires::PlainAcquires,
    pubsub::PubSub,
    replies::Replies,
    scripts::Loaded,
    server_facts::{FactsReading, ServerFacts},
    session_io::{PendingReply, PushHandler, SharedIo, reply_slot},
};
use crate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Listen, Push, PushSender, Session},
};
use std::{fmt, future, mem, sync::Arc, task::Context, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The longest time for which a dropped session continues to send the requests that it was given, if the
/// server has stopped reading. After this time the requests are discarded. The leases that they would have
/// released expire.
pub const LINGER: Duration = Duration::from_secs(1);

/// The interval at which a session checks that the facts on which the handshake decided are unchanged: the server's
/// role, its eviction policy, and its durability.
pub const FACT_CHECK: Duration = Duration::from_secs(5);

/// A session with one Redis server. A session has one connection, which is never reopened.
///
/// The driver of the session carries the connection's input and output on, or else a task of the session. The task
/// ends when the connection breaks, or when a fact that the server reported in the handshake has changed. It
/// also ends when the session has been dropped and its requests have been sent, at most [`LINGER`] later.
pub struct RedisSession {
    io: Arc<SharedIo>,
    keys: Keys,
    scripts: Loaded,
    plain: Arc<PlainAcquires>,
    /// The subscriptions of the session. `None` if the server cannot push.
    pubsub: Option<PubSub>,
    /// True if the server was no replica at the handshake.
    of_primary: bool,
    gone: CancellationToken,
}

impl RedisSession {
    /// Takes over a connection whose handshake is done.
    pub(crate) fn start(
        env: &Env,
        mut link: Link,
        keys: Keys,
        handshake: Handshake,
        push_sender: PushSender,
    ) -> Self {
        link.allow_long_replies();
        let (connection, login) = link.into_parts();
        let gone = CancellationToken::new();
        let pubsub = PubSub::new(keys.waiters().concat());
        let pushes = PushHandler { pubsub: pubsub.clone(), push_sender: push_sender.clone() };
        let login = Arc::new(login);
        let io = Arc::new(SharedIo::new(connection, pushes, Arc::clone(&login)));
        let of_primary = !handshake.facts.is_replica();
        let watch = Watch { facts: handshake.facts, login };
        env.spawn(serve(env.clone(), Arc::clone(&io), gone.clone(), push_sender, watch));
        let pubsub = handshake.pushes.then_some(pubsub);
        let plain = Arc::new(PlainAcquires::new(handshake.commands));
        Self { io, keys, scripts: handshake.scripts, plain, pubsub, of_primary, gone }
    }
}

impl Session for RedisSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let mut encoded = encode(&batch, &self.keys, &self.scripts, &self.plain);
        let bytes = mem::take(&mut encoded.bytes);
        let (delivery, reply) = reply_slot();
        let replies = Replies::new(encoded, batch, &self.keys, Arc::clone(&self.plain), self.of_primary);
        self.io.submit(bytes, PendingReply::Batch { replies, delivery });
        reply
    }

    fn poll_io(&mut self, context: &mut Context<'_>) {
        self.io.drive(context);
    }

    fn listen(&mut self, listen: Listen) {
        let Some(pubsub) = &self.pubsub else { return };
        let (command, begun, channels) = match listen {
            Listen::Begin(resource) => {
                ("SUBSCRIBE", true, pubsub.begin(self.keys.freed(&resource).concat(), resource))
            }
            Listen::End(resource) => ("UNSUBSCRIBE", false, pubsub.end(self.keys.freed(&resource).concat())),
        };
        for channel in channels {
            let bytes = cmd(command).arg(&channel).packed();
            self.io.submit(bytes, PendingReply::Confirmation { begun, channel });
        }
    }
}

impl fmt::Debug for RedisSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSession").field("open", &!self.io.has_ended()).finish_non_exhaustive()
    }
}

impl Drop for RedisSession {
    fn drop(&mut self) {
        self.gone.cancel();
        self.io.session_dropped();
    }
}

async fn serve(env: Env, io: Arc<SharedIo>, gone: CancellationToken, push_sender: PushSender, watch: Watch) {
    let lingering = async {
        tokio::select! { biased;
            () = gone.cancelled() => {}
            () = env.stopped().cancelled() => {}
        }
        env.sleep(LINGER).await;
    };
    let cause = tokio::select! { biased;
        () = future::poll_fn(|context| io.poll_task(context)) => Cause::Closed,
        cause = watch.changed(&env, &io) => cause,
        () = lingering => Cause::Closed,
    };
    io.close(&cause);
    if !gone.is_cancelled() {
        push_sender.push(Push::Closed(cause));
    }
}

/// Watches the facts about the server on which the handshake decided.
struct Watch {
    facts: ServerFacts,
    login: Arc<Login>,
}

impl Watch {
    /// Returns once a fact has changed, with a cause that names the fact.
    async fn changed(&self, env: &Env, io: &SharedIo) -> Cause {
        loop {
            env.sleep(FACT_CHECK).await;
            if let Some(why) = self.read(io).await.and_then(|now| self.facts.change(&now)) {
                let why = format!("{why}; a new connection decides whether it may vote");
                return self.login.redact(Cause::Changed(why.into()));
            }
        }
    }

    /// Reads the facts. Returns `None` if the server refuses to reply, for instance while it is busy. The facts then
    /// count as unchanged until the next check.
    async fn read(&self, io: &SharedIo) -> Option<ServerFacts> {
        let (reading, bytes) = FactsReading::new(self.facts.durability == Durability::Durable);
        let (reply, reply_rx) = oneshot::channel();
        io.submit_and_wake(bytes, PendingReply::Facts { reading, reply });
        match reply_rx.await {
            Ok(reading) => reading.facts(),
            // The session was dropped, or the connection broke. Another branch of `serve` ends the task then.
            Err(_) => future::pending().await,
        }
    }
}
