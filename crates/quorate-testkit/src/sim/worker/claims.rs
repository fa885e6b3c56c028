use super::{
    Worker,
    inbox::{SET, id},
};
use crate::sim::{Event, Held, Holder, Work};
use quorate::{
    claim::{Claim, ClaimError, ClaimHandle, ClaimOutcome, Claims, ProcessError, Processed},
    node::{FencingToken, Resource},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Takes messages from the simulated broker and handles them, until the environment is stopped.
pub(super) async fn work(mut worker: Worker) {
    let ttl = Duration::from_millis([1_000, 1_500, 2_500][worker.rng.index(3)]);
    let mut consumer = Consumer { claims: Claims::new(&worker.quorum, SET).ttl(ttl), ttl };
    while !worker.is_stopped() {
        worker.think(if worker.referee.is_calm() { &[150] } else { &[40, 400, 1_000] }).await;
        let Some(message) = worker.outside.inbox.deliver(&mut worker.rng) else { continue };
        match worker.rng.number(0..=9) {
            0..=4 => consumer.process(&mut worker, message).await,
            5..=7 => consumer.by_hand(&mut worker, message).await,
            _ => consumer.many(&mut worker, message).await,
        }
    }
}

struct Consumer {
    claims: Claims,
    ttl: Duration,
}

/// The handler's result for a message: success with this text, or failure.
pub(super) enum Handled {
    Well(String),
    Badly,
}

impl Consumer {
    /// Handles one message with `Claims::process`, which claims the message and runs the handler. Sometimes
    /// drops the future of `process` before it is ready.
    async fn process(&mut self, worker: &mut Worker, message: usize) {
        let id = id(message);
        // The token of the claim under which the handler succeeded. It is 0 until the handler succeeds.
        let token = Arc::new(Mutex::new(0));
        let (mine, mut hand, ttl) = (Arc::clone(&token), worker.clone(), self.ttl);
        hand.rng = worker.rng.split();
        let name = id.clone();
        let handler = |claim: ClaimHandle| async move {
            let held = hand.took(&name, claim.clone(), ttl);
            let _work: Work = hand.referee.begin(&held, &name);
            match hand.handle(&name, &claim).await {
                Handled::Well(result) => {
                    *mine.lock().unwrap_or_else(PoisonError::into_inner) = claim.unchecked_token().get();
                    Ok(result)
                }
                Handled::Badly => Err("on purpose"),
            }
        };
        let (hasty, time) = (worker.rng.chance(150), worker.rng.millis(0..=400));
        let processed = tokio::select! { biased;
            processed = self.claims.process(&id, handler) => processed,
            () = worker.patience(time), if hasty => return worker.referee.count("process dropped"),
        };
        let token = *token.lock().unwrap_or_else(PoisonError::into_inner);
        match processed {
            Ok(Processed::Handled) => worker.completed(message, token),
            Ok(Processed::InProgress { .. }) => worker.referee.count("claim in progress"),
            Ok(Processed::AlreadyDone(done)) => worker.told_done(message, &done.result),
            Ok(_) => worker.referee.fail("process says something new"),
            Err(ProcessError::Claim(error)) => worker.refused(&error),
            Err(ProcessError::Handler(_)) => worker.referee.count("claim abandoned"),
            Err(ProcessError::Lost(_)) => worker.referee.count("claim lost"),
            Err(ProcessError::NotRecorded(error)) => worker.incomplete(&error),
            Err(_) => worker.referee.fail("process fails in a new way"),
        }
    }

    /// Claims one message and handles it, without `Claims::process`.
    async fn by_hand(&mut self, worker: &mut Worker, message: usize) {
        match self.claims.claim(&id(message)).await {
            Ok(outcome) => self.outcome(worker, message, outcome).await,
            Err(error) => worker.refused(&error),
        }
    }

    /// Claims several messages in one batch, and handles the claimed messages one after another.
    async fn many(&mut self, worker: &mut Worker, message: usize) {
        let count = worker.rng.number(1..=5);
        let mut messages = vec![message];
        for _ in 0..count {
            messages.extend(worker.outside.inbox.deliver(&mut worker.rng));
        }
        messages.sort_unstable();
        messages.dedup();
        let ids: Vec<String> = messages.iter().map(|message| id(*message)).collect();
        worker.referee.count("claimed in a batch");
        match self.claims.claim_many(ids.iter().map(String::as_str)).await {
            Ok(outcomes) => {
                for (message, (_, outcome)) in messages.into_iter().zip(outcomes) {
                    match outcome {
                        Ok(outcome) => self.outcome(worker, message, outcome).await,
                        Err(error) => worker.refused(&error),
                    }
                }
            }
            Err(error) => worker.refused(&error),
        }
    }

    async fn outcome(&self, worker: &mut Worker, message: usize, outcome: ClaimOutcome) {
        match outcome {
            ClaimOutcome::Claimed(claim) => self.dispose(worker, message, claim).await,
            ClaimOutcome::InProgress { .. } => worker.referee.count("claim in progress"),
            ClaimOutcome::Done(done) => worker.told_done(message, &done.result),
            _ => worker.referee.fail("a claim says something new"),
        }
    }

    /// Handles a claimed message. Then completes, abandons or drops the claim, as the seed decides.
    async fn dispose(&self, worker: &mut Worker, message: usize, claim: Claim) {
        let token = claim.unchecked_token().get();
        worker.took(claim.id(), claim.handle(), self.ttl);
        match worker.handle(&id(message), &claim.handle()).await {
            Handled::Badly if worker.rng.chance(500) => {
                worker.referee.count("claim dropped");
                drop(claim);
            }
            Handled::Badly => {
                worker.referee.count("claim abandoned");
                if claim.abandon().await.is_err() {
                    worker.referee.count("abandon unconfirmed");
                }
            }
            // A slow worker may have lost its claim by now. It tries to complete the claim nevertheless. If
            // the claim is lost, this must fail.
            Handled::Well(result) => {
                let (hasty, time) = (worker.rng.chance(80), worker.rng.millis(0..=20));
                let completed = tokio::select! { biased;
                    completed = claim.complete(&result) => completed,
                    () = worker.patience(time), if hasty => return worker.referee.count("complete dropped"),
                };
                match completed {
                    Ok(_) => worker.completed(message, token),
                    Err(error) => worker.incomplete(&error),
                }
            }
        }
    }
}

impl Worker {
    /// Reports to the referee that this worker has claimed the message `id`.
    fn took(&self, id: &str, claim: ClaimHandle, ttl: Duration) -> Arc<Held> {
        let token = claim.unchecked_token().get();
        self.referee.holds(&self.host, Holder::Claim(claim), resource(id), token, ttl / 5)
    }

    /// Simulates the work of a message. The work takes a random time, and may fail.
    pub(super) async fn handle(&mut self, id: &str, claim: &ClaimHandle) -> Handled {
        let calm = self.referee.is_calm();
        let time = if calm { self.rng.millis(0..=20) } else { self.rng.millis_up_to(&[100, 600, 4_000]) };
        let stubborn = self.rng.chance(300);
        tokio::select! { biased;
            () = claim.step_down_token().cancelled(), if !stubborn => {
                self.referee.count("handler stepped down");
                return Handled::Badly;
            }
            () = self.env.sleep(time) => {}
        }
        // A stubborn handler does not ask for the fencing token. Otherwise the nodes would not have to refuse the end of
        // a lost claim: the claim itself refuses it once such a check has failed.
        let token = || match stubborn {
            true => (!claim.remaining().is_zero()).then(|| claim.unchecked_token()),
            false => claim.fencing_token().ok(),
        };
        self.update(id, || token().map(FencingToken::get)).await;
        if !calm && self.rng.chance(200) {
            return Handled::Badly;
        }
        // The result names the worker and the token, so that the referee can check who recorded it.
        Handled::Well(format!("{} {}", self.host.name(), claim.unchecked_token()))
    }

    fn completed(&self, message: usize, token: u64) {
        self.referee.count("claim completed");
        self.outside.inbox.finish(message);
        let (worker, resource) = (self.host.name(), resource(&id(message)));
        self.referee.tell(&Event::Completed { worker, resource: &resource, token });
    }

    fn told_done(&self, message: usize, result: &str) {
        self.referee.count("claim done");
        self.outside.inbox.finish(message);
        let (worker, resource) = (self.host.name(), resource(&id(message)));
        self.referee.tell(&Event::ToldDone { worker, resource: &resource, result });
    }

    fn refused(&self, error: &ClaimError) {
        let untrusted = error.is_untrusted();
        self.referee.count(if untrusted { "claim untrusted" } else { "claim unreachable" });
    }

    fn incomplete(&self, error: &ClaimError) {
        self.referee.count(match error {
            ClaimError::TakenOver { .. } => "complete: taken over",
            ClaimError::Superseded => "complete: superseded",
            ClaimError::Lost(_) => "complete: lost before",
            ClaimError::AlreadyDone(_) | ClaimError::DeadLettered(_) => "complete: already done",
            ClaimError::NoMajority(_) => "complete: no majority",
            _ => "complete: impossible",
        });
    }
}

#[expect(clippy::expect_used, reason = "names written by hand")]
fn resource(id: &str) -> Resource {
    Resource::claim(SET, id).expect("a sound name")
}
