//! Measures the memory and the processor time of very many leases in one process.

use super::cycles::runtime;
use crate::{
    measure::{cpu, now, resident},
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::{lease::Lease, quorum::Quorum};
use std::time::Duration;

/// The number of concurrent acquires.
const CONCURRENT: usize = 64;
/// The longest wait for one acquire, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    runtime(1)?.block_on(hold(plan, servers))
}

async fn hold(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let quorum = quorum(servers.urls(), "bench-many").await?;
    // Some leases are acquired and dropped first. They allocate the connections and buffers, which must not
    // count as memory of the leases.
    let warm = acquire(&quorum, plan, "warm", CONCURRENT * 4).await?;
    for lease in warm {
        lease.release().await.map_err(|error| error.to_string())?;
    }
    let before = resident();
    let leases = acquire(&quorum, plan, "many", plan.leases).await?;
    // The caller owns the handles of the leases. Their memory is counted too.
    let bytes = resident().saturating_sub(before) as f64 / leases.len() as f64;
    let env = quorum.env();
    // The measurement begins after each lease has been renewed once. So it does not include the effects of the
    // acquires.
    env.sleep(plan.leases_ttl / 2).await;
    let (began, spent, theirs) = (now(), cpu(), servers.cpu()?);
    env.sleep(plan.held_for).await;
    let took = now().since(began).as_secs_f64();
    let spent = cpu().saturating_sub(spent).as_secs_f64();
    let theirs = servers.cpu()?.saturating_sub(theirs).as_secs_f64();
    let held_bytes = resident().saturating_sub(before) as f64 / leases.len() as f64;
    let lost = leases.iter().filter(|lease| !lease.is_valid()).count();
    let blocked = servers.slowest_call()?;
    quorum.close().await;
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    Ok(vec![
        row("leases held", "", leases.len() as f64),
        row("leases lost", "", lost as f64).at_most(0.0),
        row("client CPU", "% of a core", 100.0 * spent / took).at_most(12.0),
        row("five servers' CPU", "% of a core", 100.0 * theirs / took),
        row("memory a lease, just acquired", "bytes", bytes),
        row("memory a lease, after renewals", "bytes", held_bytes).at_most(1000.0),
        row("slowest script call on a server", "ms", blocked).at_most(5.0),
    ])
}

async fn acquire(quorum: &Quorum, plan: &Plan, name: &str, count: usize) -> Result<Vec<Lease>, String> {
    let mut leases = Vec::with_capacity(count);
    for first in (0..count).step_by(CONCURRENT) {
        let locks: Vec<_> = (first..count.min(first + CONCURRENT))
            .map(|number| quorum.lock(format!("{name}-{number}")).ttl(plan.leases_ttl))
            .collect();
        let acquires: Vec<_> =
            locks.into_iter().map(|lock| spawn(async move { lock.wait(PATIENCE).acquire().await })).collect();
        for one in acquires {
            let lease = one.await.map_err(|error| error.to_string())?;
            leases.push(lease.map_err(|error| error.to_string())?);
        }
    }
    Ok(leases)
}
