//! Measures how often a contended lock changes hands, and the workers' shares.

use super::{
    cycles::runtime,
    handover::{join, limit},
};
use crate::{
    measure::now,
    plan::Plan,
    report::Row,
    rivals::{TTL, quorum, spawn},
    servers::Servers,
};
use quorate::{env::BootTime, quorum::Quorum};
use std::{sync::Arc, time::Duration};

/// The number of workers that contend for the lock.
const CONTENDERS: usize = 16;
/// The time for which a worker holds the lock. So at most 100 acquisitions a second are possible.
const HOLD: Duration = Duration::from_millis(10);

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for fair in [false, true] {
        let counts = runtime(2)?.block_on(contend(plan, servers, fair))?;
        let total = counts.iter().sum::<usize>() as f64;
        let (rate, share) = (total / plan.contended_for.as_secs_f64(), total / counts.len() as f64);
        let least = counts.iter().min().copied().unwrap_or(0) as f64 / share;
        let most = counts.iter().max().copied().unwrap_or(0) as f64 / share;
        let order = if fair { "with `fair`" } else { "without an order" };
        let row = |what: &str, unit, value| Row::new("quorate", format!("{what}, {order}"), unit, value);
        rows.push(row("acquisitions of 100 possible", "/s", rate).at_least(85.0));
        let (least, most) = (
            row("smallest share of a worker", "× the mean", least),
            row("largest share", "× the mean", most),
        );
        rows.extend(if fair { [least.at_least(0.5), most.at_most(2.0)] } else { [least, most] });
    }
    let end = now() + plan.contended_for;
    let turns = runtime(2)?.block_on(limit(servers, CONTENDERS, |_| now() >= end))?.len() as f64;
    let rate = turns / plan.contended_for.as_secs_f64();
    rows.push(Row::new("limit", "acquisitions of 100 possible, in a fixed order", "/s", rate));
    Ok(rows)
}

/// Returns the number of acquisitions of each worker.
async fn contend(plan: &Plan, servers: &Servers, fair: bool) -> Result<Vec<usize>, String> {
    let mut quorums = Vec::new();
    for number in 0..CONTENDERS {
        quorums.push(quorum(servers.urls(), &format!("contender-{number}")).await?);
    }
    let end = now() + plan.contended_for;
    let resource: Arc<str> = format!("contended-{fair}").into();
    let workers = quorums.into_iter().map(|quorum| spawn(worker(quorum, Arc::clone(&resource), fair, end)));
    join(workers.collect()).await
}

async fn worker(quorum: Quorum, resource: Arc<str>, fair: bool, end: BootTime) -> Result<usize, String> {
    let lock = quorum.lock(&resource).ttl(TTL);
    let lock = if fair { lock.fair(Duration::ZERO) } else { lock };
    let mut count = 0;
    while now() < end {
        let lock = lock.clone().wait(now().until(end));
        // The wait of the last acquire ends with the measurement.
        let Ok(lease) = lock.acquire().await else { break };
        count += 1;
        quorum.env().sleep(HOLD).await;
        lease.release().await.map_err(|error| error.to_string())?;
    }
    quorum.close().await;
    Ok(count)
}
