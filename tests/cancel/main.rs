//! Tests that drop every public future at each of its await points. A dropped future must leave nothing
//! behind:
//!
//! - Another worker can acquire the resource of the future.
//! - The object that returned the future can be used again.
//! - No task is left.
//! - No server stores a key of the resource. (If no release can reach a server, its keys may stay for the
//!   TTL.)
//!
//! # What is not guaranteed
//!
//! The tests try only the await points that occur in their histories. For each future there is one history
//! under each of seven network conditions. The servers are in memory, and time is paused. The tests of the
//! sessions check that a dropped request to a real server behaves in the same way.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cases;
mod cut;
mod hands;
mod operated;
mod register;
mod replace;
mod servers;
mod stage;
mod stream;
mod world;

use cases::Case;
use cut::Cut;
use stage::{Matter, NetworkConditions, Stage};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A number that is larger than the number of await points of any case. A case with more of them would not be
/// tested completely.
const MOST: usize = 400;

/// Tests one case with a cut at every await point, in all network conditions. Prints the number of cuts.
fn at_every_await_point(name: &str, matter: Matter, case: Case) {
    let mut drops = 0;
    for conditions in NetworkConditions::ALL {
        for cut in [Cut::Never, Cut::Unpolled] {
            assert_eq!(
                one_history(name, matter, conditions, cut, case),
                cut == Cut::Never,
                "{name}, {conditions:?}: {cut}"
            );
        }
        for kind in [Cut::Waiting, Cut::Woken] {
            let whole = (0..MOST).find(|&n| one_history(name, matter, conditions, kind(n), case));
            drops += whole.unwrap_or_else(|| panic!("{name}, {conditions:?}: more than {MOST} await points"));
        }
    }
    println!("{name}: dropped {drops} times");
    assert!(drops > 0, "{name} has no await point under any network condition: this proves nothing");
}

/// Runs one case once, with one cut. Returns whether the future completed.
fn one_history(name: &str, matter: Matter, conditions: NetworkConditions, cut: Cut, case: Case) -> bool {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let history = async {
        let stage = Stage::set(matter, conditions, cut).await;
        let finished = case(&stage).await;
        stage.aftermath().await;
        finished
    };
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(history))).unwrap_or_else(|panic| {
        eprintln!("in the history of {name}, {conditions:?}, {cut}");
        std::panic::resume_unwind(panic)
    })
}

/// Lists the futures that this file tests, by type and name, and defines a test for each.
macro_rules! cases {
    ($($test:ident: $name:literal, $matter:ident;)*) => {
        /// The futures that the defined tests cover.
        const TRIED: &[&str] = &[$($name),*];

        $(
            #[test]
            fn $test() {
                at_every_await_point($name, Matter::$matter, |stage| Box::pin(cases::$test(stage)));
            }
        )*
    };
}

cases! {
    abandon: "Claim::abandon", Claim;
    abandon_many: "Claim::abandon_many", Claim;
    acquire: "Lock::acquire", Lock;
    admit: "Quorum::trust_nodes", Lock;
    before: "Env::before", Lock;
    campaign: "Campaign::until", Election;
    claim: "Claims::claim", Claim;
    claim_many: "Claims::claim_many", Claim;
    claims_inspect: "Claims::inspect", Claim;
    close: "Quorum::close", Lock;
    complete: "Claim::complete", Claim;
    complete_many: "Claim::complete_many", Claim;
    drain: "SchedulerHandle::drain", Election;
    extend: "Lease::extend", Lock;
    finish: "Env::finish", Lock;
    reset_attempts: "Claims::reset", Claim;
    cancel_before_start: "Claim::cancel_before_start", Claim;
    inspect: "Quorum::inspect", Lock;
    met: "Quorum::met", Lock;
    claims_process_or_wait: "Claims::process_or_wait", Claim;
    observer_change: "Observer::change", Election;
    observer_leader: "Observer::leader", Election;
    process: "Claims::process", Claim;
    prune: "Ledger::prune", Lock;
    keep: "Ledger::keep", Lock;
    lock_run: "Lock::run", Lock;
    read: "Ledger::read", Lock;
    ready: "Quorum::ready", Lock;
    release: "Lease::release", Lock;
    scheduler_lead: "Scheduler::lead", Election;
    scheduler_run: "SchedulerRun::until", Election;
    scoped_task: "ScopedTask as Future", Lock;
    shard_set: "ShardSet::read", Lock;
    shard_sets: "ShardSet::read_all", Lock;
    shard_names: "ShardSet::names", Lock;
    shards_run: "ShardsRun::until", Lock;
    sleep: "Env::sleep", Lock;
    sleep_until: "Env::sleep_until", Lock;
    sleep_until_poll: "Env::sleep_until_poll", Lock;
    try_acquire: "Lock::try_acquire", Lock;
    write: "Ledger::write", Lock;
}
