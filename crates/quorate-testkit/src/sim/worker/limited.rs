//! Messages that have an attempt limit and payload fingerprints. Some of them fail in every attempt, and some arrive
//! with another payload under the same id.

use super::{Worker, claims::Handled};
use crate::sim::{ATTEMPT_LIMIT, AttemptStep, AttemptStepKind, Event, Held, Holder, LIMITED_SET, SeedRng};
use quorate::{
    claim::{
        Claim, ClaimError, ClaimHandle, ClaimOutcome, Claims, DeadLetter, DeadLettered, Fingerprint,
        MessageId, ProcessError, Processed,
    },
    node::Resource,
};
use std::{sync::Arc, time::Duration};

/// Every message whose number is a multiple of this fails in every attempt.
const POISONED: usize = 4;
/// The time after the faults from which every worker has a connection to every server.
const STEADY_AFTER: Duration = Duration::from_millis(1_300);

/// Takes messages from the simulated broker and handles them, until the environment is stopped.
pub(super) async fn work(worker: Worker) {
    let mut consumer = Consumer { ttl: Duration::from_millis(1_000), worker, calm_since: None };
    consumer.ttl = Duration::from_millis([1_000, 1_500, 2_500][consumer.worker.rng.index(3)]);
    while !consumer.worker.is_stopped() {
        let is_calm = consumer.worker.referee.is_calm();
        consumer.worker.think(if is_calm { &[80] } else { &[100, 600, 1_500] }).await;
        if is_calm {
            consumer.calm_since.get_or_insert(consumer.worker.referee.truth().now());
        }
        let Some(message) = consumer.worker.outside.limited.deliver(&mut consumer.worker.rng) else {
            continue;
        };
        match consumer.worker.rng.number(0..=9) {
            0..=4 => consumer.process(message).await,
            5..=7 => consumer.by_hand(message).await,
            _ => consumer.many(message).await,
        }
    }
}

#[derive(Clone)]
struct Consumer {
    worker: Worker,
    ttl: Duration,
    /// The true time at which the consumer noticed that the faults are over.
    calm_since: Option<Duration>,
}

/// A message as it is delivered.
#[derive(Clone)]
struct Delivery {
    message: usize,
    id: String,
    payload: Fingerprint,
    /// True if the payload is the message's own. Before the faults end, some deliveries have another one.
    is_own: bool,
}

impl Delivery {
    fn message_id(&self) -> MessageId<'_> {
        MessageId::new(&*self.id).fingerprint(self.payload.clone())
    }

    fn is_poisoned(&self) -> bool {
        self.message.is_multiple_of(POISONED)
    }
}

impl Consumer {
    /// Returns the claims for one call. Before the faults end, some calls have no dead-letter hook.
    fn claims(&mut self) -> Claims {
        let claims = Claims::new(&self.worker.quorum, LIMITED_SET).ttl(self.ttl).max_attempts(ATTEMPT_LIMIT);
        if !self.worker.referee.is_calm() && self.worker.rng.chance(200) {
            return claims;
        }
        let consumer = self.clone();
        claims.dead_letter(move |letter| consumer.clone().take(letter))
    }

    fn delivery(&mut self, message: usize) -> Delivery {
        let is_own = self.worker.referee.is_calm() || !self.worker.rng.chance(120);
        let id = format!("l{message}");
        let payload = Fingerprint::of(format!("{id} {is_own}").as_bytes());
        Delivery { message, id, payload, is_own }
    }

    /// Handles one message with `Claims::process`. Sometimes drops the future of `process` before it is ready.
    async fn process(&mut self, message: usize) {
        let (claims, delivery) = (self.claims(), self.delivery(message));
        let (mut hand, handled) = (self.clone(), delivery.clone());
        hand.worker.rng = self.worker.rng.split();
        let token = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let mine = Arc::clone(&token);
        let handler = |claim: ClaimHandle| {
            mine.store(claim.unchecked_token().get(), std::sync::atomic::Ordering::Relaxed);
            let held = hand.begins(&handled, &claim);
            let work = hand.worker.referee.begin(&held, &handled.id);
            async move {
                let _work = work;
                match hand.handle(&handled, &claim).await {
                    Handled::Well(result) => Ok(result),
                    Handled::Badly => Err("on purpose"),
                }
            }
        };
        let (hasty, time) = (self.worker.rng.chance(150), self.worker.rng.millis(0..=400));
        let processed = tokio::select! { biased;
            processed = claims.process(delivery.message_id(), handler) => processed,
            () = self.worker.patience(time), if hasty => return self.count("limited process dropped"),
        };
        match processed {
            Ok(Processed::Handled) => {
                self.completed(&delivery, token.load(std::sync::atomic::Ordering::Relaxed));
            }
            Ok(Processed::InProgress { .. }) => self.count("limited claim in progress"),
            Ok(Processed::AlreadyDone(done)) => self.told_done(&delivery, &done.result),
            Ok(Processed::DeadLettered(dead)) => self.told_dead(&delivery, &dead).await,
            Ok(_) => self.worker.referee.fail("process says something new"),
            Err(ProcessError::Claim(error)) => self.refused(&delivery, &error).await,
            Err(ProcessError::Handler(_)) => self.count("limited claim abandoned"),
            Err(_) => self.count("limited claim lost or not recorded"),
        }
    }

    /// Claims one message and handles it, without `Claims::process`.
    async fn by_hand(&mut self, message: usize) {
        let (claims, delivery, steady) = (self.claims(), self.delivery(message), self.is_steady());
        match claims.claim(delivery.message_id()).await {
            Ok(ClaimOutcome::Claimed(claim)) if self.worker.rng.chance(150) => {
                self.cancel(&delivery, claim, steady).await;
            }
            Ok(ClaimOutcome::Claimed(claim)) => {
                self.begins(&delivery, &claim.handle());
                let token = claim.unchecked_token().get();
                match self.handle(&delivery, &claim.handle()).await {
                    Handled::Well(result) => match claim.complete(&result).await {
                        Ok(_) => self.completed(&delivery, token),
                        Err(_) => self.count("limited claim lost or not recorded"),
                    },
                    Handled::Badly if self.worker.rng.chance(500) => drop(claim),
                    Handled::Badly => drop(claim.abandon().await),
                }
            }
            Ok(outcome) => self.other(&delivery, outcome).await,
            Err(error) => self.refused(&delivery, &error).await,
        }
    }

    /// Claims several messages in one batch, handles the claimed messages one after another, and then completes and
    /// abandons them in batches.
    async fn many(&mut self, message: usize) {
        let (claims, steady) = (self.claims(), self.is_steady());
        let mut messages = vec![message];
        for _ in 0..self.worker.rng.number(1..=3) {
            messages.extend(self.worker.outside.limited.deliver(&mut self.worker.rng));
        }
        messages.sort_unstable();
        messages.dedup();
        let deliveries: Vec<Delivery> = messages.into_iter().map(|message| self.delivery(message)).collect();
        let outcomes = match claims.claim_many(deliveries.iter().map(Delivery::message_id)).await {
            Ok(outcomes) => outcomes,
            Err(error) => return self.refused(&deliveries[0], &error).await,
        };
        let mut claimed = Vec::new();
        for (delivery, (_, outcome)) in deliveries.iter().zip(outcomes) {
            match outcome {
                Ok(ClaimOutcome::Claimed(claim)) if self.worker.rng.chance(150) => {
                    self.cancel(delivery, claim, steady).await;
                }
                Ok(ClaimOutcome::Claimed(claim)) => {
                    self.begins(delivery, &claim.handle());
                    claimed.push((delivery, claim));
                }
                Ok(outcome) => self.other(delivery, outcome).await,
                Err(error) => self.refused(delivery, &error).await,
            }
        }
        let (mut well, mut badly, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for (delivery, claim) in claimed {
            match self.handle(delivery, &claim.handle()).await {
                Handled::Well(result) => {
                    done.push((delivery, claim.unchecked_token().get()));
                    well.push((claim, result));
                }
                Handled::Badly => badly.push(claim),
            }
        }
        self.count("limited batch");
        for ((delivery, token), (_, completed)) in done.into_iter().zip(Claim::complete_many(well).await) {
            match completed {
                Ok(_) => self.completed(delivery, token),
                Err(_) => self.count("limited claim lost or not recorded"),
            }
        }
        Claim::abandon_many(badly).await;
    }

    async fn other(&mut self, delivery: &Delivery, outcome: ClaimOutcome) {
        match outcome {
            ClaimOutcome::InProgress { .. } => self.count("limited claim in progress"),
            ClaimOutcome::Done(done) => self.told_done(delivery, &done.result),
            ClaimOutcome::DeadLettered(dead) => self.told_dead(delivery, &dead).await,
            _ => self.worker.referee.fail("a claim says something new"),
        }
    }

    /// Simulates the work of a message.
    async fn handle(&mut self, delivery: &Delivery, claim: &ClaimHandle) -> Handled {
        let fails = delivery.is_poisoned() || (!self.worker.referee.is_calm() && self.worker.rng.chance(250));
        match self.worker.handle(&delivery.id, claim).await {
            Handled::Well(_) if fails => Handled::Badly,
            handled => handled,
        }
    }

    /// Handles a dead letter, as the dead-letter hook. Before the faults end, the hook sometimes fails.
    async fn take(self, letter: DeadLetter) -> Result<String, &'static str> {
        let Self { worker, ttl, .. } = self;
        let (resource, token) = (resource(&letter.id), letter.claim.unchecked_token().get());
        let held =
            worker.referee.holds(&worker.host, Holder::Claim(letter.claim), resource.clone(), token, ttl / 5);
        let valid = worker.referee.is_sound(&held);
        worker.step(&resource, AttemptStepKind::GivenUp { attempts: letter.attempts, valid });
        let _work = worker.referee.begin(&held, &letter.id);
        let mut rng = SeedRng::new(worker.seed, &format!("hook {} {} {token}", worker.label, letter.id));
        let is_calm = worker.referee.is_calm();
        let time = if is_calm { rng.millis(0..=20) } else { rng.millis_up_to(&[50, 400, 2_500]) };
        worker.env.sleep(time).await;
        if !is_calm && rng.chance(300) {
            worker.referee.count("dead-letter hook failed");
            worker.step(&resource, AttemptStepKind::HookFailed);
            return Err("on purpose");
        }
        worker.referee.count("dead letter handed over");
        let note = format!("dead {} {token}", worker.host.name());
        worker.step(&resource, AttemptStepKind::HandedOver { token, note: &note });
        Ok(note)
    }

    /// Cancels a claim whose handler has not started.
    async fn cancel(&self, delivery: &Delivery, claim: Claim, steady: bool) {
        self.count("limited claim cancelled");
        if claim.fencing_token().is_ok() {
            let attempt = claim.attempt();
            let kind = AttemptStepKind::Cancelled { attempt, steady };
            self.worker.step(&resource(&delivery.id), kind);
        }
        // An unconfirmed cancellation is one of the outcomes that faults may have.
        drop(claim.cancel_before_start().await);
    }

    /// Makes a message count as new. Then the broker delivers it again.
    async fn reset(&self, delivery: &Delivery) {
        let began = self.worker.referee.truth().now();
        let claims = Claims::new(&self.worker.quorum, LIMITED_SET).ttl(self.ttl);
        match claims.reset(&delivery.id).await {
            Ok(()) => {
                self.count("limited message reset");
                self.worker.step(&resource(&delivery.id), AttemptStepKind::Reset { began });
                self.worker.outside.limited.reopen(delivery.message);
            }
            Err(ClaimError::AlreadyDone(done)) => self.told_done(delivery, &done.result),
            Err(_) => self.count("limited message not reset"),
        }
    }

    fn begins(&self, delivery: &Delivery, claim: &ClaimHandle) -> Arc<Held> {
        let (worker, resource) = (&self.worker, resource(&delivery.id));
        let (token, holder) = (claim.unchecked_token().get(), Holder::Claim(claim.clone()));
        let held = worker.referee.holds(&worker.host, holder, resource.clone(), token, self.ttl / 5);
        let (attempt, payload) = (claim.attempt(), delivery.payload.as_str());
        let valid = worker.referee.is_sound(&held);
        worker.step(&resource, AttemptStepKind::Began { attempt, payload, valid });
        held
    }

    fn completed(&self, delivery: &Delivery, token: u64) {
        self.count("limited claim completed");
        self.worker.outside.limited.finish(delivery.message);
        let (worker, resource) = (self.worker.host.name(), resource(&delivery.id));
        self.worker.referee.tell(&Event::Completed { worker, resource: &resource, token });
    }

    fn told_done(&self, delivery: &Delivery, result: &str) {
        self.count("limited claim done");
        self.worker.outside.limited.finish(delivery.message);
        let (worker, resource) = (self.worker.host.name(), resource(&delivery.id));
        self.worker.referee.tell(&Event::ToldDone { worker, resource: &resource, result });
    }

    async fn told_dead(&mut self, delivery: &Delivery, dead: &DeadLettered) {
        let note = dead.at.map(|_| &*dead.note);
        let kind = AttemptStepKind::ToldDead { attempts: dead.attempts, note };
        self.worker.step(&resource(&delivery.id), kind);
        if note.is_none() {
            return self.count("limited message given up");
        }
        self.count("limited message dead");
        self.worker.outside.limited.finish(delivery.message);
        if !self.worker.referee.is_calm() && self.worker.rng.chance(300) {
            self.reset(delivery).await;
        }
    }

    async fn refused(&mut self, delivery: &Delivery, error: &ClaimError) {
        let ClaimError::OtherPayload { given, stored, .. } = error else {
            return self.count(match error {
                ClaimError::Uncounted { .. } => "limited claim not counted",
                _ => "limited claim unreachable",
            });
        };
        self.count("limited claim with another payload");
        let kind = AttemptStepKind::OtherPayload { given: given.as_str(), stored: stored.as_str() };
        self.worker.step(&resource(&delivery.id), kind);
        if delivery.is_own && (self.worker.referee.is_calm() || self.worker.rng.chance(500)) {
            self.reset(delivery).await;
        }
    }

    fn is_steady(&self) -> bool {
        let now = self.worker.referee.truth().now();
        self.calm_since.is_some_and(|since| now > since + STEADY_AFTER)
    }

    fn count(&self, what: &str) {
        self.worker.referee.count(what);
    }
}

impl Worker {
    fn step(&self, resource: &Resource, kind: AttemptStepKind<'_>) {
        let step = AttemptStep { worker: self.host.name(), resource, kind };
        self.referee.judge(&Event::Attempt(&step));
    }
}

#[expect(clippy::expect_used, reason = "names written by hand")]
fn resource(id: &str) -> Resource {
    Resource::claim(LIMITED_SET, id).expect("a sound name")
}
