//! Measures three workers that all see the same messages, each of which one worker handles.

use super::{cycles::runtime, handover::join};
use crate::{
    measure::{Spread, now},
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::claim::{Claim, ClaimOutcome, Claims, Processed};
use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Barrier, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// The number of workers. Each has a thread, a runtime and connections of its own, as a process would have.
const WORKERS: usize = 3;
/// The number of messages that a worker processes at once.
const AT_ONCE: usize = 64;
/// The number of messages of a batch.
const BATCH: usize = 256;
/// The pause before a worker asks again for messages that other workers are handling.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of times that a worker asks for the rest of the messages.
const PASSES_MAX: usize = 10_000;

#[derive(Clone, Copy)]
enum Way {
    OneByOne,
    Batches,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (way, figure, goal) in [
        (Way::OneByOne, "three workers, `process`, 64 at once", 10_000.0),
        (Way::Batches, "three workers, batches of 256", 22_000.0),
    ] {
        let mut rates = Vec::new();
        // The first round is a warm-up.
        for round in 0..=plan.rounds {
            let rate = all_workers(plan, servers, way, round)?;
            if round > 0 {
                rates.push(rate);
            }
        }
        rows.push(Row::spread("quorate", figure, "messages/s", Spread::of(rates)).at_least(goal));
    }
    Ok(rows)
}

/// Returns the number of distinct messages a second, until every worker knows that each message is handled.
fn all_workers(plan: &Plan, servers: &Servers, way: Way, round: usize) -> Result<f64, String> {
    let ids: Arc<[String]> =
        (0..plan.ids).map(|number| format!("{}-{round}-{number}", way as usize)).collect();
    let ready = Arc::new(Barrier::new(WORKERS + 1));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (ids, ready) = (Arc::clone(&ids), Arc::clone(&ready));
                scope.spawn(move || {
                    let runtime = runtime(1)?;
                    let quorum = runtime.block_on(quorum(servers.urls(), &format!("worker-{worker}")));
                    ready.wait();
                    let quorum = quorum?;
                    runtime.block_on(async {
                        let claims = Claims::new(&quorum, "bench");
                        let handled = match way {
                            Way::OneByOne => one_by_one(&claims, &ids).await,
                            Way::Batches => batches(&quorum, &claims, &ids).await,
                        };
                        let end = now();
                        quorum.close().await;
                        Ok::<_, String>((handled?, end))
                    })
                })
            })
            .collect();
        ready.wait();
        let (began, mut end, mut handled) = (now(), now(), 0);
        for worker in workers {
            let (count, ended) = worker.join().map_err(|_| "a worker panicked".to_owned())??;
            handled += count;
            end = end.max(ended);
        }
        // A completion that is not confirmed in time may be repeated, so a busy machine may count more.
        if handled < plan.ids - plan.ids / 100 {
            return Err(format!("{handled} messages were handled, of {}", plan.ids));
        }
        Ok(plan.ids as f64 / end.since(began).as_secs_f64())
    })
}

/// Processes the messages with [`AT_ONCE`] tasks. Returns the number of messages that this worker handled.
async fn one_by_one(claims: &Claims, ids: &[String]) -> Result<usize, String> {
    let open = Arc::new(Mutex::new(ids.iter().cloned().collect::<VecDeque<String>>()));
    let task = || {
        let (claims, open) = (claims.clone(), Arc::clone(&open));
        spawn(async move {
            let mut handled = 0;
            // The number of attempts is bounded, for the case that the servers never answer.
            for _ in 0..PASSES_MAX {
                let next = open.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(id) = next else { return Ok::<usize, String>(handled) };
                let handler = |_claim| async { Ok::<_, Infallible>("ok") };
                match claims.process(&id, handler).await {
                    Ok(Processed::Handled) => handled += 1,
                    Ok(Processed::AlreadyDone(_)) => {}
                    // On a busy machine nodes may answer too late. Then the message comes again, as from a
                    // broker.
                    Ok(_) | Err(_) => open.lock().unwrap_or_else(PoisonError::into_inner).push_back(id),
                }
            }
            Err("messages are still in progress".to_owned())
        })
    };
    Ok(join((0..AT_ONCE).map(|_| task()).collect()).await?.into_iter().sum())
}

/// Claims the messages in batches. Returns the number of messages that this worker handled.
async fn batches(quorum: &quorate::Quorum, claims: &Claims, ids: &[String]) -> Result<usize, String> {
    let (mut open, mut handled) = (ids.to_vec(), 0);
    for _ in 0..PASSES_MAX {
        let mut again = Vec::new();
        for batch in open.chunks(BATCH) {
            let mut held = Vec::new();
            for (id, outcome) in claims.claim_many(batch).await.map_err(|error| error.to_string())? {
                match outcome {
                    Ok(ClaimOutcome::Claimed(claim)) => held.push((claim, "ok")),
                    Ok(ClaimOutcome::Done(_)) => {}
                    // On a busy machine nodes may answer too late. Then the message comes again, as from a
                    // broker.
                    Ok(_) | Err(_) => again.push(id.to_string()),
                }
            }
            for (id, completed) in Claim::complete_many(held).await {
                match completed {
                    Ok(_) => handled += 1,
                    Err(_) => again.push(id.to_string()),
                }
            }
        }
        if again.is_empty() {
            return Ok(handled);
        }
        open = again;
        quorum.env().sleep(PAUSE).await;
    }
    Err(format!("{} messages are still in progress", open.len()))
}
