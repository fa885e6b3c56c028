use crate::{
    encode::{Keys, encode},
    reply,
    scripts::Loaded,
    wire::{Reader, Writer},
};
use quorate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Nudge, Push, Session},
};
use redis::Value;
use std::{fmt, future, io, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a dropped session goes on sending what it was given, to a server that has stopped reading. After
/// this it is given up: leases then end at their time.
pub const LINGER: Duration = Duration::from_secs(1);

/// The most bytes that leave in one write, where more are waiting.
const WRITE_MAX: usize = 64 * 1024;

/// A session with one Redis server, over one connection, which is never reopened.
///
/// One task owns the connection. It ends when the connection breaks, or when the session has been dropped
/// and what it was given has left (at most [`LINGER`] later).
pub struct RedisSession {
    jobs: mpsc::UnboundedSender<Job>,
    keys: Keys,
    scripts: Loaded,
    _gone: DropGuard,
}

impl RedisSession {
    /// Takes over a connection whose handshake is done.
    pub(crate) fn start(
        env: &Env,
        (mut reader, writer): (Reader, Writer),
        keys: Keys,
        scripts: Loaded,
        nudge: Nudge,
    ) -> Self {
        reader.is_known();
        let (jobs, inbox) = mpsc::unbounded_channel();
        let gone = CancellationToken::new();
        env.spawn(serve(env.clone(), reader, writer, inbox, gone.clone(), nudge));
        Self { jobs, keys, scripts, _gone: gone.drop_guard() }
    }
}

impl Session for RedisSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let encoded = encode(&batch, &self.keys, &self.scripts);
        let (reply, answer) = oneshot::channel();
        // A task that has ended drops the job, and the reply with it.
        let _ =
            self.jobs.send(Job { bytes: encoded.bytes, owed: Owed { replies: encoded.runs.len(), reply } });
        async move {
            let values = answer.await.map_err(|_| Cause::Closed)?;
            reply::read(values, &encoded.runs)
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
    owed: Owed,
}

/// Replies that are still to come.
struct Owed {
    replies: usize,
    reply: oneshot::Sender<Vec<Value>>,
}

async fn serve(
    env: Env,
    reader: Reader,
    writer: Writer,
    inbox: mpsc::UnboundedReceiver<Job>,
    gone: CancellationToken,
    nudge: Nudge,
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
        () = read(reader, owed) => {}
        () = writing => {}
        () = lingering => {}
    }
    if !gone.is_cancelled() {
        nudge.push(Push::Closed);
    }
}

/// Sends what comes in, in order, until the session has been dropped.
async fn write(
    mut writer: Writer,
    mut inbox: mpsc::UnboundedReceiver<Job>,
    owe: mpsc::UnboundedSender<Owed>,
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
async fn read(mut reader: Reader, mut owed: mpsc::UnboundedReceiver<Owed>) {
    let mut waiting: Option<(Owed, Vec<Value>)> = None;
    while let Ok(value) = reader.next().await {
        // Commands are written only once they are owed for, so an answer to nothing is a broken server.
        let Some((owed, mut values)) =
            waiting.take().or_else(|| owed.try_recv().ok().map(|owed| (owed, Vec::new())))
        else {
            return;
        };
        values.push(value);
        if values.len() == owed.replies {
            // Nobody may be waiting any more.
            let _ = owed.reply.send(values);
        } else {
            waiting = Some((owed, values));
        }
    }
}
