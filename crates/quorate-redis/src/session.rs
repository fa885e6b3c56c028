use crate::{
    address::Secret,
    durability::{self, Durability, durability},
    encode::{Keys, encode},
    handshake::{self, Handshake},
    pubsub::{PubSub, confirms},
    reply,
    scripts::Loaded,
    wire::{Reader, Writer},
};
use quorate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Listen, Nudge, Push, Session},
};
use redis::Value;
use std::{fmt, future, io, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a dropped session goes on sending what it was given, to a server that has stopped reading. After
/// this it is given up: leases then end at their time.
pub const LINGER: Duration = Duration::from_secs(1);

/// How often a session with a server that reported itself durable checks that it still is.
pub const DURABILITY_CHECK: Duration = Duration::from_secs(5);

/// The most bytes that leave in one write, where more are waiting.
const WRITE_MAX: usize = 64 * 1024;

/// A session with one Redis server, over one connection, which is never reopened.
///
/// One task owns the connection. It ends when the connection breaks, when the server is no longer as durable as it
/// reported in the handshake, or when the session has been dropped and what it was given has left (at most [`LINGER`]
/// later).
pub struct RedisSession {
    jobs: mpsc::UnboundedSender<Job>,
    keys: Keys,
    scripts: Loaded,
    /// Nothing is listened for on a server that cannot push.
    pubsub: Option<PubSub>,
    /// What no error of the server's may repeat.
    password: Option<Arc<Secret>>,
    _gone: DropGuard,
}

impl RedisSession {
    /// Takes over a connection whose handshake is done.
    pub(crate) fn start(
        env: &Env,
        (mut reader, writer): (Reader, Writer),
        keys: Keys,
        shaken: Handshake,
        password: Option<Secret>,
        nudge: Nudge,
    ) -> Self {
        reader.is_known();
        let (jobs, inbox) = mpsc::unbounded_channel();
        let gone = CancellationToken::new();
        let pubsub = PubSub::default();
        let hearing = Hearing { pubsub: pubsub.clone(), nudge };
        let checked = (shaken.hello.durable == Some(true)).then(|| jobs.downgrade());
        env.spawn(serve(env.clone(), (reader, writer), inbox, gone.clone(), hearing, checked));
        let pubsub = shaken.pushes.then_some(pubsub);
        let password = password.map(Arc::new);
        Self { jobs, keys, scripts: shaken.scripts, pubsub, password, _gone: gone.drop_guard() }
    }
}

impl Session for RedisSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let encoded = encode(&batch, &self.keys, &self.scripts);
        let (reply, answer) = oneshot::channel();
        // A task that has ended drops the job, and the reply with it.
        let owed = PendingReply::Replies { count: encoded.runs.len(), reply };
        let _ = self.jobs.send(Job { bytes: encoded.bytes, owed });
        let password = self.password.clone();
        async move {
            let values = answer.await.map_err(|_| Cause::Closed)?;
            match password {
                Some(password) => reply::read_without(values, &encoded.runs, password.reveal()),
                None => reply::read(values, &encoded.runs),
            }
        }
    }

    fn listen(&mut self, listen: Listen) {
        let Some(pubsub) = &self.pubsub else { return };
        let (channel, begun, changed) = match listen {
            Listen::Begin(resource) => {
                let channel = self.keys.freed(&resource);
                let changed = pubsub.begin(&channel, resource);
                (channel, true, changed)
            }
            Listen::End(resource) => {
                let channel = self.keys.freed(&resource);
                let changed = pubsub.end(&channel);
                (channel, false, changed)
            }
        };
        if changed {
            let command = if begun { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
            let bytes = redis::cmd(command).arg(&channel).get_packed_command();
            let _ = self.jobs.send(Job { bytes, owed: PendingReply::Confirmation { begun, channel } });
        }
    }
}

impl fmt::Debug for RedisSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSession").field("open", &!self.jobs.is_closed()).finish_non_exhaustive()
    }
}

/// Commands to send, and who waits for what they say.
struct Job {
    bytes: Vec<u8>,
    owed: PendingReply,
}

/// What the server still has to say.
enum PendingReply {
    Replies {
        count: usize,
        reply: oneshot::Sender<Vec<Value>>,
    },
    /// That a subscription has begun, or ended: a push, or an error in place of it.
    Confirmation {
        begun: bool,
        channel: String,
    },
}

/// What is made of that which a server says unasked.
struct Hearing {
    pubsub: PubSub,
    nudge: Nudge,
}

async fn serve(
    env: Env,
    (reader, writer): (Reader, Writer),
    inbox: mpsc::UnboundedReceiver<Job>,
    gone: CancellationToken,
    hearing: Hearing,
    checked: Option<mpsc::WeakUnboundedSender<Job>>,
) {
    let (owe, owed) = mpsc::unbounded_channel();
    let writing = async {
        if write(writer, inbox, owe).await.is_ok() {
            // All has left. What is still owed may arrive until the server closes too.
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
    // Reading first: a reply that has arrived is given out even if the connection broke behind it.
    tokio::select! { biased;
        () = read(reader, owed, &hearing) => {}
        () = writing => {}
        () = stays_durable(&env, checked) => {}
        () = lingering => {}
    }
    if !gone.is_cancelled() {
        hearing.nudge.push(Push::Closed);
    }
}

/// Returns once the server is no longer durable; never for one that was not. The jobs are those of its session, which
/// may be dropped at any time.
async fn stays_durable(env: &Env, jobs: Option<mpsc::WeakUnboundedSender<Job>>) {
    let Some(jobs) = jobs else { return future::pending().await };
    let mut bytes = redis::cmd("INFO").arg("persistence").get_packed_command();
    for name in durability::SETTINGS {
        bytes.extend(redis::cmd("CONFIG").arg("GET").arg(name).get_packed_command());
    }
    loop {
        env.sleep(DURABILITY_CHECK).await;
        let (reply, answer) = oneshot::channel();
        let owed = PendingReply::Replies { count: 1 + durability::SETTINGS.len(), reply };
        // A session that is dropped has its own end, and so has a broken connection.
        let sent = jobs.upgrade().is_some_and(|jobs| jobs.send(Job { bytes: bytes.clone(), owed }).is_ok());
        match answer.await {
            Ok(values) if sent && !is_durable(&values) => return,
            Ok(_) => {}
            Err(_) => return future::pending().await,
        }
    }
}

/// Reads the replies to INFO and to CONFIG GET of each of [`durability::SETTINGS`]. A server that refuses to answer, as
/// it does while it is busy, is asked again later.
fn is_durable(values: &[Value]) -> bool {
    let [info, settings @ ..] = values else { return true };
    let info = match info {
        Value::VerbatimString { text, .. } => text.as_str().into(),
        info => match reply::text(info) {
            Ok(text) => text,
            Err(_) => return true,
        },
    };
    let told = durability::SETTINGS.iter().zip(settings).filter_map(|(name, value)| {
        let value = handshake::setting(value).ok()??;
        Some(((*name).to_owned(), value.to_string()))
    });
    !matches!(durability(&handshake::facts(&info), &told.collect()), Durability::Volatile(_))
}

/// Sends what comes in, in order, until the session has been dropped.
async fn write(
    mut writer: Writer,
    mut inbox: mpsc::UnboundedReceiver<Job>,
    owe: mpsc::UnboundedSender<PendingReply>,
) -> io::Result<()> {
    while let Some(Job { mut bytes, owed }) = inbox.recv().await {
        // Before the commands leave, or a reply could find nobody.
        let _ = owe.send(owed);
        while bytes.len() < WRITE_MAX {
            let Ok(more) = inbox.try_recv() else { break };
            bytes.extend_from_slice(&more.bytes);
            let _ = owe.send(more.owed);
        }
        writer.send(&bytes).await?;
    }
    writer.finish().await
}

/// Gives out the replies, in order, until the connection breaks or says what nobody asked.
async fn read(mut reader: Reader, mut owed: mpsc::UnboundedReceiver<PendingReply>, hearing: &Hearing) {
    let mut first: Option<PendingReply> = None;
    let mut values = Vec::new();
    while let Ok(value) = reader.next().await {
        // Commands are written only once they are owed for, so an answer to nothing is a broken server.
        first = first.or_else(|| owed.try_recv().ok());
        match (value, first.take()) {
            (Value::Push { kind, data }, waiting) => {
                let confirmed = matches!(&waiting, Some(PendingReply::Confirmation { begun, channel })
                    if confirms(&kind, &data, *begun, channel));
                if let Some(released) = hearing.pubsub.released(&kind, &data) {
                    hearing.nudge.push(released);
                }
                first = waiting.filter(|_| !confirmed);
            }
            // The user may not listen: its waiters look for themselves. `quorate doctor` tells.
            (Value::ServerError(_), Some(PendingReply::Confirmation { .. })) => {}
            (value, Some(PendingReply::Replies { count, reply })) => {
                values.push(value);
                if values.len() < count {
                    first = Some(PendingReply::Replies { count, reply });
                } else {
                    // Nobody may be waiting any more.
                    let _ = reply.send(std::mem::take(&mut values));
                }
            }
            (_, Some(PendingReply::Confirmation { .. }) | None) => return,
        }
    }
}
