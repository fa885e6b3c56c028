use super::{super::pool_log::made, *};
use quorate::{
    internals::{GroupFreeze, Paused},
    node::Reply,
    scheduler::RunCause,
};

/// Reports that the first `servers` servers store the row of a freeze until `until`.
fn written(freezes: &mut Freezes, until: u64, requests: Vec<RequestId>, term: u64, servers: usize) {
    let paused = Paused { by: "me".into(), at: made::at(0), until: Some(made::at(until)), reason: None };
    let row = GroupFreeze { last: Some(paused), requests };
    let request = made::put(POOL, term, GroupFreeze::KEY, row.to_value());
    for node in &["n0", "n1", "n2", "n3", "n4"][..servers] {
        let ran = Event::Ran { node, request: &request, reply: &Reply::Written };
        made::see(freezes, 5_000, &ran).unwrap();
    }
}

fn freeze(until: u64) -> JobAction {
    JobAction::Freeze { reason: Some("a migration".into()), until: made::at(until) }
}

/// Returns the invariant after a freeze from 5 s until 20 s that `servers` servers store, and the check of its answer.
fn frozen(servers: usize) -> (Freezes, Result<(), String>) {
    let mut freezes = Freezes::default();
    written(&mut freezes, 20_000, vec![made::id(7)], 1, servers);
    let answered =
        made::asks(&mut freezes, 5_000, freeze(20_000), Told::Accepted { id: made::id(7), count: 0 });
    (freezes, answered)
}

fn starts(freezes: &mut Freezes, run: u64, job: &str, due: u64, ms: u64) -> Result<(), String> {
    made::started(freezes, ms, &RunStart { true_wall: made::at(ms), ..made::start(run, job, due) })
}

#[test]
fn an_accepted_freeze_is_stored_on_a_majority() {
    assert!(frozen(2).1.unwrap_err().contains("no majority has stored it"));
    assert_eq!((frozen(3).1, frozen(3).0.judged), (Ok(()), 1));
}

#[test]
fn no_job_starts_a_tick_of_a_freeze() {
    let (mut freezes, _) = frozen(3);
    assert!(starts(&mut freezes, 1, "led-once", 8_400, 8_400).is_ok(), "it may not have been noticed yet");
    for (run, job) in [(2, "led-once"), (3, "led"), (4, "any-once"), (5, "any-each"), (6, "any-allow")] {
        let why = starts(&mut freezes, run, job, 12_000, 12_000).unwrap_err();
        assert!(why.contains("though the group is frozen"), "{why}");
    }
    let cause = RunCause::Triggered { id: made::id(9) };
    let on_request = RunStart { cause, ..made::start(7, "led", 12_000) };
    assert!(made::started(&mut freezes, 12_000, &on_request).is_ok());
    assert!(starts(&mut freezes, 8, "led", 20_000, 20_000).is_ok(), "the freeze has ended");
    assert!(starts(&mut freezes, 9, "led", 19_200, 20_100).is_err(), "its ticks do not run afterwards");
}

#[test]
fn a_tick_that_began_before_the_freeze_goes_on_if_it_is_at_least_once() {
    let (mut freezes, _) = frozen(3);
    assert!(starts(&mut freezes, 1, "any-each", 7_500, 7_600).is_ok());
    assert!(starts(&mut freezes, 2, "any-each", 7_500, 12_000).is_ok());
    assert!(
        starts(&mut freezes, 3, "led", 4_800, 12_000).is_ok(),
        "its leader may have died before the work"
    );
    assert!(starts(&mut freezes, 4, "led-once", 4_200, 12_000).is_err());
}

#[test]
fn a_freeze_ends_with_a_request_and_with_a_founding() {
    let (mut freezes, _) = frozen(3);
    made::see(&mut freezes, 9_500, &Event::Forgot { node: "n2" }).unwrap();
    made::founded(&mut freezes, 9_500, "another", 2).unwrap();
    assert!(starts(&mut freezes, 1, "led", 11_200, 11_200).is_err(), "the ledger goes on");
    made::founded(&mut freezes, 11_500, POOL, 2).unwrap();
    assert!(starts(&mut freezes, 2, "led", 12_800, 12_800).is_ok(), "a majority has forgotten the freeze");
    let (mut ended, _) = frozen(3);
    made::asks(&mut ended, 11_000, JobAction::Unfreeze, Told::Unknown { id: None }).unwrap();
    assert!(starts(&mut ended, 1, "led", 11_200, 11_200).is_ok());
    assert!(starts(&mut ended, 2, "led", 9_600, 11_300).is_err(), "a tick from before that request");
    let (mut shorter, _) = frozen(3);
    made::asks(&mut shorter, 11_000, freeze(13_000), Told::Unknown { id: None }).unwrap();
    assert!(starts(&mut shorter, 1, "led", 12_800, 12_800).is_err());
    assert!(starts(&mut shorter, 2, "led", 14_400, 14_400).is_ok(), "its end may have been replaced");
}

#[test]
fn an_open_request_to_end_the_freeze_leaves_it_unjudged() {
    let mut freezes = Freezes::default();
    made::asks(&mut freezes, 4_000, JobAction::Unfreeze, Told::Unknown { id: None }).unwrap();
    written(&mut freezes, 20_000, vec![made::id(7)], 1, 5);
    made::asks(&mut freezes, 5_000, freeze(20_000), Told::Accepted { id: made::id(7), count: 0 }).unwrap();
    assert_eq!((freezes.judged, starts(&mut freezes, 1, "led", 11_200, 11_200)), (0, Ok(())));
}

fn entry(job: &str, tick: u64, until: u64) -> HistoryEntry {
    let (until, reason) = (Some(made::at(until)), "the group was frozen by me".into());
    HistoryEntry { until, reason, ..made::entry(job, tick, 1, RunOutcome::SkippedFrozen) }
}

#[test]
fn every_tick_of_a_freeze_is_entered_and_no_other() {
    let read = |freezes: &mut Freezes, last: u64| {
        for job in ["any-once", "any-each", "any-allow", "led-once"] {
            let entries = [entry(job, 5_000, last)];
            made::see(freezes, 30_000, &Event::HistoryRead { job, entries: &entries, page: &entries })?;
        }
        made::see(freezes, 30_000, &Event::Settled { since: made::at(18_000), until: made::at(19_000) })
    };
    let (mut freezes, _) = frozen(3);
    assert_eq!((read(&mut freezes, 19_999), freezes.entries), (Ok(()), 4));
    assert!(freezes.prevented.len() > 20, "{}", freezes.prevented.len());
    assert!(read(&mut frozen(3).0, 15_000).unwrap_err().contains("has no entry"));
    assert!(read(&mut frozen(3).0, 20_001).unwrap_err().contains("and none did"));
    let (mut forgotten, _) = frozen(3);
    made::see(&mut forgotten, 16_000, &Event::Forgot { node: "n4" }).unwrap();
    assert!(read(&mut forgotten, 15_000).is_ok());
}

#[test]
fn a_run_that_was_open_before_the_freeze_may_start_until_a_leader_takes_its_slot() {
    let (mut freezes, _) = frozen(3);
    let mut due = |job: &str, due: u64, ms: u64| starts(&mut freezes, ms + due, job, due, ms);
    assert_eq!(due("any-once", 1_300, 15_000), Ok(()));
    assert_eq!(due("any-once", 9_100, 22_000), Ok(()), "it was opened five seconds ahead");
    assert!(due("any-once", 11_700, 22_000).unwrap_err().contains("though the group is frozen"));
    assert!(due("led-once", 8_400, 22_000).unwrap_err().contains("though the group is frozen"));
}

#[test]
fn a_leader_placed_job_runs_again_after_the_freeze() {
    let settled = |freezes: &mut Freezes| {
        freezes.spans.clear();
        made::see(freezes, 30_000, &Event::Settled { since: made::at(24_000), until: made::at(28_000) })
    };
    let (mut freezes, _) = frozen(3);
    assert!(settled(&mut freezes).unwrap_err().contains("has not started a tick"));
    let (mut again, _) = frozen(3);
    starts(&mut again, 1, "led", 25_600, 25_600).unwrap();
    assert!(settled(&mut again).unwrap_err().contains("led-once"));
    starts(&mut again, 2, "led-once", 25_200, 25_200).unwrap();
    // Each of the two reckonings counts the freeze.
    assert_eq!((settled(&mut again), again.expired), (Ok(()), 2));
}

#[test]
fn a_write_of_a_later_term_shows_that_the_freeze_outlived_its_leader() {
    let (mut freezes, _) = frozen(3);
    assert_eq!(freezes.survived, 0);
    written(&mut freezes, 20_000, vec![made::id(7)], 2, 3);
    assert_eq!(freezes.survived, 1);
}
