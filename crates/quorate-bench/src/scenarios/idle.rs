//! Measures what replicas of a scheduler cost while nothing is due.

use super::cycles::runtime;
use crate::{
    measure::{cpu, now},
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::{Cron, Job, Scheduler};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The number of replicas.
const REPLICAS: usize = 3;
/// The time after which the leader is elected, the other replicas wait, and all of them poll as seldom as they do at
/// rest.
const SETTLE: Duration = Duration::from_secs(40);

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    runtime(1)?.block_on(measure(plan, servers))
}

async fn measure(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let stop = CancellationToken::new();
    let (mut replicas, mut quorums) = (Vec::new(), Vec::new());
    for number in 0..REPLICAS {
        let quorum = quorum(servers.urls(), &format!("replica-{number}")).await?;
        let nightly = Cron::parse("0 3 * * *").map_err(|error| error.to_string())?;
        let job = Job::new("nightly", nightly, |_run| async { Ok::<(), std::io::Error>(()) });
        let run = Scheduler::new(&quorum, "idle").job(job).run();
        replicas.push(spawn(run.until(stop.clone().cancelled_owned())));
        quorums.push(quorum);
    }
    let env = quorums[0].env().clone();
    env.sleep(SETTLE.min(plan.held_for)).await;
    let (began, spent, asked, theirs) = (now(), cpu(), servers.commands()?, servers.cpu()?);
    env.sleep(plan.held_for).await;
    let took = now().since(began).as_secs_f64();
    let spent = cpu().saturating_sub(spent).as_secs_f64() / REPLICAS as f64;
    let commands = servers.commands()?.saturating_sub(asked);
    let theirs = servers.cpu()?.saturating_sub(theirs).as_secs_f64();
    stop.cancel();
    for replica in replicas {
        replica.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    }
    for quorum in &quorums {
        quorum.close().await;
    }
    let servers = servers.urls().len() as f64;
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    Ok(vec![
        row("three replicas, one nightly job: CPU of a replica", "% of a core", 100.0 * spent / took)
            .at_most(0.2),
        row("commands at a server", "/s", commands as f64 / took / servers).at_most(6.0),
        row("CPU of a server", "% of a core", 100.0 * theirs / took / servers),
    ])
}
