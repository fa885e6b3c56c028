//! The pings of jobs: requests to a service that reports a job which no longer sends them.

use super::{
    client::{Call, Client, JSON},
    queue::{Counts, Outcome},
};
use crate::config::{JobConfig, PingConfig, PingEvent};
use axum::body::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use quorate::{
    env::{Env, ScopedTask},
    plain::plain,
};
use std::{collections::BTreeMap, io, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// The largest number of pings that wait.
const QUEUE_MAX: usize = 256;
/// The largest number of pings that are sent at the same time.
const AT_ONCE: usize = 16;
/// The time for one attempt, the number of attempts, and the pause between them.
const ATTEMPT: (Duration, u32, Duration) = (Duration::from_secs(10), 3, Duration::from_secs(2));

/// The queue of pings, and the task that sends them. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pings(Arc<Inner>);

struct Inner {
    queue: mpsc::Sender<Ping>,
    counts: Counts,
    _task: ScopedTask<()>,
}

struct Ping {
    job: Arc<str>,
    config: PingConfig,
    event: PingEvent,
}

impl Pings {
    /// Starts the task. It ends when the last clone of this handle is dropped.
    pub(crate) fn start(env: &Env) -> io::Result<Self> {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        let counts = Counts::new("ping");
        let task = env.spawn_scoped(serve(env.clone(), Client::start()?, counts.clone(), inbox));
        Ok(Self(Arc::new(Inner { queue, counts, _task: task })))
    }

    /// Queues the ping of a job, if the job pings at this event. The caller does not wait.
    pub(crate) fn ping(&self, job: &JobConfig, event: PingEvent) {
        let Some(config) = job.ping.as_ref().filter(|ping| ping.on.contains(&event)) else { return };
        let ping = Ping { job: Arc::clone(&job.name), config: config.clone(), event };
        if self.0.queue.try_send(ping).is_err() {
            self.0.counts.count(Outcome::Dropped);
            tracing::warn!(job = &*job.name, "a ping is dropped: {QUEUE_MAX} others wait");
        }
    }
}

async fn serve(env: Env, client: Client, counts: Counts, mut inbox: mpsc::Receiver<Ping>) {
    let mut sending = FuturesUnordered::new();
    loop {
        let room = sending.len() < AT_ONCE;
        tokio::select! { biased;
            Some(outcome) = sending.next() => counts.count(outcome),
            ping = inbox.recv(), if room => match ping {
                Some(ping) => sending.push(send(&env, &client, ping)),
                None => return,
            }
        }
    }
}

async fn send(env: &Env, client: &Client, Ping { job, config, event }: Ping) -> Outcome {
    let (within, attempts, pause) = ATTEMPT;
    let suffix = match event {
        PingEvent::Start => "/start",
        PingEvent::Success => "",
        PingEvent::Fail => "/fail",
    };
    let none = BTreeMap::new();
    for attempt in 1..=attempts {
        let call = Call {
            method: "POST",
            headers: Vec::new(),
            url: &config.url,
            suffix,
            header_files: &none,
            ca_file: None,
            content_type: JSON,
            body: Bytes::new(),
        };
        let answer = env.before(env.now() + within, client.post(call)).await;
        let why = match answer.unwrap_or_else(|| Err(format!("no answer within {within:?}"))) {
            Ok(()) => return Outcome::Sent,
            Err(why) => plain(&why, 300),
        };
        tracing::warn!(job = &*job, attempt, "the ping ({}) was not sent: {why}", event.as_str());
        if attempt < attempts {
            env.sleep(pause).await;
        }
    }
    Outcome::Failed
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pings")
    }
}
