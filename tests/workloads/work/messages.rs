//! The part of a worker that handles messages. It sees every message, and claims those that no other worker has
//! claimed.

use super::{CHECK_EVERY, Failure, GRACE, await_step_down};
use crate::harness::{Event, Journal, LeaseLog};
use quorate::{
    claim::{Claim, ClaimOutcome, Claims},
    env::{BootTime, Env},
    quorum::Quorum,
};
use quorate_testkit::sim::SeedRng;
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The name of the set of messages.
const MESSAGES: &str = "soak";
/// The time between two messages.
const MESSAGE_EVERY: Duration = Duration::from_millis(100);
/// The time for which nodes remember that a message is done.
pub(crate) const RETENTION: Duration = Duration::from_secs(120);
/// The age of the oldest message that a worker claims after its start.
const OLDEST: Duration = Duration::from_secs(60);
/// The largest number of messages that are claimed in one request.
const BATCH: usize = 16;
/// The largest number of messages that a worker handles at the same time.
const AT_ONCE: usize = 32;
/// The time between two requests.
const CLAIM_EVERY: Duration = Duration::from_millis(60);
/// The longest time until the worker again tries to claim a message that another worker handles.
const AGAIN: Duration = Duration::from_millis(500);

/// Returns the number of messages that have been sent by `now`.
pub(crate) fn sent_by(epoch: BootTime, now: BootTime) -> u64 {
    (now.since(epoch).as_millis() / MESSAGE_EVERY.as_millis()) as u64
}

pub(super) async fn handle(
    quorum: &Quorum,
    journal: &Journal,
    mut rng: SeedRng,
    ttl: Duration,
    epoch: BootTime,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let env = quorum.env();
    let claims = Claims::new(quorum, MESSAGES).ttl(ttl).step_down_grace(GRACE).retention(RETENTION);
    let (done, mut results) = mpsc::unbounded_channel::<(u64, bool)>();
    let mut open = Open::new(epoch, journal.now());
    let mut busy = 0;
    loop {
        while let Ok((message, handled)) = results.try_recv() {
            busy -= 1;
            if !handled {
                open.put_back(message, env.now() + AGAIN);
            }
        }
        if stop.is_cancelled() {
            if busy == 0 {
                return Ok(());
            }
            env.sleep(Duration::from_millis(10)).await;
            continue;
        }
        let batch = open.take(env.now(), BATCH.min(AT_ONCE - busy));
        let requested = journal.now();
        let ids: Vec<String> = batch.iter().map(|message| format!("m-{message}")).collect();
        let claimed = claims.claim_many(ids.iter().map(String::as_str)).await?;
        for (message, (_, outcome)) in batch.into_iter().zip(claimed) {
            match outcome {
                Ok(ClaimOutcome::Claimed(claim)) => {
                    busy += 1;
                    let task = Task { message, requested, claim, env: env.clone(), journal: journal.clone() };
                    let (done, stop, takes) = (done.clone(), stop.clone(), takes(message, &mut rng));
                    let fails = rng.chance(50);
                    env.spawn(async move {
                        let handled = task.run(takes, fails, &stop).await;
                        // The send fails if the worker is ending, and has dropped the receiver.
                        let _ = done.send((message, handled));
                    });
                }
                Ok(ClaimOutcome::Done { .. }) => {
                    journal.write(Event::MessageFoundDone { message, requested: requested.as_nanos() });
                }
                Ok(ClaimOutcome::InProgress { retry_after, .. }) => {
                    open.put_back(message, env.now() + retry_after.unwrap_or_default().min(AGAIN));
                }
                // Too few nodes answered, or a later version of the library has added this outcome. The message
                // is claimed again later.
                Ok(_) | Err(_) => open.put_back(message, env.now() + AGAIN),
            }
        }
        let _ = env.before(env.now() + CLAIM_EVERY + rng.millis(0..=60), stop.cancelled()).await;
    }
}

/// Returns the time that a message takes. Every thirtieth message takes longer than the TTL of its claim, and
/// so needs extensions.
fn takes(message: u64, rng: &mut SeedRng) -> Duration {
    if message.is_multiple_of(30) { rng.millis(2200..=3500) } else { rng.millis(2..=60) }
}

/// A message that this worker has claimed.
struct Task {
    message: u64,
    requested: BootTime,
    claim: Claim,
    env: Env,
    journal: Journal,
}

impl Task {
    /// Handles the message. Returns whether it is done.
    async fn run(self, takes: Duration, fails: bool, stop: &CancellationToken) -> bool {
        let Self { message, requested, claim, env, journal } = self;
        let (handle, token) = (claim.handle(), claim.unchecked_token().get());
        let resource = format!("claim/{message}");
        let log = LeaseLog::begin(&journal, &resource, token, requested, || handle.remaining());
        let Some(log) = log else {
            return false;
        };
        let over = env.now() + takes;
        while env.now() < over && !stop.is_cancelled() {
            tokio::select! { biased;
                () = handle.step_down_token().cancelled(), if !log.has_stepped_down() => log.step_down(),
                () = handle.lost_token().cancelled() => {}
                () = stop.cancelled() => {}
                () = env.sleep_until(over.min(env.now() + CHECK_EVERY)) => {}
            }
            if !log.check(|| handle.remaining()) {
                await_step_down(&env, &log, handle.step_down_token()).await;
                return false;
            }
        }
        if !log.end(|| handle.remaining()) {
            await_step_down(&env, &log, handle.step_down_token()).await;
            return false;
        }
        if fails || stop.is_cancelled() {
            let _ = claim.abandon().await;
            return false;
        }
        let began = env.now();
        match claim.complete("").await {
            Ok(nodes) => {
                let took = env.now().since(began).as_micros().try_into().unwrap_or(u64::MAX);
                journal.write(Event::MessageDone { message, token, nodes, took });
                true
            }
            // The completion was not recorded. A later claim shows whether the message is done.
            Err(_) => false,
        }
    }
}

/// The messages that are not done yet, as far as this worker knows.
struct Open {
    epoch: BootTime,
    next: u64,
    /// The messages, each with the time before which this worker does not claim the message.
    messages: BTreeMap<u64, BootTime>,
}

impl Open {
    fn new(epoch: BootTime, now: BootTime) -> Self {
        let back = (OLDEST.as_millis() / MESSAGE_EVERY.as_millis()) as u64;
        Self { epoch, next: sent_by(epoch, now).saturating_sub(back), messages: BTreeMap::new() }
    }

    fn take(&mut self, now: BootTime, most: usize) -> Vec<u64> {
        let sent = sent_by(self.epoch, now);
        self.messages.extend((self.next..sent).map(|message| (message, now)));
        self.next = self.next.max(sent);
        let ready = self.messages.iter().filter(|(_, from)| **from <= now).map(|(message, _)| *message);
        let batch: Vec<u64> = ready.take(most).collect();
        self.messages.retain(|message, _| !batch.contains(message));
        batch
    }

    fn put_back(&mut self, message: u64, from: BootTime) {
        self.messages.insert(message, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_as_they_are_sent() {
        let epoch = BootTime::from_nanos(1_000);
        assert_eq!(sent_by(epoch, epoch + MESSAGE_EVERY * 7), 7);
        assert_eq!(sent_by(epoch, BootTime::from_nanos(0)), 0);
    }
}
