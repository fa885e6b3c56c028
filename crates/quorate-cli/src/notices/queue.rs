//! The queue of one receiver, and the task that sends its notifications one after the other.

use super::{
    agreement::{ReceiverClaims, Turn},
    client::{Call, Client, JSON},
    command,
    message::Message,
};
use crate::config::{NotifyConfig, NotifyTarget, Secret};
use metrics::{Counter, counter};
use quorate::env::{Env, ScopedTask};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The largest number of notifications that wait for one receiver.
const QUEUE_MAX: usize = 64;
/// The number of attempts, and the pause after the first one. Each further pause is twice as long.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_secs(1));

/// The counts of notifications by outcome. All of them exist from the start, at zero.
#[derive(Clone)]
pub(super) struct Counts {
    sent: Counter,
    failed: Counter,
    dropped: Counter,
}

impl Counts {
    pub(super) fn new(kind: &'static str) -> Self {
        metrics::describe_counter!(
            "quorate_notifications_total",
            "Number of notifications and pings of this process, by their outcome."
        );
        let of = |outcome: &'static str| counter!("quorate_notifications_total", "event" => kind, "outcome" => outcome);
        Self { sent: of("sent"), failed: of("failed"), dropped: of("dropped") }
    }

    pub(super) fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Sent => self.sent.increment(1),
            Outcome::Elsewhere => {}
            Outcome::Failed => self.failed.increment(1),
            Outcome::Dropped => self.dropped.increment(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Sent,
    /// Another worker has sent it.
    Elsewhere,
    Failed,
    Dropped,
}

/// A notification in the queue, and the sender for its outcome.
type Queued = (Message, oneshot::Sender<Outcome>);

/// The queue of one receiver. Dropping it ends the task.
#[derive(Debug)]
pub(super) struct ReceiverQueue {
    pub(super) config: Arc<NotifyConfig>,
    queue: mpsc::Sender<Queued>,
    _task: ScopedTask<()>,
}

impl ReceiverQueue {
    pub(super) fn start(
        env: &Env,
        config: &NotifyConfig,
        client: &Client,
        agreement: ReceiverClaims,
    ) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        let config = Arc::new(config.clone());
        let task = serve(env.clone(), Arc::clone(&config), client.clone(), agreement, inbox);
        Self { config, queue, _task: env.spawn_scoped(task) }
    }

    /// Queues a message, and waits until it was sent or given up. If the queue is full, the message is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the message, unless it is being sent.
    pub(super) async fn send(&self, message: Message) -> Outcome {
        let name = &*self.config.name;
        let (done, outcome) = oneshot::channel();
        let id = message.id.clone();
        if self.queue.try_send((message, done)).is_err() {
            tracing::warn!(
                receiver = name,
                "a notification ({id}) is dropped: {QUEUE_MAX} others wait for the receiver"
            );
            return Outcome::Dropped;
        }
        outcome.await.unwrap_or(Outcome::Dropped)
    }
}

async fn serve(
    env: Env,
    config: Arc<NotifyConfig>,
    client: Client,
    agreement: ReceiverClaims,
    mut inbox: mpsc::Receiver<Queued>,
) {
    while let Some((message, mut done)) = inbox.recv().await {
        // If the caller does not wait any more, this worker has stopped leading, and the next leader sends it.
        let turn = tokio::select! { biased;
            () = done.closed() => continue,
            turn = agreement.turn(&message.id) => turn,
        };
        let outcome = match turn {
            Turn::Elsewhere => Outcome::Elsewhere,
            Turn::Ours(claim) => {
                let outcome = deliver(&env, &config, &client, &message, &done).await;
                agreement.ended(claim, outcome != Outcome::Failed || !done.is_closed()).await;
                outcome
            }
        };
        let _ = done.send(outcome);
    }
}

async fn deliver(
    env: &Env,
    config: &NotifyConfig,
    client: &Client,
    message: &Message,
    done: &oneshot::Sender<Outcome>,
) -> Outcome {
    let (attempts, mut pause) = ATTEMPTS;
    let (receiver, id) = (&*config.name, &*message.id);
    for attempt in 1..=attempts {
        match attempt_once(env, config, client, message).await {
            Ok(()) => {
                tracing::info!(receiver, event = message.event, "notified: {id}");
                return Outcome::Sent;
            }
            Err(why) if attempt < attempts && !done.is_closed() => {
                tracing::warn!(receiver, attempt, "not notified yet ({id}): {why}");
            }
            Err(why) => {
                tracing::error!(receiver, attempt, "not notified, and given up ({id}): {why}");
                break;
            }
        }
        env.sleep(pause).await;
        pause *= 2;
    }
    Outcome::Failed
}

async fn attempt_once(
    env: &Env,
    config: &NotifyConfig,
    client: &Client,
    message: &Message,
) -> Result<(), String> {
    match &config.to {
        NotifyTarget::Command(Secret(words)) => command::run(env, words, message, config.timeout).await,
        NotifyTarget::Webhook { url, header_files, ca_file } => {
            let (ca_file, body) = (ca_file.as_deref(), message.to_json().into());
            let headers = Vec::new();
            let call = Call {
                method: "POST",
                url,
                suffix: "",
                header_files,
                headers,
                ca_file,
                content_type: JSON,
                body,
            };
            let answer = env.before(env.now() + config.timeout, client.post(call)).await;
            answer.unwrap_or_else(|| Err(format!("no answer within {:?}", config.timeout)))
        }
    }
}
