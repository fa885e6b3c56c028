//! Sees every message, claims what nobody has, and handles that.

use super::{Failure, be_told};
use crate::{
    journal::{Diary, Event, Journal},
    settings::{GRACE, LOOK_BACK, LOOK_EVERY, MESSAGE_EVERY, MESSAGES, RETENTION, TTL, sent_by},
};
use quorate::{
    claim::{Claim, ClaimOutcome, Claims},
    env::{BootTime, Env},
    quorum::Quorum,
};
use quorate_testkit::sim::SeedRng;
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How many messages are claimed at once.
const BATCH: usize = 16;
/// How many are handled at once.
const AT_ONCE: usize = 32;
/// Between two looks at what has come.
const LOOK: Duration = Duration::from_millis(60);
/// A message that someone else handles is looked at again after this at the latest.
const AGAIN: Duration = Duration::from_millis(500);

pub(super) async fn handle(
    quorum: &Quorum,
    journal: &Journal,
    mut rng: SeedRng,
    epoch: BootTime,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let env = quorum.env();
    let claims = Claims::new(quorum, MESSAGES).ttl(TTL).step_down_grace(GRACE).retention(RETENTION);
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
        let asked = journal.now();
        let ids: Vec<String> = batch.iter().map(|message| format!("m-{message}")).collect();
        let claimed = claims.claim_many(ids.iter().map(String::as_str)).await?;
        for (message, (_, outcome)) in batch.into_iter().zip(claimed) {
            match outcome {
                Ok(ClaimOutcome::Claimed(claim)) => {
                    busy += 1;
                    let task = Task { message, asked, claim, env: env.clone(), journal: journal.clone() };
                    let (done, stop, takes) = (done.clone(), stop.clone(), takes(message, &mut rng));
                    let fails = rng.chance(50);
                    env.spawn(async move {
                        let handled = task.run(takes, fails, &stop).await;
                        // Nobody listens any more where the worker ends.
                        let _ = done.send((message, handled));
                    });
                }
                Ok(ClaimOutcome::Done { .. }) => journal.write(Event::Seen { message }),
                Ok(ClaimOutcome::InProgress { retry_after, .. }) => {
                    open.put_back(message, env.now() + retry_after.unwrap_or_default().min(AGAIN));
                }
                // Too few nodes, or an outcome of a later version: someone, perhaps we, will try again.
                Ok(_) | Err(_) => open.put_back(message, env.now() + AGAIN),
            }
        }
        let _ = env.before(env.now() + LOOK + rng.millis(0..=60), stop.cancelled()).await;
    }
}

/// Every thirtieth message outlives its claim's TTL, and so needs extensions.
fn takes(message: u64, rng: &mut SeedRng) -> Duration {
    if message.is_multiple_of(30) { rng.millis(2200..=3500) } else { rng.millis(2..=60) }
}

/// A message that was claimed.
struct Task {
    message: u64,
    asked: BootTime,
    claim: Claim,
    env: Env,
    journal: Journal,
}

impl Task {
    /// Whether the message is done.
    async fn run(self, takes: Duration, fails: bool, stop: &CancellationToken) -> bool {
        let Self { message, asked, claim, env, journal } = self;
        let (handle, token) = (claim.handle(), claim.token().get());
        let res = format!("claim/{message}");
        let Some(diary) = Diary::begin(&journal, &res, token, asked, || handle.remaining()) else {
            return false;
        };
        let over = env.now() + takes;
        while env.now() < over && !stop.is_cancelled() {
            tokio::select! { biased;
                () = handle.step_down_token().cancelled(), if !diary.has_told() => diary.told(),
                () = handle.lost_token().cancelled() => {}
                () = stop.cancelled() => {}
                () = env.sleep_until(over.min(env.now() + LOOK_EVERY)) => {}
            }
            if !diary.look(|| handle.remaining()) {
                be_told(&env, &diary, handle.step_down_token()).await;
                return false;
            }
        }
        if !diary.end(|| handle.remaining()) {
            be_told(&env, &diary, handle.step_down_token()).await;
            return false;
        }
        if fails || stop.is_cancelled() {
            let _ = claim.abandon().await;
            return false;
        }
        let began = env.now();
        match claim.complete("").await {
            Ok(completed) => {
                let took = env.now().since(began).as_micros().try_into().unwrap_or(u64::MAX);
                journal.write(Event::Done { message, token, nodes: completed.nodes, took });
                true
            }
            // Not recorded: whoever has it next will know more.
            Err(_) => false,
        }
    }
}

/// The messages that this worker does not know to be done.
struct Open {
    epoch: BootTime,
    next: u64,
    /// With the time before which there is no use in looking.
    messages: BTreeMap<u64, BootTime>,
}

impl Open {
    fn new(epoch: BootTime, now: BootTime) -> Self {
        let back = (LOOK_BACK.as_millis() / MESSAGE_EVERY.as_millis()) as u64;
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
