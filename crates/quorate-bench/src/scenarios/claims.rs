//! Measures claims of many message ids: one by one, in batches, and with a rival.

use super::cycles::runtime;
use crate::{
    measure::{Spread, cpu, now},
    plan::Plan,
    report::Row,
    rivals::{Kind, Rival, quorum, quorum_of_one, spawn},
    servers::Servers,
};
use quorate::claim::{Claim, ClaimOutcome, Claims};
use std::{sync::Arc, time::Duration};

/// The number of ids that the rival has in flight at a time. [`Claims::claim_many`] has the same number in
/// flight.
const PIPELINED: usize = 512;
/// When ids are claimed one by one, only one id in this many is claimed, because claiming all ids would take
/// too long.
const SINGLY_PART: usize = 10;

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    runtime(1)?.block_on(measure(plan, servers))
}

/// The rates in ids per second, one for each round.
#[derive(Default)]
struct Rates {
    singly: Vec<f64>,
    batches: Vec<f64>,
    /// The processor time for each id, in microseconds, of this process and of all servers together.
    ours: Vec<f64>,
    theirs: Vec<f64>,
    counted: Vec<f64>,
    bare_singly: Vec<f64>,
    bare_pipelined: Vec<f64>,
}

async fn measure(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let quorum = quorum(servers.urls(), "bench-claims").await?;
    let bare = Arc::new(Kind::Bare.start(servers.urls()).await?);
    let plain = Claims::new(&quorum, "bench");
    let counted = plain.clone().max_attempts(5);
    let mut rates = Rates::default();
    for round in 0..=plan.rounds {
        let ids = |what: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{what}-{round}-{number}")).collect()
        };
        let few = plan.ids.div_ceil(SINGLY_PART);
        let singly = singly(&plain, ids("one", few)).await?;
        let (spent, theirs) = (cpu(), servers.cpu()?);
        let batched = batches(&plain, ids("many", plan.ids)).await?;
        let an_id = |spent: Duration| spent.as_secs_f64() * 1e6 / plan.ids as f64;
        let of_round = Rates {
            singly: vec![singly],
            batches: vec![batched],
            ours: vec![an_id(cpu().saturating_sub(spent))],
            theirs: vec![an_id(servers.cpu()?.saturating_sub(theirs))],
            counted: vec![batches(&counted, ids("counted", plan.ids)).await?],
            bare_singly: vec![bare_singly(&bare, ids("bare-one", few)).await?],
            bare_pipelined: vec![bare_pipelined(&bare, ids("bare", plan.ids)).await?],
        };
        // The first round is a warm-up.
        if round > 0 {
            rates.add(of_round);
        }
    }
    let blocked = servers.slowest_call()?;
    quorum.close().await;
    let alone = alone(plan, servers).await?;
    let ratio =
        Spread::of(rates.batches.iter().copied()).median / Spread::of(rates.singly.iter().copied()).median;
    let of_one =
        Spread::of(alone.batches.iter().copied()).median / Spread::of(alone.singly.iter().copied()).median;
    let to_bare = Spread::of(rates.batches.iter().zip(&rates.bare_pipelined).map(|(ours, bare)| ours / bare));
    let row = |rival, figure: &str, of: Vec<f64>| Row::spread(rival, figure, "ids/s", Spread::of(of));
    Ok(vec![
        row("quorate", "claim and complete, one by one", rates.singly),
        row("quorate", "claim and complete, in batches", rates.batches),
        Row::spread("quorate", "an id of a batch: client CPU", "µs", Spread::of(rates.ours)),
        Row::spread("quorate", "an id of a batch: CPU of five servers", "µs", Spread::of(rates.theirs)),
        row("quorate", "the same, with attempts counted", rates.counted),
        Row::new("quorate", "batches against one by one", "×", ratio).at_least(20.0),
        Row::spread("quorate", "batches against SET NX PX pipelined", "×", to_bare).at_least(0.5),
        row("bare", "SET NX PX on five servers, one by one", rates.bare_singly),
        row("bare", "SET NX PX on five servers, pipelined", rates.bare_pipelined),
        Row::new("quorate", "slowest script call on a server", "ms", blocked).at_most(5.0),
        row("quorate", "one server alone: one by one", alone.singly),
        row("quorate", "one server alone: in batches", alone.batches),
        Row::new("quorate", "one server alone: batches against one by one", "×", of_one).at_least(20.0),
        Row::new("quorate", "one server alone: slowest script call", "ms", alone.blocked).at_most(5.0),
    ])
}

/// The rates in ids per second with only one server, and the longest time for which that server served no
/// other client. On a machine with two cores, the server then has one core for itself.
struct SingleServer {
    singly: Vec<f64>,
    batches: Vec<f64>,
    blocked: f64,
}

async fn alone(plan: &Plan, servers: &Servers) -> Result<SingleServer, String> {
    let quorum = quorum_of_one(&servers.urls()[0], "bench-claims").await?;
    let claims = Claims::new(&quorum, "bench");
    let mut alone = SingleServer { singly: Vec::new(), batches: Vec::new(), blocked: 0.0 };
    servers.clear_slow_calls()?;
    for round in 0..=plan.rounds {
        let ids = |what: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{what}-{round}-{number}")).collect()
        };
        let one = singly(&claims, ids("one", plan.ids.div_ceil(SINGLY_PART))).await?;
        let many = batches(&claims, ids("many", plan.ids)).await?;
        if round > 0 {
            alone.singly.push(one);
            alone.batches.push(many);
        }
    }
    alone.blocked = servers.slowest_call()?;
    quorum.close().await;
    Ok(alone)
}

impl Rates {
    fn add(&mut self, round: Self) {
        self.singly.extend(round.singly);
        self.batches.extend(round.batches);
        self.ours.extend(round.ours);
        self.theirs.extend(round.theirs);
        self.counted.extend(round.counted);
        self.bare_singly.extend(round.bare_singly);
        self.bare_pipelined.extend(round.bare_pipelined);
    }
}

fn claimed(outcome: ClaimOutcome) -> Result<Claim, String> {
    match outcome {
        ClaimOutcome::Claimed(claim) => Ok(claim),
        other => Err(format!("{other:?}")),
    }
}

async fn singly(claims: &Claims, ids: Vec<String>) -> Result<f64, String> {
    let began = now();
    for id in &ids {
        let outcome = claims.claim(id).await.map_err(|error| error.to_string())?;
        claimed(outcome)?.complete("ok").await.map_err(|error| error.to_string())?;
    }
    Ok(ids.len() as f64 / now().since(began).as_secs_f64())
}

/// Claims ids in batches. On a busy machine an id may not be granted at once. Such an id is claimed again in
/// the next pass, as a consumer would do.
async fn batches(claims: &Claims, ids: Vec<String>) -> Result<f64, String> {
    let (count, began) = (ids.len(), now());
    let mut open = ids;
    let mut passes = 0;
    while !open.is_empty() {
        passes += 1;
        if passes > 100 {
            return Err(format!("{} ids cannot be claimed", open.len()));
        }
        let (mut held, mut again) = (Vec::new(), Vec::new());
        for (id, outcome) in claims.claim_many(&open).await.map_err(|error| error.to_string())? {
            match outcome {
                Ok(outcome) => match claimed(outcome) {
                    Ok(claim) => held.push((claim, "ok")),
                    Err(_) => again.push(id.to_string()),
                },
                Err(_) => again.push(id.to_string()),
            }
        }
        for (id, completed) in Claim::complete_many(held).await {
            completed.map_err(|error| format!("{id}: {error}"))?;
        }
        open = again;
    }
    Ok(count as f64 / now().since(began).as_secs_f64())
}

async fn bare_singly(bare: &Arc<Rival>, ids: Vec<String>) -> Result<f64, String> {
    let began = now();
    for id in &ids {
        bare.acquire(id).await.ok_or("not set")?;
    }
    Ok(ids.len() as f64 / now().since(began).as_secs_f64())
}

async fn bare_pipelined(bare: &Arc<Rival>, ids: Vec<String>) -> Result<f64, String> {
    let (count, began) = (ids.len(), now());
    for chunk in ids.chunks(PIPELINED) {
        let set = |id: String| {
            let bare = Arc::clone(bare);
            spawn(async move { bare.acquire(&id).await.is_some() })
        };
        let sets: Vec<_> = chunk.iter().cloned().map(set).collect();
        for one in sets {
            one.await.map_err(|error| error.to_string())?.then_some(()).ok_or("not set")?;
        }
    }
    Ok(count as f64 / now().since(began).as_secs_f64())
}
