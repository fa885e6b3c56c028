//! Measures how long a long ledger takes to be read and pruned, as a history or an inbox is. The takeover of a group's own
//! ledger by a new leader is measured in `ticks.rs`.

use super::cycles::runtime;
use crate::{
    measure::{Samples, ms, now},
    plan::Plan,
    report::Row,
    rivals::{quorum, quorum_of_one, spawn},
    servers::Servers,
};
use quorate::{
    ledger::Ledger,
    node::{FencingToken, Record},
    quorum::Quorum,
};
use std::sync::Arc;

/// The number of concurrent writes.
const CONCURRENT: usize = 500;
const SECOND: u64 = 1_000_000;
/// The time between two ticks, in microseconds.
const APART: u64 = 100;
/// A typical long record.
const ROW: &str = r#"{"since":1760000000000000,"schedule":"0 3 * * *","rules":"run once within 1h, skip overlaps, at least once","spread":false}"#;
/// A typical short record.
const TICK: &str = r#"{"state":"started","worker":"bench-7f3a","term":7,"at":1760000000000000}"#;

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    runtime(1)?.block_on(read_and_prune(plan, servers))
}

async fn read_and_prune(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let all = quorum(servers.urls(), "bench-ledger").await?;
    let mut rows = read_and_prune_on(&all, plan, servers).await?;
    // The measurement is repeated with a single server. On a machine with two cores, this server then has one
    // core for itself.
    let one = quorum_of_one(&servers.urls()[0], "bench-ledger").await?;
    let alone = read_and_prune_on(&one, plan, servers).await?;
    rows.extend(alone.into_iter().map(|row| row.named("one server alone: ")));
    Ok(rows)
}

async fn read_and_prune_on(quorum: &Quorum, plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let ledger = Ledger::new(quorum, "bench").map_err(|error| error.to_string())?;
    let now_micros = quorum.env().wall().as_micros();
    // The ticks are 100 µs apart and lie in the future. A node's vote on a record counts only if the node's
    // memory began before the record's time. With times in the future, the votes of all nodes count.
    let ticks = u64::try_from(plan.ledger_ticks).unwrap_or(u64::MAX);
    let begin = now_micros + 2 * SECOND;
    let rows = (0..plan.ledger_rows).map(|n| (format!("job/nightly-report-{n:05}"), u64::MAX >> 1, ROW));
    let ticks = (0..ticks)
        .map(|n| (format!("tick/nightly-report-00007/{:020}", begin + n * APART), begin + n * APART, TICK));
    fill(&ledger, rows.chain(ticks)).await?;
    // Every record was sent to all servers, so the records that a majority has confirmed reach the other
    // servers shortly afterwards.
    servers.clear_slow_calls()?;
    let error = |error: quorate::ledger::LedgerError| error.to_string();
    let (mut reads, mut least) = (Samples::default(), usize::MAX);
    for _ in 0..plan.rounds {
        let began = now();
        let answered = ledger.read().await.map_err(error)?;
        reads.add(now().since(began));
        least = least.min(answered.iter().map(|one| one.state.records.len()).min().unwrap_or(0));
    }
    let slowest_read = servers.slowest_call()?;
    servers.clear_slow_calls()?;
    let half = begin + plan.ledger_ticks as u64 * APART / 2;
    let pause = quorum.env().wall().until(quorate::env::WallTime::from_micros(half));
    quorum.env().sleep(pause).await;
    let began = now();
    ledger.prune(half).await.map_err(error)?;
    let pruned = now().since(began);
    let slowest_prune = servers.slowest_call()?;
    let small = Ledger::new(quorum, "small").map_err(|error| error.to_string())?;
    fill(&small, (0..20).map(|n| (format!("tick/j/{n:020}"), begin, TICK))).await?;
    let mut shorts = Samples::default();
    for _ in 0..plan.rounds {
        let began = now();
        small.read().await.map_err(error)?;
        shorts.add(now().since(began));
    }
    quorum.close().await;
    let row = |figure: &str, unit, value| Row::new("quorate", figure, unit, value);
    let all = (plan.ledger_rows + plan.ledger_ticks) as f64;
    Ok(vec![
        row("records", "", all),
        row("records that each node returned", "", least as f64).at_least(all),
        row("read, median", "ms", ms(reads.quantile(0.5))),
        row("slowest script call of it", "ms", slowest_read).at_most(5.0),
        row("prune of half the ticks", "ms", ms(pruned)),
        row("slowest script call of it, prune", "ms", slowest_prune).at_most(5.0),
        row("read of 20 records, median", "ms", ms(shorts.quantile(0.5))),
    ])
}

async fn fill(
    ledger: &Ledger,
    records: impl Iterator<Item = (String, u64, &'static str)>,
) -> Result<(), String> {
    let mut writes = Vec::with_capacity(CONCURRENT);
    let mut records = records.peekable();
    while let Some((key, at, value)) = records.next() {
        let (ledger, key) = (ledger.clone(), Arc::from(key));
        let record = Record { at, term: FencingToken::new(1), last: false, value: value.into() };
        writes.push(spawn(async move { ledger.write(&key, None, &record).await }));
        if writes.len() == CONCURRENT || records.peek().is_none() {
            for one in writes.drain(..) {
                one.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}
