use crate::{
    address::Secret,
    durability::{self, Durability, durability},
    encode::{Keys, encode},
    handshake::{self, Handshake},
    pubsub::{PubSub, SubscriptionChange},
    reply::{self, Replies},
    scripts::Loaded,
    session_io::{PendingReply, PushHandler, SharedIo, reply_slot},
    wire::{Reader, Writer},
};
use quorate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Listen, Push, PushSender, Session},
};
use redis::Value;
use std::{fmt, future, sync::Arc, task::Context, time::Duration};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The longest time for which a dropped session continues to send the requests that it was given, if the
/// server has stopped reading. After this time the requests are discarded. The leases that they would have
/// released expire.
pub const LINGER: Duration = Duration::from_secs(1);

/// The interval at which a session with a durable server checks that the server is still durable.
pub const DURABILITY_CHECK: Duration = Duration::from_secs(5);

/// A session with one Redis server. A session has one connection, which is never reopened.
///
/// The driver of the session carries the connection's input and output on, or else a task of the session. The task
/// ends when the connection breaks, or when the server is no longer as durable as it reported in the handshake. It
/// also ends when the session has been dropped and its requests have been sent, at most [`LINGER`] later.
pub struct RedisSession {
    io: Arc<SharedIo>,
    keys: Keys,
    scripts: Loaded,
    /// The subscriptions of the session. `None` if the server cannot push.
    pubsub: Option<PubSub>,
    gone: CancellationToken,
}

impl RedisSession {
    /// Takes over a connection whose handshake is done.
    pub(crate) fn start(
        env: &Env,
        (mut reader, writer): (Reader, Writer),
        keys: Keys,
        handshake: Handshake,
        password: Option<Secret>,
        push_sender: PushSender,
    ) -> Self {
        reader.allow_long_replies();
        let gone = CancellationToken::new();
        let pubsub = PubSub::default();
        let pushes = PushHandler { pubsub: pubsub.clone(), push_sender: push_sender.clone() };
        let io = Arc::new(SharedIo::new((reader, writer), pushes, password.map(Arc::new)));
        let is_durable = handshake.hello.durable == Some(true);
        env.spawn(serve(env.clone(), Arc::clone(&io), gone.clone(), push_sender, is_durable));
        let pubsub = handshake.pushes.then_some(pubsub);
        Self { io, keys, scripts: handshake.scripts, pubsub, gone }
    }
}

impl Session for RedisSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let encoded = encode(&batch, &self.keys, &self.scripts);
        let (delivery, reply) = reply_slot();
        let replies = Replies::new(encoded.expected);
        self.io.submit(encoded.bytes, PendingReply::Batch { replies, delivery });
        reply
    }

    fn poll_io(&mut self, context: &mut Context<'_>) {
        self.io.drive(context);
    }

    fn listen(&mut self, listen: Listen) {
        let Some(pubsub) = &self.pubsub else { return };
        match listen {
            Listen::Begin(resource) => {
                let channel = self.keys.freed(&resource);
                let change = pubsub.begin(&channel, resource);
                // A script publishes a release only if the waiters' channel has a subscriber. So the
                // subscription to the waiters' channel begins before the first subscription to a resource's
                // channel, and ends after the last one.
                if change == Some(SubscriptionChange::FirstOrLast) {
                    self.subscribe(true, self.keys.waiters());
                }
                if change.is_some() {
                    self.subscribe(true, channel);
                }
            }
            Listen::End(resource) => {
                let channel = self.keys.freed(&resource);
                let change = pubsub.end(&channel);
                if change.is_some() {
                    self.subscribe(false, channel);
                }
                if change == Some(SubscriptionChange::FirstOrLast) {
                    self.subscribe(false, self.keys.waiters());
                }
            }
        }
    }
}

impl RedisSession {
    /// Sends the command that begins (`begun` is true) or ends the subscription to `channel`.
    fn subscribe(&self, begun: bool, channel: String) {
        let command = if begun { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let bytes = redis::cmd(command).arg(&channel).get_packed_command();
        self.io.submit(bytes, PendingReply::Confirmation { begun, channel });
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

async fn serve(
    env: Env,
    io: Arc<SharedIo>,
    gone: CancellationToken,
    push_sender: PushSender,
    is_durable: bool,
) {
    let lingering = async {
        tokio::select! { biased;
            () = gone.cancelled() => {}
            () = env.stopped().cancelled() => {}
        }
        env.sleep(LINGER).await;
    };
    tokio::select! { biased;
        () = future::poll_fn(|context| io.poll_task(context)) => {}
        () = watch_durability(&env, &io, is_durable) => {}
        () = lingering => {}
    }
    io.close();
    if !gone.is_cancelled() {
        push_sender.push(Push::Closed);
    }
}

/// Returns once the server is no longer durable. If the server was not durable from the beginning, this function
/// never returns.
async fn watch_durability(env: &Env, io: &SharedIo, is_durable_now: bool) {
    if !is_durable_now {
        return future::pending().await;
    }
    let mut bytes = redis::cmd("INFO").arg("persistence").get_packed_command();
    for name in durability::SETTINGS {
        bytes.extend(redis::cmd("CONFIG").arg("GET").arg(name).get_packed_command());
    }
    loop {
        env.sleep(DURABILITY_CHECK).await;
        let (reply, reply_rx) = oneshot::channel();
        let count = 1 + durability::SETTINGS.len();
        io.submit_and_wake(bytes.clone(), PendingReply::Values { count, values: Vec::new(), reply });
        match reply_rx.await {
            Ok(values) if !is_durable(&values) => return,
            Ok(_) => {}
            // The session was dropped, or the connection broke. Another branch of `serve` ends the task in these
            // cases.
            Err(_) => return future::pending().await,
        }
    }
}

/// Returns whether the server is still durable, by its replies to INFO and to CONFIG GET of each of
/// [`durability::SETTINGS`]. A server that refuses to reply, for instance while it is busy, counts as durable
/// until the next check.
fn is_durable(values: &[Value]) -> bool {
    let [info, settings @ ..] = values else { return true };
    let info = match info {
        Value::VerbatimString { text, .. } => text.as_str().into(),
        info => match reply::text(info) {
            Ok(text) => text,
            Err(_) => return true,
        },
    };
    let reported = durability::SETTINGS.iter().zip(settings).filter_map(|(name, value)| {
        let value = handshake::setting(value).ok()??;
        Some(((*name).to_owned(), value.to_string()))
    });
    !matches!(durability(&handshake::facts(&info), &reported.collect()), Durability::Volatile(_))
}
