use super::{super::pool_log::made, *};
use quorate::scheduler::{RunCause, RunOutcome};

const ASK: &str = "ask/00000000000000000000000000000007";

fn trigger() -> JobAction {
    JobAction::trigger("led")
}

fn accepted(count: u64) -> Told {
    Told::Accepted { id: made::id(7), count }
}

fn on_request(run: u64, job: &str, due: u64) -> RunStart {
    let cause = RunCause::Triggered { id: made::id(7) };
    RunStart { cause, ..made::start(run, job, due) }
}

fn settle(requests: &mut Requests) -> Result<(), String> {
    made::see(requests, 30_000, &Event::Settled { since: made::at(0), until: made::at(30_000) })
}

/// Reports to the invariant a trigger that `servers` servers store and the leader accepts. Returns the
/// invariant, and the result of its check of the answer.
fn triggered(servers: usize) -> (Requests, Result<(), String>) {
    let mut requests = Requests::default();
    made::written(&mut requests, POOL, ASK, "", servers).unwrap();
    let answered = made::asks(&mut requests, 5_000, trigger(), accepted(1));
    (requests, answered)
}

#[test]
fn what_is_accepted_is_stored_on_a_majority() {
    assert!(triggered(2).1.unwrap_err().contains("stored on 2 servers"));
    assert!(triggered(3).1.is_ok());
    let mut requests = triggered(3).0;
    let span = JobAction::Backfill { job: "led".into(), from: made::at(1_600), until: made::at(4_800) };
    assert!(made::asks(&mut requests, 6_000, span.clone(), accepted(2)).is_ok());
    let why = made::asks(&mut requests, 6_001, span, accepted(3)).unwrap_err();
    assert!(why.contains("makes 3 runs, by its answer, and 2 in truth"), "{why}");
}

#[test]
fn an_accepted_request_is_carried_out() {
    assert!(settle(&mut triggered(3).0).unwrap_err().contains("nothing came of"));
    let mut requests = triggered(3).0;
    made::ran(&mut requests, &on_request(1, "led", 5_000)).unwrap();
    assert_eq!((settle(&mut requests), requests.judged), (Ok(()), 1));

    let mut cancelled = triggered(3).0;
    made::asks(&mut cancelled, 5_100, JobAction::Cancel { job: "led".into(), tick: None }, accepted(1))
        .unwrap();
    assert!(settle(&mut cancelled).is_ok());
    let mut other = triggered(3).0;
    made::asks(&mut other, 5_100, JobAction::Cancel { job: "any-once".into(), tick: None }, accepted(1))
        .unwrap();
    assert!(settle(&mut other).is_err());

    for (servers, was_entered) in [(2, false), (3, true)] {
        let mut entered = triggered(3).0;
        let cause = RunCause::Triggered { id: made::id(7) };
        let entry = HistoryEntry { cause, ..made::entry("led", 5_000, 1, RunOutcome::Lost) };
        let (ledger, record) =
            (format!("{POOL}{{{}}}", HistoryEntry::part("led")), entry.clone().into_record(entry.tick));
        made::written(&mut entered, &ledger, &entry.key(), &record.value, servers).unwrap();
        assert_eq!(settle(&mut entered).is_ok(), was_entered, "{servers} servers had its entry");
    }
    let mut forgotten = triggered(3).0;
    made::founded(&mut forgotten, 5_200, POOL, 2).unwrap();
    assert_eq!((settle(&mut forgotten), forgotten.forgotten), (Ok(()), 1));
    let mut kept = triggered(3).0;
    made::see(&mut kept, 5_200, &Event::Forgot { node: "n1" }).unwrap();
    assert!(settle(&mut kept).is_err(), "the ledger goes on");
}

#[test]
fn a_run_is_of_a_request() {
    let (mut requests, _) = triggered(3);
    assert!(made::ran(&mut requests, &on_request(1, "led", 5_100)).is_ok());
    assert!(made::ran(&mut requests, &on_request(2, "any-each", 5_000)).is_err(), "of another job");
    assert!(made::ran(&mut requests, &on_request(3, "led", 9_000)).is_err(), "of another moment");
    let mut refused = Requests::default();
    made::asks(&mut refused, 5_000, trigger(), Told::Refused { id: made::id(7) }).unwrap();
    assert!(made::ran(&mut refused, &on_request(1, "led", 5_000)).unwrap_err().contains("no such request"));
    let mut unknown = Requests::default();
    made::asks(&mut unknown, 5_000, trigger(), Told::Unknown { id: None }).unwrap();
    assert!(made::ran(&mut unknown, &on_request(1, "led", 5_000)).is_ok());
}

#[test]
fn a_back_fill_goes_from_the_oldest_tick_on() {
    let mut requests = Requests::default();
    made::written(&mut requests, POOL, ASK, "", 3).unwrap();
    let span = JobAction::Backfill { job: "led".into(), from: made::at(1_600), until: made::at(4_800) };
    made::asks(&mut requests, 6_000, span, accepted(2)).unwrap();
    assert!(made::ran(&mut requests, &on_request(1, "led", 3_200)).is_ok());
    assert!(settle(&mut requests).unwrap_err().contains("nothing came of its run"));
    assert!(made::ran(&mut requests, &on_request(2, "led", 1_600)).unwrap_err().contains("later tick"));
    assert!(made::ran(&mut requests, &on_request(3, "led", 4_800)).is_err(), "past the span");
}

#[test]
fn a_paused_job_does_not_start() {
    let paused = |job: &str, servers| {
        let mut requests = Requests::default();
        made::written(&mut requests, POOL, &JobRow::key(job), &made::row(0, true), servers).unwrap();
        made::asks(&mut requests, 5_000, JobAction::pause(job), accepted(0)).unwrap();
        requests
    };
    let starts =
        |requests: &mut Requests, job: &str, due, ms| made::started(requests, ms, &made::start(1, job, due));
    let mut led = paused("led", 3);
    assert!(starts(&mut led, "led", 8_000, 8_000).is_ok(), "it may not have noticed yet");
    assert!(starts(&mut led, "led", 4_800, 9_600).is_ok(), "it had been started before");
    assert!(starts(&mut led, "led", 9_600, 9_600).unwrap_err().contains("though it is paused"));
    assert!(starts(&mut led, "any-skip", 9_600, 9_600).is_ok(), "another job");
    assert!(starts(&mut paused("any-skip", 3), "any-skip", 10_200, 10_200).is_err());
    made::see(&mut led, 9_700, &Event::Forgot { node: "n2" }).unwrap();
    assert!(starts(&mut led, "led", 11_200, 11_200).is_err(), "the ledger goes on");
    made::founded(&mut led, 11_300, POOL, 2).unwrap();
    assert!(starts(&mut led, "led", 12_800, 12_800).is_ok(), "a majority has forgotten the pause");
    let mut resumed = paused("led", 3);
    made::asks(&mut resumed, 9_000, JobAction::Resume { job: "led".into() }, Told::Unknown { id: None })
        .unwrap();
    assert!(starts(&mut resumed, "led", 9_600, 9_600).is_ok());
}
