use super::{
    super::samples::{
        DUE, NODES, TAKE_BY, done, job, later, ms, not_started, open, registered, result, to, wall,
    },
    *,
};
use crate::scheduler::{job::RunCause, store::AssignedTo};
use Delivery::{AtLeastOnce, AtMostOnce};

/// The run is stored as the first assignment at this time, in milliseconds.
const STORED: u64 = 5_000;
/// The first time at which a worker that has not started its run loses it.
const LATE: u64 = DUE + 1_001;

fn me() -> Arc<str> {
    "leader".into()
}

fn run(open: OpenRun) -> AssignedRun {
    AssignedRun::new(job("j"), open, true, false, ms(0).0)
}

/// Returns a run that the worker `a` has as the first assignment.
fn given(delivery: Delivery) -> AssignedRun {
    let mut run = run(open(delivery));
    run.assign(OpenRun { to: Some(to("a", 1)), ..open(delivery) });
    run.stored(ms(STORED).0);
    run
}

fn first() -> AssignmentId {
    to("a", 1).id()
}

fn step(run: &mut AssignedRun, after: u64) -> Step {
    run.step(&me(), ms(after))
}

fn looks(run: &mut AssignedRun, after: u64) -> bool {
    let (now, wall) = ms(after);
    run.looks(now, wall).inspect(|id| assert_eq!(*id, first())).is_some()
}

/// Voids the first assignment at a majority.
fn void(run: &mut AssignedRun, after: u64) {
    assert_eq!(step(run, after), Step::Void(first()));
    assert!(run.voided(first(), registered(2, 0, 0), ms(after).0));
}

fn ended(step: Step) -> (RunOutcome, String) {
    match step {
        Step::End(end, result) => (end, result.reason.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_waits_for_a_worker_and_then_for_its_record() {
    let mut run = run(open(AtMostOnce));
    assert_eq!((step(&mut run, 0), run.session()), (Step::Assign, None));
    run.assign(OpenRun { to: Some(to("a", 1)), ..open(AtMostOnce) });
    assert_eq!((step(&mut run, LATE + 9_000), run.session()), (Step::Wait, Some(&"a".into())));
    assert!(!looks(&mut run, LATE + 9_000), "the record is not stored yet");
    run.stored(ms(STORED).0);
    assert_eq!(step(&mut run, STORED), Step::Wait);
}

#[test]
fn the_record_says_that_a_run_waits_once_it_is_due() {
    let mut run = run(open(AtMostOnce));
    assert!(!run.must_store_waiting(wall(DUE - 1)) && run.must_store_waiting(wall(DUE)));
    assert_eq!(run.store_waiting().to, None);
    assert!(!run.must_store_waiting(wall(DUE)));
    let stored = AssignedRun::new(job("j"), open(AtMostOnce), true, true, ms(0).0);
    assert!(!stored.must_store_waiting(wall(DUE)), "an earlier leader has stored it");
    assert!(!given(AtMostOnce).must_store_waiting(wall(DUE)));
}

#[test]
fn a_run_that_its_worker_does_not_start_within_a_second_is_voided_and_waits_for_another() {
    for delivery in [AtMostOnce, AtLeastOnce] {
        let mut run = given(delivery);
        assert_eq!([DUE, LATE - 1].map(|after| step(&mut run, after)), [Step::Wait, Step::Wait]);
        assert_eq!(step(&mut run, LATE), Step::Void(first()));
        assert_eq!(step(&mut run, LATE + 9_000), Step::Wait, "the request is under way");
        assert!(!run.voided(first(), registered(1, 0, 1), ms(LATE).0), "by one node of {NODES}");
        assert_eq!(step(&mut run, LATE + 199), Step::Wait);
        void(&mut run, LATE + 200);
        assert_eq!((step(&mut run, LATE + 200), run.lost_by()), (Step::Assign, Some("a")));
        assert_eq!(run.session(), None);
        assert_eq!(run.open().generation, 1, "it has not started");
    }
}

#[test]
fn a_worker_has_a_second_after_it_got_an_overdue_run() {
    let mut run = run(open(AtLeastOnce));
    run.assign(OpenRun { to: Some(to("a", 1)), ..open(AtLeastOnce) });
    let stored = DUE + 5_000;
    run.stored(ms(stored).0);
    assert_eq!(step(&mut run, stored + 1_000), Step::Wait);
    assert_eq!(step(&mut run, stored + 1_001), Step::Void(first()));

    let assigned = OpenRun { to: Some(to("a", 1)), ..open(AtLeastOnce) };
    let mut run = AssignedRun::new(job("j"), assigned, true, true, ms(stored).0);
    assert_eq!(step(&mut run, stored + 1_000), Step::Wait, "the next leader has just found it");
    assert_eq!(step(&mut run, stored + 1_001), Step::Void(first()));
}

#[test]
fn a_started_register_refuses_a_void_and_lets_the_run_go_on_to_its_end() {
    let mut run = given(AtMostOnce);
    assert_eq!(step(&mut run, LATE), Step::Void(first()));
    assert!(!run.voided(first(), registered(1, 1, 0), ms(LATE).0));
    for after in [LATE + 200, TAKE_BY + 9_000] {
        assert_eq!(step(&mut run, after), Step::Wait);
        assert!(looks(&mut run, after));
        assert_eq!(run.looked(first(), Some(None), ms(after)), Found::Nothing);
    }
    assert!(looks(&mut run, TAKE_BY + 99_000));
    let found = run.looked(first(), Some(Some(done())), ms(TAKE_BY + 99_000));
    assert_eq!(found, Found::Done(result(Some(RunOutcome::Done))));
}

#[test]
fn answers_about_an_earlier_assignment_change_nothing() {
    let mut run = given(AtLeastOnce);
    void(&mut run, LATE);
    run.assign(OpenRun { to: Some(to("b", 2)), ..open(AtLeastOnce) });
    run.stored(ms(LATE).0);
    let (now, wall) = ms(LATE + 1_001);
    assert_eq!(run.step(&me(), (now, wall)), Step::Void(to("b", 2).id()));
    assert_eq!(run.looks(now, wall), Some(to("b", 2).id()));
    assert!(!run.voided(first(), registered(3, 0, 0), now));
    assert_eq!(run.looked(first(), Some(Some(done())), (now, wall)), Found::Nothing);
    assert_eq!(run.session(), Some(&"b".into()));
    assert!(run.voided(to("b", 2).id(), registered(3, 0, 0), now), "this one is still asked");
}

#[test]
fn the_leader_looks_for_the_end_of_a_due_run_less_and_less_often() {
    let mut run = given(AtMostOnce);
    assert!(!looks(&mut run, DUE - 1) && looks(&mut run, DUE));
    assert!(!looks(&mut run, DUE + 9_000), "the leader looks already");
    assert_eq!(run.looked(first(), None, ms(DUE)), Found::Nothing);
    assert!(!looks(&mut run, DUE + 49) && looks(&mut run, DUE + 50));
    run.looked(first(), Some(None), ms(DUE + 400));
    assert!(!looks(&mut run, DUE + 499) && looks(&mut run, DUE + 500));
    run.looked(first(), Some(None), ms(DUE + 60_000));
    assert!(!looks(&mut run, DUE + 60_999) && looks(&mut run, DUE + 61_000));
    assert_eq!(run.looked(first(), None, ms(DUE)), Found::Nothing);
    assert_eq!(
        run.looked(first(), Some(Some(done())), ms(DUE)),
        Found::Nothing,
        "nothing was asked since the last answer"
    );
}

/// A job with a run every 100 ms once fell behind more and more: a run that was late was looked for once a second, so that the
/// next one was later still.
#[test]
fn the_leader_looks_as_often_for_the_end_of_a_run_that_its_worker_got_late() {
    let mut run = run(open(AtMostOnce));
    run.assign(OpenRun { to: Some(to("a", 1)), ..open(AtMostOnce) });
    let given = DUE + 4_000;
    run.stored(ms(given).0);
    assert!(looks(&mut run, given));
    run.looked(first(), Some(None), ms(given + 40));
    assert!(!looks(&mut run, given + 89) && looks(&mut run, given + 90));
    run.looked(first(), Some(None), ms(given + 400));
    assert!(!looks(&mut run, given + 499) && looks(&mut run, given + 500));
}

#[test]
fn a_run_that_its_worker_refuses_waits_for_another() {
    for lacks_job in [false, true] {
        let mut run = given(AtMostOnce);
        assert!(looks(&mut run, DUE));
        let found = run.looked(first(), Some(Some(not_started(lacks_job))), ms(DUE));
        assert_eq!(found, Found::NotStarted { lacks_job });
        assert_eq!((step(&mut run, DUE), run.lost_by()), (Step::Assign, Some("a")));
    }
}

#[test]
fn a_cancelled_run_is_recorded_as_such_before_it_is_voided() {
    let mut run = given(AtMostOnce);
    run.cancel(&"on request".into());
    run.cancel(&"another reason".into());
    assert_eq!(step(&mut run, STORED), Step::StoreCancel);
    let stored = run.store_cancel();
    assert_eq!((stored.cancel.as_deref(), stored.to), (Some("on request"), Some(to("a", 1))));
    run.stored(ms(STORED).0);
    void(&mut run, STORED);
    assert_eq!(ended(step(&mut run, STORED)), (RunOutcome::Cancelled, "on request".to_owned()));
}

#[test]
fn the_next_leader_voids_a_run_that_is_recorded_as_cancelled() {
    let cancelled = OpenRun { to: Some(to("a", 1)), cancel: Some("on request".into()), ..open(AtLeastOnce) };
    let mut run = AssignedRun::new(job("j"), cancelled, true, true, ms(0).0);
    void(&mut run, 0);
    assert_eq!(ended(step(&mut run, 0)), (RunOutcome::Cancelled, "on request".to_owned()));
}

#[test]
fn a_cancelled_run_that_waits_ends_at_once() {
    let mut run = run(open(AtMostOnce));
    run.cancel(&"on request".into());
    assert_eq!(ended(step(&mut run, 0)), (RunOutcome::Cancelled, "on request".to_owned()));
}

#[test]
fn a_cancelled_run_that_has_started_ends_as_its_worker_reports() {
    for (end, outcome) in [(Some(RunOutcome::Done), RunOutcome::Done), (None, RunOutcome::Cancelled)] {
        let mut run = given(AtLeastOnce);
        run.cancel(&"on request".into());
        run.store_cancel();
        run.stored(ms(STORED).0);
        assert_eq!(step(&mut run, DUE), Step::Void(first()));
        assert!(!run.voided(first(), registered(0, 3, 0), ms(DUE).0));
        assert_eq!(run.outcome(&result(end)), Some(outcome));
    }
}

/// Tests that the record of a cancelled run is not written again and again while the nodes do not answer.
#[test]
fn the_record_of_a_cancelled_run_is_stored_once() {
    let mut run = given(AtMostOnce);
    run.cancel(&"on request".into());
    assert_eq!(step(&mut run, STORED), Step::StoreCancel);
    run.store_cancel();
    assert_eq!(step(&mut run, STORED + 1), Step::Wait, "it is being stored");
}

#[test]
fn a_withdrawn_run_ends_unless_its_worker_has_started_it() {
    for (generation, outcome) in [(1, RunOutcome::SkippedPaused), (2, RunOutcome::Cancelled)] {
        let assigned = OpenRun { to: Some(to("a", 1)), generation, ..open(AtMostOnce) };
        let mut run = AssignedRun::new(job("j"), assigned.clone(), true, true, ms(0).0);
        run.withdraw(RunOutcome::SkippedPaused, &"paused".into());
        void(&mut run, 0);
        assert_eq!(ended(step(&mut run, 0)), (outcome, "paused".to_owned()));

        let mut waits = self::run(OpenRun { to: None, ..assigned });
        waits.withdraw(RunOutcome::SkippedPaused, &"paused".into());
        assert_eq!(ended(step(&mut waits, 0)), (outcome, "paused".to_owned()));
    }
    let mut run = given(AtMostOnce);
    run.withdraw(RunOutcome::SkippedPaused, &"paused".into());
    assert_eq!(step(&mut run, STORED), Step::Void(first()));
    assert!(!run.voided(first(), registered(0, 1, 0), ms(STORED).0));
    assert_eq!(step(&mut run, LATE), Step::Wait);
}

#[test]
fn no_worker_gets_a_run_after_its_window() {
    let mut run = run(open(AtMostOnce));
    assert_eq!(step(&mut run, TAKE_BY), Step::Assign, "the window includes its end");
    let (end, why) = ended(step(&mut run, TAKE_BY + 1));
    assert!(end == RunOutcome::SkippedMisfire && why.contains("misfire window"), "{why}");

    let mut run = given(AtMostOnce);
    void(&mut run, TAKE_BY + 1);
    assert_eq!(ended(step(&mut run, TAKE_BY + 1)).0, RunOutcome::SkippedMisfire);
}

#[test]
fn a_run_whose_session_ends_is_voided_and_looked_for_and_then_lost_or_repeated() {
    for (delivery, cancelled, outcome) in [
        (AtMostOnce, false, Some(RunOutcome::Lost)),
        (AtMostOnce, true, Some(RunOutcome::Cancelled)),
        (AtLeastOnce, true, Some(RunOutcome::Cancelled)),
        (AtLeastOnce, false, None),
    ] {
        let mut run = given(delivery);
        if cancelled {
            run.cancel(&"on request".into());
            run.store_cancel();
            run.stored(ms(STORED).0);
        }
        run.session_ended();
        assert_eq!(step(&mut run, STORED), Step::Void(first()), "before it is due");
        assert!(looks(&mut run, STORED));
        assert!(!run.voided(first(), registered(1, 1, 0), ms(STORED).0));
        assert_eq!(step(&mut run, STORED), Step::Wait, "the look has no answer");
        assert_eq!(run.looked(first(), None, ms(STORED)), Found::Nothing);
        assert_eq!(step(&mut run, STORED), Step::Wait, "too few nodes answered");
        assert!(looks(&mut run, STORED + 50));
        assert_eq!(run.looked(first(), Some(None), ms(STORED + 50)), Found::Nothing);
        match (step(&mut run, STORED + 50), outcome) {
            (Step::End(end, result), Some(outcome)) => {
                assert_eq!((end, &*result.worker, result.attempts), (outcome, "a", 0));
                assert!(result.reason.contains("recorded no end"), "{}", result.reason);
            }
            (Step::Wait, None) => {
                assert!(run.reopen(wall(STORED)).is_some());
                assert_eq!((run.open().generation, run.lost_by()), (2, Some("a")));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_run_whose_session_ends_before_its_start_is_not_lost() {
    let mut run = given(AtMostOnce);
    run.session_ended();
    assert!(looks(&mut run, DUE));
    assert_eq!(run.looked(first(), Some(None), ms(DUE)), Found::Nothing);
    void(&mut run, DUE);
    assert_eq!((step(&mut run, DUE), run.open().generation), (Step::Assign, 1));
}

#[test]
fn the_end_of_a_run_counts_after_the_end_of_its_session() {
    let mut run = given(AtMostOnce);
    run.session_ended();
    assert!(looks(&mut run, DUE));
    let found = run.looked(first(), Some(Some(done())), ms(DUE));
    assert_eq!(found, Found::Done(result(Some(RunOutcome::Done))));
}

#[test]
fn answers_to_what_was_asked_before_a_session_ended_do_not_count() {
    let mut run = given(AtMostOnce);
    assert!(looks(&mut run, LATE));
    assert_eq!(step(&mut run, LATE), Step::Void(first()));
    run.session_ended();
    assert!(!looks(&mut run, LATE), "an earlier answer is still to come");
    assert_eq!(step(&mut run, LATE), Step::Wait);
    assert_eq!(run.looked(first(), Some(None), ms(LATE)), Found::Nothing);
    assert!(!run.voided(first(), registered(0, 0, 0), ms(LATE).0));
    assert_eq!(step(&mut run, LATE), Step::Void(first()), "asked again");
    assert!(looks(&mut run, LATE));
    assert!(!run.voided(first(), registered(0, 0, 0), ms(LATE).0));
    assert_eq!(step(&mut run, LATE), Step::Wait, "the end may be at a node");
    assert_eq!(run.looked(first(), Some(None), ms(LATE)), Found::Nothing);
    assert!(matches!(step(&mut run, LATE), Step::End(RunOutcome::Lost, _)));
}

#[test]
fn an_interrupted_run_is_executed_again_only_if_it_is_at_least_once() {
    let interrupted = result(None);
    assert_eq!(given(AtMostOnce).outcome(&interrupted), Some(RunOutcome::Cancelled));
    let mut run = given(AtLeastOnce);
    assert_eq!(run.outcome(&interrupted), None);
    run.interrupted(interrupted);
    assert_eq!((step(&mut run, DUE + 700), run.session()), (Step::Wait, None));
    assert_eq!(run.reopen(wall(DUE + 700)).as_deref(), Some("a reason"));
    let next = run.open().clone();
    assert_eq!((next.generation, next.cause, next.to), (2, RunCause::CatchUp, None::<AssignedTo>));
    assert!(next.not_before == wall(DUE + 700) && next.take_by > wall(TAKE_BY));
    assert!(run.must_store_waiting(wall(DUE + 700)) && run.reopen(wall(DUE + 700)).is_none());
    assert_eq!(step(&mut run, DUE + 700), Step::Assign);
}

#[test]
fn a_lost_run_of_an_unknown_job_waits_for_a_leader_with_the_job_or_its_withdrawal() {
    let assigned = OpenRun { to: Some(to("a", 1)), ..open(AtLeastOnce) };
    let mut run = AssignedRun::new(job("j"), assigned, false, true, ms(0).0);
    run.interrupted(result(None));
    assert_eq!(run.reopen(wall(DUE)), None);
    assert_eq!(step(&mut run, TAKE_BY + 9_000), Step::Wait);
    run.withdraw(RunOutcome::Cancelled, &"no worker has the job".into());
    assert_eq!(ended(step(&mut run, DUE)), (RunOutcome::Lost, "a reason".to_owned()));
}

/// Returns the milliseconds until the run needs attention, once the leader has done what is due.
fn wakes(run: &mut AssignedRun, after: u64) -> Option<u64> {
    let (now, wall) = ms(after);
    run.step(&me(), (now, wall));
    run.looks(now, wall);
    let wake = run.wake(now, wall)?;
    assert!(wake > now, "{:?} in the past", wake.until(now));
    Some(u64::try_from(now.until(wake).as_millis()).unwrap())
}

#[test]
fn a_run_wakes_the_leader_when_it_is_due_and_when_it_is_late() {
    let mut run = given(AtMostOnce);
    assert!(wakes(&mut run, STORED).is_some_and(|by| (DUE - STORED..=DUE - STORED + 50).contains(&by)));
    assert_eq!(wakes(&mut run, DUE), Some(1_001), "the leader looks, and may have to void the run");
    run.looked(first(), Some(None), ms(DUE));
    assert_eq!(wakes(&mut run, DUE), Some(50), "it looks again");
    assert!(wakes(&mut run, DUE + 900).is_some_and(|by| by <= 101), "it is late soon");
    assert_eq!(wakes(&mut run, LATE), None, "only answers are missing");
    let mut storing = self::run(open(AtMostOnce));
    storing.assign(OpenRun { to: Some(to("a", 1)), ..open(AtMostOnce) });
    assert_eq!(wakes(&mut storing, LATE), None, "only an answer is missing");
    let mut stored = AssignedRun::new(job("j"), open(AtMostOnce), true, true, ms(0).0);
    assert_eq!(wakes(&mut stored, DUE), Some(TAKE_BY - DUE + 1));
}

/// Tests that a run wakes the leader when its record must say that it waits.
#[test]
fn a_run_without_a_worker_wakes_the_leader_when_it_is_due() {
    assert_eq!(wakes(&mut run(open(AtMostOnce)), DUE - 300), Some(300));
}

/// Tests that the leader does not wait for the time at which a cancelled or withdrawn run is due before it asks again.
#[test]
fn a_run_wakes_the_leader_when_its_void_must_be_asked_again() {
    for after in [STORED, LATE] {
        let mut run = given(AtMostOnce);
        run.withdraw(RunOutcome::SkippedPaused, &"paused".into());
        assert_eq!(step(&mut run, after), Step::Void(first()));
        assert!(!run.voided(first(), registered(0, 0, 0), ms(after).0));
        let by = wakes(&mut run, after);
        assert!(by.is_some_and(|by| by <= 200), "{by:?}");
    }
}

/// Tests that a run whose session has ended does not wake the leader again and again while it waits for an answer.
#[test]
fn a_run_whose_session_has_ended_wakes_the_leader_for_nothing_that_is_under_way() {
    let mut run = given(AtMostOnce);
    run.session_ended();
    assert!(looks(&mut run, LATE));
    assert_eq!(step(&mut run, LATE), Step::Void(first()));
    assert!(!run.voided(first(), registered(0, 0, 0), ms(LATE).0));
    assert_eq!((step(&mut run, LATE + 9_000), wakes(&mut run, LATE + 9_000)), (Step::Wait, None));
}

/// Tests that a leader that wakes up at the times that a run names makes progress: it looks at every wake time after the
/// run is due, and never wakes up twice at one time.
#[test]
fn a_leader_that_wakes_up_has_something_to_do() {
    for over in [false, true] {
        let mut run = given(AtMostOnce);
        let (mut now, mut looked) = (ms(DUE), 0);
        if over {
            run.session_ended();
        }
        for _ in 0..100 {
            if let Step::Void(id) = run.step(&me(), now) {
                run.voided(id, registered(1, 1, 0), now.0);
            }
            if let Some(id) = run.looks(now.0, now.1) {
                run.looked(id, None, now);
                looked += 1;
            }
            let wake = run.wake(now.0, now.1).expect("the leader must look again");
            assert!(wake > now.0, "over: {over}");
            now = (wake, now.1 + now.0.until(wake));
        }
        assert!(looked >= 90, "{looked} looks");
        assert!(later(ms(DUE), 20_000) < now.0 && now.0 < later(ms(DUE), 110_000), "{now:?}");
    }
}
