use crate::{
    address::Secret,
    durability::{self, Durability, durability},
    encode::{Keys, encode},
    handshake::{self, Handshake},
    pubsub::{PubSub, SubscriptionChange, confirms},
    reply,
    scripts::Loaded,
    wire::{Reader, Writer},
};
use quorate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Listen, Push, PushSender, Session},
};
use redis::Value;
use std::{fmt, future, io, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The longest time for which a dropped session continues to send the requests that it was given, if the
/// server has stopped reading. After this time the requests are discarded. The leases that they would have
/// released expire.
pub const LINGER: Duration = Duration::from_secs(1);

/// The interval at which a session with a durable server checks that the server is still durable.
pub const DURABILITY_CHECK: Duration = Duration::from_secs(5);

/// The size of a full write, in bytes. No further pending commands are added to a write that has reached this
/// size.
const WRITE_MAX: usize = 64 * 1024;

/// A session with one Redis server. A session has one connection, which is never reopened.
///
/// One task owns the connection. The task ends when the connection breaks, or when the server is no longer as durable
/// as it reported in the handshake. It also ends when the session has been dropped and its requests have been sent, at
/// most [`LINGER`] later.
pub struct RedisSession {
    jobs: mpsc::UnboundedSender<Job>,
    keys: Keys,
    scripts: Loaded,
    /// The subscriptions of the session. `None` if the server cannot push.
    pubsub: Option<PubSub>,
    /// The password of the connection. The password is removed from every error of the server.
    password: Option<Arc<Secret>>,
    _gone: DropGuard,
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
        let (jobs, inbox) = mpsc::unbounded_channel();
        let gone = CancellationToken::new();
        let pubsub = PubSub::default();
        let pushes = PushHandler { pubsub: pubsub.clone(), push_sender };
        let checked = (handshake.hello.durable == Some(true)).then(|| jobs.downgrade());
        env.spawn(serve(env.clone(), (reader, writer), inbox, gone.clone(), pushes, checked));
        let pubsub = handshake.pushes.then_some(pubsub);
        let password = password.map(Arc::new);
        Self { jobs, keys, scripts: handshake.scripts, pubsub, password, _gone: gone.drop_guard() }
    }
}

impl Session for RedisSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let encoded = encode(&batch, &self.keys, &self.scripts);
        let (reply, reply_rx) = oneshot::channel();
        // The send fails if the task has ended. Then the reply's channel is dropped, and the caller gets an
        // error.
        let pending = PendingReply::Replies { count: encoded.runs.len(), reply };
        let _ = self.jobs.send(Job { bytes: encoded.bytes, pending });
        let password = self.password.clone();
        async move {
            let values = reply_rx.await.map_err(|_| Cause::Closed)?;
            match password {
                Some(password) => reply::read_redacted(values, &encoded.runs, password.reveal()),
                None => reply::read(values, &encoded.runs),
            }
        }
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
        let _ = self.jobs.send(Job { bytes, pending: PendingReply::Confirmation { begun, channel } });
    }
}

impl fmt::Debug for RedisSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSession").field("open", &!self.jobs.is_closed()).finish_non_exhaustive()
    }
}

/// Bytes of commands to send, and the receiver of their replies.
struct Job {
    bytes: Vec<u8>,
    pending: PendingReply,
}

/// A reply that the server has not sent yet.
enum PendingReply {
    Replies {
        count: usize,
        reply: oneshot::Sender<Vec<Value>>,
    },
    /// The confirmation that a subscription has begun or ended. The server sends it as a push, or sends an error
    /// instead.
    Confirmation {
        begun: bool,
        channel: String,
    },
}

/// Passes the pushes of a server on to the worker.
struct PushHandler {
    pubsub: PubSub,
    push_sender: PushSender,
}

async fn serve(
    env: Env,
    (reader, writer): (Reader, Writer),
    inbox: mpsc::UnboundedReceiver<Job>,
    gone: CancellationToken,
    pushes: PushHandler,
    checked: Option<mpsc::WeakUnboundedSender<Job>>,
) {
    let (register, pending) = mpsc::unbounded_channel();
    let writing = async {
        if write(writer, inbox, register).await.is_ok() {
            // Everything has been sent, but replies may still arrive. The other branch ends the session when
            // the server closes the connection.
            future::pending::<()>().await;
        }
    };
    let lingering = async {
        tokio::select! { biased;
            () = gone.cancelled() => {}
            () = env.stopped().cancelled() => {}
        }
        env.sleep(LINGER).await;
    };
    // Reading comes first. So a reply that has arrived is delivered even if the connection has broken since.
    tokio::select! { biased;
        () = read(reader, pending, &pushes) => {}
        () = writing => {}
        () = watch_durability(&env, checked) => {}
        () = lingering => {}
    }
    if !gone.is_cancelled() {
        pushes.push_sender.push(Push::Closed);
    }
}

/// Returns once the server is no longer durable. `jobs` is the session's channel for commands. If `jobs` is
/// `None`, the server was not durable from the beginning, and this function never returns. The reference to
/// the channel is weak, so that the session can be dropped at any time.
async fn watch_durability(env: &Env, jobs: Option<mpsc::WeakUnboundedSender<Job>>) {
    let Some(jobs) = jobs else { return future::pending().await };
    let mut bytes = redis::cmd("INFO").arg("persistence").get_packed_command();
    for name in durability::SETTINGS {
        bytes.extend(redis::cmd("CONFIG").arg("GET").arg(name).get_packed_command());
    }
    loop {
        env.sleep(DURABILITY_CHECK).await;
        let (reply, reply_rx) = oneshot::channel();
        let pending = PendingReply::Replies { count: 1 + durability::SETTINGS.len(), reply };
        // The send fails if the session was dropped or the connection broke. Another branch of `serve` ends the
        // task in these cases.
        let sent =
            jobs.upgrade().is_some_and(|jobs| jobs.send(Job { bytes: bytes.clone(), pending }).is_ok());
        match reply_rx.await {
            Ok(values) if sent && !is_durable(&values) => return,
            Ok(_) => {}
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

/// Sends the jobs in order, until the session has been dropped and nothing is pending.
async fn write(
    mut writer: Writer,
    mut inbox: mpsc::UnboundedReceiver<Job>,
    register: mpsc::UnboundedSender<PendingReply>,
) -> io::Result<()> {
    while let Some(Job { mut bytes, pending }) = inbox.recv().await {
        // The receiver is registered before its commands are sent, so that the reply finds it.
        let _ = register.send(pending);
        while bytes.len() < WRITE_MAX {
            let Ok(more) = inbox.try_recv() else { break };
            bytes.extend_from_slice(&more.bytes);
            let _ = register.send(more.pending);
        }
        writer.send(&bytes).await?;
    }
    writer.finish().await
}

/// Delivers the replies in order, until the connection breaks or the server sends a reply without a request.
async fn read(mut reader: Reader, mut pending: mpsc::UnboundedReceiver<PendingReply>, pushes: &PushHandler) {
    let mut first: Option<PendingReply> = None;
    let mut values = Vec::new();
    while let Ok(value) = reader.next().await {
        // Every receiver is registered before its commands are sent. So a reply without a receiver shows that
        // the server is broken.
        first = first.or_else(|| pending.try_recv().ok());
        match (value, first.take()) {
            (Value::Push { kind, data }, waiting) => {
                let confirmed = matches!(&waiting, Some(PendingReply::Confirmation { begun, channel })
                    if confirms(&kind, &data, *begun, channel));
                if let Some(released) = pushes.pubsub.parse_release(&kind, &data) {
                    pushes.push_sender.push(released);
                }
                first = waiting.filter(|_| !confirmed);
            }
            // The server refused the subscription, because the connection's user has no permission for it.
            // Waiters poll instead. `quorate doctor` reports the missing permission.
            (Value::ServerError(_), Some(PendingReply::Confirmation { .. })) => {}
            (value, Some(PendingReply::Replies { count, reply })) => {
                values.push(value);
                if values.len() < count {
                    first = Some(PendingReply::Replies { count, reply });
                } else {
                    // The send fails if the caller has stopped waiting.
                    let _ = reply.send(std::mem::take(&mut values));
                }
            }
            (_, Some(PendingReply::Confirmation { .. }) | None) => return,
        }
    }
}
