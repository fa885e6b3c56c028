//! Tests that each safety mechanism is needed. Each case switches off one mechanism. Within a stated number
//! of seeds, the simulation must then find a violation of the invariant that the mechanism protects.
//!
//! The first seed that breaks the invariant runs again under the same plan, with the mechanism switched on.
//! In this second run every invariant must hold, or the case fails. If two mechanisms protect against the
//! same fault, the case switches off both.
//!
//! `QUORATE_SABOTAGE=100 cargo test --release -p quorate-testkit --all-features --test sabotage -- --nocapture
//! every` counts, among 100 seeds, those that find each sabotage. `QUORATE_SABOTAGE_ONLY=raise` selects cases
//! by name.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::internals::Sabotage;
use quorate_testkit::{
    cannot_run,
    sim::{
        Difference, Directions, Fault, Memory, NODES, NetworkConditions, NoDifference, NodeChange, NodeFault,
        NodeList, OPERATOR, PLANS, Plan, SabotageCheck, Scenario, Sweep, simulate_scenario,
    },
};
use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// As in the program `simulate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A case: a mechanism to leave out, and the invariant that must break without it.
struct Case {
    /// The mechanism that is left out.
    what: &'static str,
    /// The name of the plan. With all mechanisms, every invariant holds in every seed of this plan.
    plan: &'static str,
    /// The way in which the servers violate their contract. `None` if the case is about workers.
    node_fault: Option<NodeFault>,
    /// The mechanisms that the workers leave out.
    sabotage: &'static [Sabotage],
    /// The invariant that must break. To count only certain messages of this invariant, add `: ` and a part
    /// of the message after the name.
    breaks: &'static str,
    /// The first seed. It is chosen near a seed that breaks the invariant, to save time.
    from: u64,
    /// The number of seeds, counted from `from`, within which the invariant must break. It is at least three
    /// times the number that the simulation needs at present.
    within: u64,
}

impl Case {
    const fn worker(
        what: &'static str,
        sabotage: &'static [Sabotage],
        breaks: &'static str,
        within: u64,
    ) -> Self {
        Self { what, plan: "default", node_fault: None, sabotage, breaks, from: 1, within }
    }

    const fn node(what: &'static str, node_fault: NodeFault, breaks: &'static str, within: u64) -> Self {
        Self::worker(what, &[], breaks, within).with(node_fault)
    }

    const fn on(self, plan: &'static str) -> Self {
        Self { plan, ..self }
    }

    const fn from(self, from: u64) -> Self {
        Self { from, ..self }
    }

    const fn with(self, node_fault: NodeFault) -> Self {
        Self { node_fault: Some(node_fault), ..self }
    }

    /// Returns the plan with every mechanism switched on.
    fn sound(&self) -> Plan {
        Plan::named(self.plan).expect("a plan that has this name")
    }

    fn sabotaged(&self) -> Plan {
        let mut plan = self.sound();
        plan.node_fault = self.node_fault;
        plan.setup.sabotage = self.sabotage.to_vec();
        plan
    }

    /// Returns `true` if the invariant breaks under this seed without the mechanism.
    fn breaks_in(&self, seed: u64) -> bool {
        let (sound, sabotaged) = (self.sound(), self.sabotaged());
        SabotageCheck { sound: &sound, sabotaged: &sabotaged, breaks: self.breaks }.broken(seed).is_some()
    }

    /// Returns the first seed that breaks the invariant without the mechanism. Returns an error if there is
    /// none, or if the same seed also breaks an invariant with the mechanism.
    fn find(&self) -> Result<Difference, NoDifference> {
        let (sound, sabotaged) = (self.sound(), self.sabotaged());
        SabotageCheck { sound: &sound, sabotaged: &sabotaged, breaks: self.breaks }
            .find(self.from..self.from + self.within)
    }
}

/// A message of the invariant *order* about a token that was given twice. In plans whose clocks step by any
/// amount, only this message counts. The other messages are about the order in which workers learn of their
/// grants. With such clocks, this order proves nothing.
const TWICE: &str = "order: a second time";

const CASES: &[Case] = &[
    // --- fencing ---
    Case::node("no increment", NodeFault::Uncounting, "fencing", 20),
    Case::worker("no raise", &[Sabotage::NoRaise], "fencing", 20),
    Case::worker("low re-seed, old counters trusted", &[Sabotage::OldCountersTrusted], "fencing", 30)
        .with(NodeFault::Restarting),
    // --- ownership ---
    Case::worker("owner token reused", &[Sabotage::TokenReused], "backing", 20),
    Case::node("no owner check in release", NodeFault::Ruthless, "backing", 20),
    Case::node("no not_after, at the node", NodeFault::Timeless, "release", 20),
    Case::worker("no not_after, at the worker", &[Sabotage::NoNotAfter], "release", 20),
    Case::worker("no fence between connections", &[Sabotage::NoFence], "release", 50),
    Case::worker("releases sent before other requests", &[Sabotage::ReleasesFirst], "release", 20),
    Case::worker("a dropped attempt sends no release", &[Sabotage::DropsSilently], "liveness", 20),
    Case::worker("split votes are not repeated", &[Sabotage::SplitVotesNotRetried], "liveness", 60).from(20),
    // --- validity ---
    Case::worker("validity from receipt", &[Sabotage::ValidityFromReceipt], "backing", 90)
        .on("no-slack")
        .from(20),
    Case::worker("no margin", &[Sabotage::NoMargin], "backing", 60).on("no-slack"),
    Case::worker("no margin, clocks that step", &[Sabotage::NoMargin], "backing", 60).from(20),
    Case::worker("a validity check without the clock", &[Sabotage::ChecksWithoutClock], "exclusion", 20),
    Case::worker("loss not noticed by the clock", &[Sabotage::LossFromVotesOnly], "step-down", 20),
    Case::worker("a lease outlives its release", &[Sabotage::LeaseOutlivesRelease], "exclusion", 20),
    Case::node("a free lock set again after later grants", NodeFault::Reviving, "finality", 20).on("forced"),
    Case::node("an extension does not lengthen", NodeFault::Shortening, "backing", 20),
    Case::worker("a worker that never leads campaigns", &[Sabotage::NeverLeadIgnored], "ranks", 100).from(20),
    // --- votes ---
    Case::node("a node that forgot keeps its vote", NodeFault::Forgetful, "exclusion", 60)
        .on("crashes")
        .from(10),
    Case::worker("no quarantine", &[Sabotage::NoQuarantine], "exclusion", 60).on("crashes").from(10),
    Case::worker("neither epochs nor quarantine", BOTH, "exclusion", 60).on("crashes").from(10),
    Case::worker("clock jumps not detected", &[Sabotage::ClockStepsIgnored], "exclusion", 60).on("far-steps"),
    // --- records ---
    Case::worker("skipped ticks are not closed", &[Sabotage::SkipsNotClosed], "outcomes", 20),
    Case::worker("ticks by the worker's own clock", &[Sabotage::OwnWallClock], "ticks: in truth", 60).from(5),
    Case::worker("any-worker ticks by its own clock", &[Sabotage::OwnWallClock], "runs", 60).from(7),
    Case::node("a history pruned of everything", NodeFault::Shredding, "histories", 100).from(24),
    // --- readers, queues, slots, transfers: a seed in ten has each ---
    Case::node("a reader beside a writer", NodeFault::Mingling, "readers", 100),
    Case::node("one reader releases for all", NodeFault::Dispersing, "readers", 100),
    Case::node("a grant without regard to the queue", NodeFault::Unqueueing, "fair", 100).from(28),
    Case::worker("queued by arrival", &[Sabotage::QueuedByArrival], "fair", 100).from(40),
    Case::worker("one slot tried in a pass", &[Sabotage::OneSlotTried], "slots", 100).from(11),
    Case::node("a slot granted that is held", NodeFault::Generous, "slots", 100),
    Case::worker("shards changed without a sweep", &[Sabotage::ShardsNotSwept], "shards", 400).from(160),
    Case::worker("extended after its transfer", &[Sabotage::ExtendedAfterTransfer], "transfers", 100),
    Case::node("a reservation that is not kept", NodeFault::Unreserving, "reservations", 100),
    // --- attempts and dead letters ---
    Case::worker("an attempt that one node has counted", &[Sabotage::AttemptCountedByOne], "attempts", 60),
    Case::worker("no attempt limit", &[Sabotage::AttemptLimitIgnored], "attempts", 60),
    Case::worker("a count that is not withdrawn", &[Sabotage::CountNotWithdrawn], "attempts", 60).from(14),
    Case::node("an attempt that is not counted", NodeFault::Miscounting, "attempts: began before", 60),
    Case::worker("payloads not compared", &[Sabotage::PayloadIgnored], "payloads", 60).from(21),
    Case::worker("a dead letter without its hook", &[Sabotage::FailedHookRecorded], "dead-letters", 60)
        .from(130),
    // --- replacement of the node set ---
    Case::worker("staying nodes keep their memory", &[Sabotage::StayingMemoryKept], "fencing", 300)
        .on("replace")
        .from(138),
    // --- the rules of jobs ---
    Case::worker("a concurrency key without its limit", &[Sabotage::KeyIgnored], "rules: ", 200),
    Case::worker("an end that is followed again", &[Sabotage::FollowedAgain], "rules: ", 200),
    Case::worker("failed runs that are not counted on", &[Sabotage::FailuresForgotten], "rules: ", 200),
    Case::worker("labels of workers", &[Sabotage::LabelsIgnored], "rules: ", 200),
    // --- freezes ---
    Case::worker("a freeze that ends with its leader", &[Sabotage::FreezeNotTakenOver], "freezes", 300)
        .from(312),
    Case::worker("a freeze that does not end", &[Sabotage::FreezeWithoutEnd], "freezes", 300).from(99),
    // --- jobs that are stored on the nodes ---
    Case::worker(
        "stored jobs that end with their leader",
        &[Sabotage::StoredJobsNotTakenOver],
        "stored jobs",
        60,
    )
    .on("stored"),
    Case::worker("a removed job that comes back", &[Sabotage::StoredJobsNotRemoved], "stored jobs", 100)
        .on("stored"),
    // --- histories, which a linearizability checker judges alone ---
    Case::node("history: no increment", NodeFault::Uncounting, "lock history", 20),
    Case::worker("history: no raise", &[Sabotage::NoRaise], "lock history", 20),
    Case::node("history: no owner check in release", NodeFault::Ruthless, "lock history", 20),
    Case::worker("history: a check without the clock", &[Sabotage::ChecksWithoutClock], "lock history", 20),
    Case::worker(
        "history: a lease outlives its release",
        &[Sabotage::LeaseOutlivesRelease],
        "lock history",
        20,
    ),
    Case::worker("history: neither epochs nor quarantine", BOTH, "lock history", 60).on("crashes").from(10),
    Case::node("history: a held claim is granted again", NodeFault::Generous, "message history", 20),
    Case::node("ticks: an incomplete copy that counts", NodeFault::Complete, "ticks", 150),
    Case::node("history: an incomplete copy that counts", NodeFault::Complete, "tick history", 150).from(21),
];

/// Cases for which the simulation finds no violation, or too few. The test only counts their violations, and
/// asserts nothing. For each case there is a text with the reason, and with the test that detects the missing
/// mechanism.
const NOT_MISSED: &[(Case, &str)] = &[
    (
        Case::node("a pause left out of a job's row", NodeFault::Unpausing, "requests", 100),
        "the leader that accepts a pause keeps it; only a later one reads the row, and few pauses last so long; the test-kit's own test of requests, a_paused_job_does_not_start",
    ),
    (
        Case::worker("open runs that a freeze leaves open", &[Sabotage::FrozenRunsStayOpen], "freezes", 300),
        "runs are opened at most five seconds ahead, and a worker has four seconds to notice a freeze; quorate's own test of requests, a_freeze_withdraws_the_open_runs_whose_ticks_it_covers",
    ),
    (
        Case::worker("work outlives its term", &[Sabotage::WorkOutlivesTerm], "succession", 100),
        "the work that is dropped here ends in the same turn; quorate's own tests of schedules",
    ),
    (
        Case::node("every leader served that sealed the copy", NodeFault::Unsealed, "ticks", 100),
        "a deposed leader loses its lease before its successor has one, so few requests of it are late; the model of copies, Fence and Exact; conformance, a_copy_obeys_the_leader_that_sealed_it_last",
    ),
    (
        Case::worker("no check between started and the work", &[Sabotage::NoCheckBeforeWork], "ticks", 100),
        "a pause would have to fall between two polls of one task, and here none does; quorate's own test of schedules, a_pause_between_started_and_the_work",
    ),
    (
        Case::worker("a done overruled", &[Sabotage::DoneOverruled], "claims", 100),
        "a done record is stored on a majority, which grants nothing: only a majority that forgot would; quorate's own test of claims, one_done_record_outweighs_every_grant",
    ),
    (
        Case::node("no owner check in raise", NodeFault::Obliging, TWICE, 100).on("wild-clocks"),
        "the model of tokens, RaiseByOwner; conformance, raise_is_for_the_holder",
    ),
    (
        Case::node("an extension lowers the counter", NodeFault::Lowering, TWICE, 100).on("wild-clocks"),
        "the model of tokens, RepairKeepsMore; conformance, extend_lengthens_and_raises_the_counter",
    ),
    (
        Case::node("low re-seed", NodeFault::Restarting, "fencing", 100),
        "counters older than a memory do not count: left out together above; the model of tokens, Seed",
    ),
    (
        Case::worker("old counters trusted", &[Sabotage::OldCountersTrusted], "fencing", 100)
            .on("old-counters"),
        "one seed in 150; left out together above; the model of tokens, OldCounters",
    ),
    (
        Case::worker("epochs never advanced", &[Sabotage::ForgettersCount], "exclusion", 100).on("crashes"),
        "the quarantine covers it: left out together above; the model of beliefs, QuarantineOfHolders",
    ),
];

/// Two mechanisms that are left out together: the quarantine of nodes that lost their memory, and the rule that
/// their earlier grants no longer count.
const BOTH: &[Sabotage] = &[Sabotage::ForgettersCount, Sabotage::NoQuarantine];

/// Calls `look` with each number below `count`, on one thread for each processor. Returns the results in the
/// order of the numbers.
fn over<T: Send>(count: usize, look: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return found;
            }
            found.push((at, look(at)));
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Returns the cases to check: all, or those whose name contains `QUORATE_SABOTAGE_ONLY`.
fn cases() -> Vec<&'static Case> {
    let only = std::env::var("QUORATE_SABOTAGE_ONLY").unwrap_or_default();
    if !only.is_empty() {
        cannot_run("sabotage", &format!("QUORATE_SABOTAGE_ONLY={only} leaves out all other rows"));
    }
    let cases: Vec<_> = CASES.iter().filter(|case| case.what.contains(&only)).collect();
    assert!(!cases.is_empty(), "no row's name holds QUORATE_SABOTAGE_ONLY={only}");
    cases
}

/// Returns the cases of [`cases`] and those of [`NOT_MISSED`]. They are for a run that only counts
/// violations.
fn counted() -> Vec<&'static Case> {
    let only = std::env::var("QUORATE_SABOTAGE_ONLY").unwrap_or_default();
    NOT_MISSED.iter().map(|(case, _)| case).filter(|case| case.what.contains(&only)).chain(cases()).collect()
}

#[test]
fn every_mechanism_that_is_left_out_is_missed() {
    if let Ok(seeds) = std::env::var("QUORATE_SABOTAGE") {
        cannot_run(
            "every_mechanism_that_is_left_out_is_missed",
            "QUORATE_SABOTAGE counts, and asserts nothing",
        );
        return count(seeds.parse().expect("QUORATE_SABOTAGE is a number of seeds"));
    }
    let cases = cases();
    let results = over(cases.len(), |at| cases[at].find());
    let mut wrong = Vec::new();
    for (case, result) in cases.iter().zip(results) {
        match result {
            Ok(Difference { seed, violation }) => println!("{}: seed {seed}: {violation}", case.what),
            Err(why) => wrong.push(format!("{} (plan {}): {why}", case.what, case.plan)),
        }
    }
    assert!(wrong.is_empty(), "not shown to matter:\n{wrong:#?}");
}

/// A scenario in which five servers replace five others, and a worker starts again with the new list. It has no other
/// faults than `faults`, so its histories differ only in the clocks and in the draws of the workers.
fn all_new(seed: u64, plan: &Plan, switches_at: u64, faults: impl IntoIterator<Item = Fault>) -> Scenario {
    let (begins, ms) = (Duration::from_millis(REPLACES_AT), Duration::from_millis);
    let (old, new) = (NodeList::new(false, 0..NODES), NodeList::new(true, NODES..2 * NODES));
    let change = NodeChange { old, new, begins, crashes: Vec::new() };
    let drawn = Scenario::new(seed, plan);
    let servers = drawn.servers.iter().take(NODES).cycle().take(2 * NODES).copied().collect();
    let before = faults.into_iter().map(|fault| (begins - ms(1), fault));
    let switch = [Fault::GiveNewList(0), Fault::CrashWorker(0), Fault::StartWorker(0, None)];
    let faults = before.chain(switch.map(|fault| (ms(switches_at), fault))).collect();
    Scenario { change: Some(change), servers, faults, weather: NetworkConditions::CALM, ..drawn }
}

/// The time at which the operator of [`all_new`] starts the command, in milliseconds.
const REPLACES_AT: u64 = 4_000;

/// Checks that a mechanism is needed: without it, one of these histories breaks an invariant of `breaks`. With it, the same
/// history breaks none.
fn is_needed(
    left_out: Sabotage,
    (sound, seeds): (&Plan, RangeInclusive<u64>),
    breaks: &[&str],
    scenario: impl Fn(u64, &Plan) -> Scenario,
) {
    let mut sabotaged = sound.clone();
    sabotaged.setup.sabotage = vec![left_out];
    for seed in seeds {
        let broken =
            simulate_scenario(scenario(seed, &sabotaged), &sabotaged, false).violations.into_iter().next();
        let Some(why) = broken.filter(|why| breaks.iter().any(|name| why.contains(name))) else { continue };
        println!("without {left_out:?}: seed {seed}: {why}");
        let held = simulate_scenario(scenario(seed, sound), sound, false);
        return assert!(held.violations.is_empty(), "seed {seed}, nothing left out: {:?}", held.violations);
    }
    panic!("no history breaks without {left_out:?}");
}

/// Checks a step of the replacement: without it, both node sets grant at the same time.
fn step_is_needed(left_out: Sabotage, scenario: impl Fn(u64, &Plan) -> Scenario) {
    // Scripts serve the acquires: where plain commands did, none of 60 histories broke.
    let plan = Plan { plain_commands: false, ..Plan::named("replace").expect("a plan that has this name") };
    is_needed(left_out, (&plan, 1..=10), &[": node-sets: "], scenario);
}

/// Checks the wait of the replacement. A worker holds a lease of the old set when the command closes that set. Without the
/// wait, the new set grants at once to a worker that starts then.
#[test]
fn a_replacement_needs_its_wait() {
    step_is_needed(Sabotage::ReplacesAtOnce, |seed, plan| all_new(seed, plan, REPLACES_AT + 100, []));
}

/// Checks that the replacement needs a majority of the old set to be closed. The operator reaches only two of five old
/// servers, and the workers reach all of them. If the command goes on, the three others still grant to workers with the
/// old list when the new set is open.
#[test]
fn a_replacement_needs_a_closed_majority_of_the_old_set() {
    let closed = Directions { there: false, back: false };
    step_is_needed(Sabotage::ReplacesOpenSet, |seed, plan| {
        all_new(seed, plan, 18_000, (0..3).map(|server| Fault::Road(OPERATOR, server, closed)))
    });
}

/// Checks that the stamps are needed. Two durable servers come back with their snapshots, several times, while workers hold
/// leases. Without the stamps, they vote at once, and grant again what they have forgotten.
#[test]
fn durable_servers_need_their_stamps() {
    let rolled_back = |seed: u64, plan: &Plan| {
        let ms = Duration::from_millis;
        let times = [10_500_u64, 14_000, 19_000].into_iter().zip([[0, 1], [2, 3], [4, 0]]);
        let faults = times.flat_map(|(at, servers)| {
            let crashes = servers.map(|server| (ms(at), Fault::CrashServer(server)));
            let starts = servers.map(|server| (ms(at + 20), Fault::StartServer(server, Memory::Snapshot)));
            crashes.into_iter().chain(starts)
        });
        let drawn = Scenario::new(seed, plan);
        Scenario { faults: faults.collect(), weather: NetworkConditions::CALM, ..drawn }
    };
    let plan = Plan {
        length: Duration::from_secs(22),
        ..Plan::named("durable").expect("a plan that has this name")
    };
    let lost = [": exclusion: ", ": fencing: ", ": order: "];
    is_needed(Sabotage::StampsIgnored, (&plan, 1..=10), &lost, rolled_back);
}

/// Checks that a worker needs a majority of the servers to start a run. One worker after the other reaches only two of five
/// servers for some seconds, in which it gets no assignment, but still has those that it has read. Without the majority, it
/// starts such a run, and so does the worker to which the leader gives the run next.
#[test]
fn a_start_needs_a_majority() {
    let cut_off = |seed: u64, plan: &Plan| {
        let (ms, drawn) = (Duration::from_millis, Scenario::new(seed, plan));
        let turns = (0..drawn.workers.len()).cycle().zip((2_500..18_000).step_by(2_500));
        let faults = turns.flat_map(|(worker, at)| {
            let roads = move |at: u64, open: bool| {
                let state = Directions { there: open, back: open };
                (0..3).map(move |server| (ms(at), Fault::Road(worker, server, state)))
            };
            roads(at, false).chain(roads(at + 2_400, true))
        });
        Scenario { faults: faults.collect(), weather: NetworkConditions::CALM, ..drawn }
    };
    let plan = Plan::named("default").expect("a plan that has this name");
    // About one seed in eighty breaks. The first one is near one of these, to save time.
    is_needed(Sabotage::StartUnregistered, (&plan, 36..=400), &[": run history: "], cut_off);
}

/// Prints two numbers for each case: the first seed that breaks the invariant, and how many of the first
/// `seeds` seeds break it.
fn count(seeds: u64) {
    println!("| left out | plan | broken | first seed | seeds of {seeds} |\n| --- | --- | --- | --- | --- |");
    for case in counted() {
        let found = over(seeds as usize, |at| case.breaks_in(at as u64 + 1));
        let first =
            found.iter().position(|found| *found).map_or("none".to_owned(), |at| (at + 1).to_string());
        let times = found.iter().filter(|found| **found).count();
        println!("| {} | {} | {} | {first} | {times} |", case.what, case.plan, case.breaks);
    }
}

/// For each plan, a number of seeds, counted from the first. In these seeds every invariant must hold with
/// all mechanisms. (`tests/simulation.rs` runs more seeds of each plan. The seeds here run in a build that
/// can leave mechanisms out.)
const HOLDS: [(&str, u64); 12] = [
    ("default", 10),
    ("contact-all", 6),
    ("old-counters", 6),
    ("no-slack", 10),
    ("crashes", 20),
    ("durable", 6),
    ("replace", 10),
    ("forced", 6),
    ("stored", 6),
    ("mistaken", 6),
    ("wild-clocks", 6),
    ("far-steps", 10),
];

#[test]
fn every_plan_holds_while_nothing_is_left_out() {
    let mut wrong = Vec::new();
    for (name, seeds) in HOLDS {
        let sweep = Sweep::over(name, 1..seeds + 1).expect("a plan that has this name");
        let failures = sweep.run(|_, _| {}).failures;
        wrong.extend(
            failures.iter().map(|failure| format!("{name}, seed {}: {}", failure.seed, failure.violation)),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks that every plan has seeds that must hold with all mechanisms. Otherwise a fault of the plan itself
/// could make a case pass.
#[test]
fn no_plan_is_without_seeds_that_must_hold() {
    let holds = BTreeMap::from(HOLDS);
    let rows = CASES.iter().chain(NOT_MISSED.iter().map(|(case, _)| case)).map(|case| case.plan);
    let missing: Vec<&str> = rows
        .chain(PLANS.iter().map(|(name, _)| *name))
        .filter(|name| holds.get(name).is_none_or(|seeds| *seeds == 0))
        .collect();
    assert!(missing.is_empty(), "no seed of these plans is run without sabotage: {missing:?}");
}
