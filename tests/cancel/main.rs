//! Every public future is dropped at each of its await points, and then nothing is left of it: another worker can
//! have what it was about, no key stands (none longer than the TTL where no release can come), no task lives, and
//! what it was called on can be used again.
//!
//! # What is not guaranteed
//!
//! The await points are those of the histories that are run: seven network conditions for each future, one history
//! for each. Servers are in memory and time is paused; that a dropped request to a real server behaves so is for the
//! sessions' own tests.

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

/// More await points than any case has: one that has more is not tried whole.
const MOST: usize = 400;

/// Tries one case at every await point under every network condition, and prints the number of drops.
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

/// One history; whether the future got to its end.
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

/// The futures that are tried here, by type and name, and a test for each.
macro_rules! cases {
    ($($test:ident: $name:literal, $matter:ident;)*) => {
        /// The futures of the other tests of this file.
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
    election_events_next: "Events::next", Election;
    extend: "Lease::extend", Lock;
    finish: "Env::finish", Lock;
    reset_attempts: "Claims::reset", Claim;
    cancel_before_start: "Claim::cancel_before_start", Claim;
    inspect: "Quorum::inspect", Lock;
    lease_events_next: "Events::next", Lock;
    met: "Quorum::met", Lock;
    claims_process_or_wait: "Claims::process_or_wait", Claim;
    observer_change: "Observer::change", Election;
    observer_leader: "Observer::leader", Election;
    process: "Claims::process", Claim;
    prune: "Ledger::prune", Lock;
    keep: "Ledger::keep", Lock;
    read: "Ledger::read", Lock;
    ready: "Quorum::ready", Lock;
    release: "Lease::release", Lock;
    scheduler_lead: "Scheduler::lead", Election;
    scheduler_run: "SchedulerRun::until", Election;
    scoped_task: "ScopedTask as Future", Lock;
    seal: "Ledger::seal", Lock;
    sleep: "Env::sleep", Lock;
    sleep_until: "Env::sleep_until", Lock;
    try_acquire: "Lock::try_acquire", Lock;
    write: "Ledger::write", Lock;
}
