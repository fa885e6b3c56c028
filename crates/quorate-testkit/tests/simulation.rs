//! The shipped code under every fault that the simulation knows, seed by seed.
//!
//! A failure prints the seed and the command that replays it.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_testkit::sim::{Lie, Outcome, Plan, simulate};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The seeds of every run; `QUORATE_SEEDS=1..5001` tries others.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("QUORATE_SEEDS") else { return 1..201 };
    let (first, end) = text.split_once("..").expect("QUORATE_SEEDS is like 1..201");
    first.parse().expect("a number")..end.parse().expect("a number")
}

/// Runs `look` over the seeds on as many threads as there are processors, each seed in a runtime of its own.
fn over<T: Send>(seeds: &Range<u64>, look: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
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
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no seed panics")).collect()
    })
}

/// The plans under which every seed must hold, by name, so that a failure can be replayed.
fn plan(name: &str) -> Plan {
    let mut plan = Plan::default();
    match name {
        "default" => {}
        // Old counters come back with old snapshots, often enough that a majority of them does.
        "old-counters" => (plan.crashes, plan.snapshots) = (300, 1_000),
        // Clocks drift by what is allowed and never step, and the margin is for just that.
        "no-slack" => (plan.steps, plan.setup.clock_step_allowance) = (false, Duration::ZERO),
        other => panic!("there is no plan {other}"),
    }
    plan
}

/// What is wrong with a seed's run, and how to see it again.
fn complaint(name: &str, outcome: &Outcome) -> Option<String> {
    let (seed, violation) = (outcome.seed, outcome.violation.as_ref()?);
    Some(format!(
        "seed {seed}: {violation}\n  replay: QUORATE_PLAN={name} QUORATE_SEED={seed} \
         cargo test -p quorate-testkit --test simulation -- --nocapture replay"
    ))
}

/// Runs the seeds, each twice, and fails with every seed that broke an invariant or had two histories.
fn hold(seeds: &Range<u64>, name: &str) -> BTreeMap<String, u64> {
    let plan = &plan(name);
    let runs = over(seeds, |seed| {
        let (one, two) = (simulate(seed, plan), simulate(seed, plan));
        let parted = one.trace.iter().zip(&two.trace).position(|(one, two)| one != two);
        let parted = parted.or((one != two).then_some(one.trace.len().min(two.trace.len())));
        let parted = parted.map(|line| format!("seed {seed}: two runs part at line {line} of the trace"));
        (one.coverage.clone(), complaint(name, &one).or(parted))
    });
    let wrong: Vec<&String> = runs.iter().filter_map(|(_, wrong)| wrong.as_ref()).collect();
    wrong.iter().for_each(|wrong| println!("{wrong}"));
    assert!(wrong.is_empty(), "{} of {} seeds are wrong: see above", wrong.len(), runs.len());
    let mut total = BTreeMap::new();
    for (what, count) in runs.into_iter().flat_map(|(coverage, _)| coverage) {
        *total.entry(what).or_default() += count;
    }
    total
}

#[test]
fn every_seed_holds_and_is_one_history() {
    let seeds = seeds();
    let reached = hold(&seeds, "default");
    println!("{reached:#?}");
    // A simulation that idles holds everything. Each of these is reached so often a seed, with room to spare.
    let hundredths = [
        ("lease granted", 2_000),
        ("lost", 40),
        ("stepped down", 100),
        // Votes that were split are cast again, so what is contended is held by somebody.
        ("attempt contended", 1_500),
        ("attempt dropped", 400),
        ("attempt unreachable", 1_000),
        ("attempt untrusted", 400),
        ("wait rewarded", 1_000),
        ("wait contended", 400),
        ("extended by hand", 600),
        ("extend extended", 6_000),
        ("extend held", 200),
        ("raise raised", 1_000),
        ("mark marked", 1_000),
        ("acquire refused marker", 200),
        ("acquire refused stale", 2_000),
        ("extend refused stale", 300),
        ("release confirmed", 600),
        ("release unconfirmed", 200),
        ("road cut", 300),
        ("road there cut", 300),
        ("road back cut", 300),
        ("server stopped", 300),
        ("server crashed", 200),
        ("server started empty", 150),
        ("server started from a snapshot", 50),
        ("server flushed", 80),
        ("server clock stepped", 150),
        ("worker paused", 300),
        ("worker crashed", 150),
        // Half of the seeds have a leader and jobs, half have messages; one in six has both.
        ("leader changed", 100),
        ("term granted", 150),
        ("leader resigned", 25),
        ("leader failed", 4),
        ("leader panicked", 4),
        ("campaign dropped", 30),
        ("campaign shut down", 100),
        ("registration not at once", 8),
        ("tick started at-least-once", 1_000),
        ("tick started at-least-once made up", 500),
        ("tick started at-most-once", 1_000),
        ("tick started at-most-once made up", 250),
        ("tick ended", 2_500),
        ("tick torn", 120),
        ("tick stopped", 20),
        ("tick timed out", 150),
        ("tick interrupted in its term", 5),
        ("tick overtaken", 80),
        ("tick left: unknown", 300),
        ("tick left: started before", 150),
        ("ticks missed: stood for", 60),
        ("write standing", 50),
        ("claim granted", 1_200),
        ("claim in progress", 1_200),
        ("claim done", 900),
        ("claim completed", 900),
        ("claim abandoned", 100),
        ("claim dropped", 50),
        ("claim lost", 10),
        ("claimed in a batch", 1_000),
        ("handler stepped down", 50),
        ("process dropped", 50),
        ("complete dropped", 12),
        ("complete: no majority", 12),
        ("complete: taken over", 1),
        ("complete: superseded", 1),
        ("complete refused superseded", 100),
        // What the store that compares tokens refused, the other one lost.
        ("checked write refused", 12),
        ("unchecked write lost an update", 12),
    ];
    let count = seeds.end - seeds.start;
    for (what, least) in hundredths {
        let times = reached.get(what).copied().unwrap_or_default();
        assert!(times * 100 >= least * count, "{what}: {times} times in {count} seeds");
    }
}

/// Were a counter that is older than its node's memory taken at its word, a token would come twice.
#[test]
fn tokens_grow_though_servers_come_back_with_old_counters() {
    hold(&(1..41), "old-counters");
}

/// Whoever counts validity from a moment too late believes too long.
#[test]
fn no_margin_is_wider_than_it_must_be() {
    hold(&(1..41), "no-slack");
}

/// One seed with its whole trace: `QUORATE_SEED=27`, and `QUORATE_PLAN` where it is not the default one.
#[test]
fn replay() {
    let name = std::env::var("QUORATE_PLAN").unwrap_or_else(|_| "default".to_owned());
    let seed = std::env::var("QUORATE_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    let outcome = simulate(seed, &plan(&name));
    outcome.trace.iter().for_each(|line| println!("{line}"));
    assert_eq!(outcome.violation, None, "seed {seed}");
}

/// The first of `seeds` in which `plan` breaks the invariant called `name`.
#[track_caller]
fn found_out(name: &str, plan: &Plan, seeds: Range<u64>) {
    let end = seeds.end;
    for seed in seeds {
        let outcome = simulate(seed, plan);
        let broken = format!("VIOLATION {name}: ");
        if let Some(line) = outcome.trace.iter().find(|line| line.contains(&broken)) {
            println!("seed {seed}: {line}");
            return;
        }
    }
    panic!("{plan:?} breaks {name} in none of the seeds before {end}: the invariant sees nothing");
}

fn lying(lie: Lie) -> Plan {
    Plan { lie: Some(lie), ..Plan::default() }
}

#[test]
fn a_node_that_forgets_leases_and_keeps_its_vote_is_found_out() {
    found_out("exclusion", &lying(Lie::Forgetful), 1..41);
}

#[test]
fn a_node_that_grants_what_is_held_is_found_out() {
    found_out("exclusion", &lying(Lie::Generous), 1..11);
}

#[test]
fn a_node_that_ignores_not_after_is_found_out() {
    found_out("release", &lying(Lie::Timeless), 1..21);
}

#[test]
fn a_node_that_counts_no_grant_is_found_out() {
    found_out("fencing", &lying(Lie::Uncounting), 1..11);
}

#[test]
fn a_node_that_keeps_what_was_released_is_found_out() {
    found_out("liveness", &lying(Lie::Clinging), 1..11);
}

#[test]
fn without_quarantine_two_hold() {
    let mut plan = Plan::default();
    plan.setup.trust_new_nodes = true;
    found_out("exclusion", &plan, 1..101);
}

#[test]
fn without_a_margin_for_drift_and_steps_a_belief_outlives_its_keys() {
    let mut plan = Plan::default();
    plan.setup.drift_rate = 0.0;
    plan.setup.clock_step_allowance = Duration::ZERO;
    found_out("backing", &plan, 1..61);
}

#[test]
fn without_a_margin_for_drift_a_belief_outlives_its_keys() {
    let mut plan = plan("no-slack");
    plan.setup.drift_rate = 0.0;
    found_out("backing", &plan, 1..101);
}

#[test]
fn timers_that_ring_late_are_found_out() {
    let plan = Plan { oversleep: Duration::from_millis(700), ..Plan::default() };
    found_out("step-down", &plan, 1..41);
}
