//! Measures a set of very many shards: how soon it is balanced, and what it costs at rest.

use super::cycles::runtime;
use crate::{
    measure::{cpu, now},
    plan::Plan,
    report::Row,
    rivals::{quorum, spawn},
    servers::Servers,
};
use quorate::shards::{Shard, Shards};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The number of workers.
const WORKERS: usize = 20;
/// The number of shards of the plan for very many leases, and of the quick one.
const SHARDS: [usize; 2] = [1_024, 64];
/// The longest wait for a balanced set.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which all workers poll as seldom as they do at rest.
const SETTLE: Duration = Duration::from_secs(20);

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    runtime(1)?.block_on(measure(plan, servers))
}

async fn measure(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let count = SHARDS[usize::from(plan.leases < 10_000)];
    let stop = CancellationToken::new();
    let (mut runs, mut quorums, mut sets) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WORKERS {
        let quorum = quorum(servers.urls(), &format!("shards-{number}")).await?;
        sets.push(Shards::new(&quorum, "bench", count));
        quorums.push(quorum);
    }
    let work = |shard: Shard| async move {
        shard.step_down_token().cancelled().await;
        Ok::<(), std::io::Error>(())
    };
    let env = quorums[0].env().clone();
    let began = now();
    let mut start = |set: &Shards| runs.push(spawn(set.run(work).until(stop.clone().cancelled_owned())));
    sets[..WORKERS - 1].iter().for_each(&mut start);
    let started = balanced(&env, &sets[..WORKERS - 1], count).await?.since(began);
    let began = now();
    sets[WORKERS - 1..].iter().for_each(&mut start);
    let joined = balanced(&env, &sets, count).await?.since(began);
    env.sleep(SETTLE.min(plan.held_for)).await;
    let (began, spent, asked, calls, theirs) =
        (now(), cpu(), servers.commands()?, servers.script_calls()?, servers.cpu()?);
    env.sleep(plan.held_for).await;
    let took = now().since(began).as_secs_f64();
    let spent = cpu().saturating_sub(spent).as_secs_f64() / WORKERS as f64;
    let per = took * servers.urls().len() as f64 * WORKERS as f64;
    let commands = servers.commands()?.saturating_sub(asked) as f64 / per;
    let calls = servers.script_calls()?.saturating_sub(calls) as f64 / per;
    let theirs = servers.cpu()?.saturating_sub(theirs).as_secs_f64() / servers.urls().len() as f64;
    stop.cancel();
    for run in runs {
        run.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    }
    for quorum in &quorums {
        quorum.close().await;
    }
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    Ok(vec![
        row("shards, of 20 workers", "", count as f64),
        row("19 workers start together: until balanced", "s", started.as_secs_f64()),
        row("another worker joins: until balanced", "s", joined.as_secs_f64()).at_most(1.0),
        row("at rest: script calls, a worker and server", "/s", calls).at_most(2.0),
        row("at rest: commands with those of scripts, a worker and server", "/s", commands),
        row("CPU of a worker", "% of a core", 100.0 * spent / took),
        row("CPU of a server", "% of a core", 100.0 * theirs / took),
    ])
}

/// Waits until all shards have an owner, and shares differ by at most one. Returns the time of this.
async fn balanced(
    env: &quorate::env::Env,
    sets: &[Shards],
    count: usize,
) -> Result<quorate::env::BootTime, String> {
    let until = now() + PATIENCE;
    loop {
        let shares: Vec<usize> = sets.iter().map(|set| set.owned().len()).collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        let is_even = least.zip(most).is_some_and(|(least, most)| most - least <= 1);
        if is_even && shares.iter().sum::<usize>() == count {
            return Ok(now());
        }
        if now() > until {
            return Err(format!("not balanced within {PATIENCE:?}: {shares:?}"));
        }
        env.sleep(Duration::from_millis(5)).await;
    }
}
