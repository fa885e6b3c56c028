//! The shipped code under every fault that the simulation knows, seed by seed.
//!
//! A failure prints the seed and the command that replays it.

use quorate_testkit::sim::{Lie, Outcome, Plan, simulate};
use std::{collections::BTreeMap, ops::Range, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// The seeds of every run; `QUORATE_SEEDS=1..5001` tries others.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("QUORATE_SEEDS") else { return 1..201 };
    let (first, end) = text.split_once("..").expect("QUORATE_SEEDS is like 1..201");
    first.parse().expect("a number")..end.parse().expect("a number")
}

/// Runs `look` over the seeds on as many threads as there are processors.
fn over<T: Send>(seeds: Range<u64>, look: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return found;
                }
                found.push(look(seed));
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no seed panics")).collect()
    })
}

fn replay_command(seed: u64) -> String {
    format!("QUORATE_SEED={seed} cargo test -p quorate-testkit --test simulation -- --nocapture replay")
}

fn add(total: &mut BTreeMap<String, u64>, outcome: &Outcome) {
    for (what, count) in &outcome.coverage {
        *total.entry(what.clone()).or_default() += count;
    }
}

#[test]
fn two_hundred_seeds_hold_and_each_is_one_history() {
    let plan = Plan::default();
    let outcomes = over(seeds(), |seed| {
        let outcome = simulate(seed, &plan);
        let again = simulate(seed, &plan);
        let differs = outcome.trace.iter().zip(&again.trace).position(|(one, two)| one != two);
        let differs = differs.or((outcome != again).then_some(0));
        (Outcome { trace: Vec::new(), ..outcome }, differs)
    });
    let mut total = BTreeMap::new();
    let mut wrong = Vec::new();
    for (outcome, differs) in &outcomes {
        add(&mut total, outcome);
        if let Some(violation) = &outcome.violation {
            wrong.push(format!("seed {}: {violation}\n    {}", outcome.seed, replay_command(outcome.seed)));
        }
        if let Some(line) = differs {
            wrong.push(format!("seed {}: a second run differs at line {line} of its trace", outcome.seed));
        }
    }
    println!("{total:#?}");
    assert!(wrong.is_empty(), "{} of {} seeds:\n{}", wrong.len(), outcomes.len(), wrong.join("\n"));
}

/// One seed with its whole trace: `QUORATE_SEED=27`.
#[test]
fn replay() {
    let seed = std::env::var("QUORATE_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    let outcome = simulate(seed, &Plan::default());
    outcome.trace.iter().for_each(|line| println!("{line}"));
    assert_eq!(outcome.violation, None, "seed {seed}");
}

#[test]
#[ignore]
fn explore() {
    let plans = [
        ("honest", Plan::default()),
        ("forgetful", Plan { lie: Some(Lie::Forgetful), ..Plan::default() }),
        ("timeless", Plan { lie: Some(Lie::Timeless), ..Plan::default() }),
        ("generous", Plan { lie: Some(Lie::Generous), ..Plan::default() }),
        ("uncounting", Plan { lie: Some(Lie::Uncounting), ..Plan::default() }),
    ];
    let mut plans = plans.to_vec();
    let mut p = Plan::default();
    p.setup.trust_new_nodes = true;
    plans.push(("trusting", p));
    let mut p = Plan::default();
    p.setup.clock_step_allowance = std::time::Duration::ZERO;
    plans.push(("steps ignored", p.clone()));
    p.setup.drift_rate = 0.0;
    plans.push(("steps and drift ignored", p));
    for (name, plan) in plans {
        let n = if name == "honest" { seeds() } else { 1..201 };
        let out = over(n, |seed| simulate(seed, &plan).violation.map(|v| (seed, v)));
        let mut bad: Vec<_> = out.into_iter().flatten().collect();
        bad.sort();
        println!("{name}: {} bad; {:#?}", bad.len(), &bad[..bad.len().min(6)]);
    }
}
