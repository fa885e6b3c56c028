//! Measures the time from a holder's release to the next acquire, while other contenders wait.

use super::cycles::runtime;
use crate::{
    measure::{Samples, ms, now},
    plan::Plan,
    report::Row,
    rivals::{Dialect, Listener, Raw, TTL, quorum, spawn},
    servers::Servers,
};
use quorate::{env::BootTime, quorum::Quorum};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The time for which each contender holds the lock. This time is long enough for all other contenders to
/// begin to wait.
const HOLD: Duration = Duration::from_millis(10);

/// The start of the last release, and the times from a release to the next acquire.
#[derive(Default)]
struct Baton {
    released: Option<BootTime>,
    gaps: Samples,
}

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (contenders, p50, p99) in [(2, 0.5, 1.5), (16, 1.2, 3.0)] {
        let rows_of = |rival: &str, gaps: &Samples| {
            [("p50", 0.5), ("p99", 0.99)].map(|(what, share)| {
                let figure = format!("release to next acquire, {contenders} contenders, {what}");
                Row::new(rival, figure, "ms", ms(gaps.quantile(share)))
            })
        };
        let gaps = runtime(2)?.block_on(ours(plan, servers, contenders))?;
        let [median, longest] = rows_of("quorate", &gaps);
        rows.extend([median.at_most(p50), longest.at_most(p99)]);
        rows.extend(rows_of("rslock", &runtime(2)?.block_on(rslocks(plan, servers, contenders))?));
        let done = |gaps: &Samples| gaps.len() >= plan.handovers;
        rows.extend(rows_of("limit", &runtime(2)?.block_on(limit(servers, contenders, done))?));
    }
    Ok(rows)
}

/// Measures Quorate. Each contender is a separate worker with its own connections.
async fn ours(plan: &Plan, servers: &Servers, contenders: usize) -> Result<Samples, String> {
    let baton = Arc::new(Mutex::new(Baton::default()));
    let resource = format!("hand-over-{contenders}");
    let mut tasks = Vec::new();
    for number in 0..contenders {
        let quorum = quorum(servers.urls(), &format!("contender-{number}")).await?;
        tasks.push(spawn(contend(quorum, resource.clone(), Arc::clone(&baton), plan.handovers)));
    }
    join(tasks).await?;
    let mut baton = baton.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut baton.gaps))
}

async fn contend(
    quorum: Quorum,
    resource: String,
    baton: Arc<Mutex<Baton>>,
    enough: usize,
) -> Result<(), String> {
    let env = quorum.env().clone();
    while baton.lock().unwrap_or_else(PoisonError::into_inner).gaps.len() < enough {
        let lease = quorum.lock(&resource).ttl(TTL).acquire().await.map_err(|error| error.to_string())?;
        taken(&baton);
        env.sleep(HOLD).await;
        given(&baton);
        lease.release().await.map_err(|error| error.to_string())?;
        // The pause gives a contender that already waits the time to acquire first.
        env.sleep(HOLD / 2).await;
    }
    quorum.close().await;
    Ok(())
}

async fn rslocks(plan: &Plan, servers: &Servers, contenders: usize) -> Result<Samples, String> {
    let baton = Arc::new(Mutex::new(Baton::default()));
    let resource = format!("rslock-hand-over-{contenders}");
    let mut tasks = Vec::new();
    for _ in 0..contenders {
        let manager = rslock::LockManager::new(servers.urls().iter().map(String::as_str).collect());
        let (resource, baton, enough) = (resource.clone(), Arc::clone(&baton), plan.handovers);
        let env = quorate::env::Env::system();
        tasks.push(spawn(async move {
            while baton.lock().unwrap_or_else(PoisonError::into_inner).gaps.len() < enough {
                // An attempt of the rival may fail. The loop then tries again, without a limit.
                let Ok(guard) = manager.acquire(&*resource, TTL).await else { continue };
                taken(&baton);
                env.sleep(HOLD).await;
                given(&baton);
                guard.release().await;
                env.sleep(HOLD / 2).await;
            }
            Ok(())
        }));
    }
    join(tasks).await?;
    let mut baton = baton.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut baton.gaps))
}

/// Measures Quorate's script calls on raw sockets until `done`. Each contender is subscribed to the releases, as
/// one of Quorate is. Only the contender whose turn it is makes an attempt, as if all knew the order without a
/// message, and once a majority of the servers has reported the release. So no order of waiters can be faster
/// with these scripts.
pub(super) async fn limit(
    servers: &Servers,
    contenders: usize,
    mut done: impl FnMut(&Samples) -> bool,
) -> Result<Samples, String> {
    let resource = format!("limit-hand-over-{contenders}");
    let env = quorate::env::Env::system();
    let mut all = Vec::new();
    for _ in 0..contenders {
        let listener = Listener::start(servers.urls(), &resource).await?;
        all.push((Raw::start(servers.urls(), Dialect::Quorate).await?, listener));
    }
    let refused = || "an attempt on raw sockets was refused".to_owned();
    let mut gaps = Samples::default();
    let mut held = all[0].0.acquire(&resource).await.ok_or_else(refused)?;
    let mut holder = 0;
    while !done(&gaps) {
        env.sleep(HOLD).await;
        let next = (holder + 1) % contenders;
        let owner = held.owner().to_owned();
        let [(holding, _), (waiting, reports)] =
            all.get_disjoint_mut([holder, next]).map_err(|error| error.to_string())?;
        let released = now();
        let take = async {
            if !reports.released(&owner).await {
                return Err("the connection of a waiter broke".to_owned());
            }
            let taken = waiting.acquire(&resource).await;
            Ok((taken, now().since(released)))
        };
        let ((), taken) = tokio::join!(holding.release(held), take);
        let (taken, gap) = taken?;
        held = taken.ok_or_else(refused)?;
        gaps.add(gap);
        holder = next;
    }
    Ok(gaps)
}

fn taken(baton: &Mutex<Baton>) {
    let mut baton = baton.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(released) = baton.released.take() {
        baton.gaps.add(now().since(released));
    }
}

fn given(baton: &Mutex<Baton>) {
    baton.lock().unwrap_or_else(PoisonError::into_inner).released = Some(now());
}

pub(super) async fn join<T>(
    tasks: Vec<tokio::task::JoinHandle<Result<T, String>>>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.map_err(|error| error.to_string())??);
    }
    Ok(all)
}
