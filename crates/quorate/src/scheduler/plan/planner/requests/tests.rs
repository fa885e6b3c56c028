use super::*;
use crate::{
    measure::JobsMeasures,
    node::FencingToken,
    scheduler::{
        job::Job,
        plan::{
            effect::RunCompletion,
            planner::{LeaderSettings, LeftOut},
        },
        policy::{Overlap, Placement},
        run::{on_leader::RunEnd, pending_run::PendingRun},
        schedule::Schedule,
        store::{
            RequestRow,
            snapshot::{
                LedgerSnapshot,
                tests::{SECOND, at, sealed, snapshot},
            },
        },
    },
};

use std::time::Duration;

const NOW: u64 = 10;

/// Returns a leader's planner. Its only job is `j`, which is not due.
fn led() -> Planner {
    led_from(sealed(&[], &[]))
}

/// Returns the planner of a leader that found `ledger`. Its only job is `j`, which is not due. The requests of the ledger
/// are not taken over.
fn led_from(ledger: LedgerSnapshot) -> Planner {
    let settings = LeaderSettings {
        group: "g".into(),
        worker: "me".into(),
        term: FencingToken::new(9),
        max_clock_offset: Duration::ZERO,
        ttl: SECOND / 2,
        max_running: 1,
        measures: JobsMeasures::new(&"g".into(), []),
        left_out: LeftOut::default(),
    };
    let mut planner =
        Planner::new(ledger, crate::scheduler::plan::definitions::Definitions::default(), settings);
    let job = Job::new("j", Schedule::every(1_000_000 * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    add(&mut planner, job);
    planner
}

fn add(planner: &mut Planner, job: Job) {
    planner.register(Arc::new(job), at(NOW));
    for effect in planner.take_effects() {
        if let Effect::Register { id, .. } = effect {
            planner.registered(id);
        }
    }
}

fn id_of(planner: &Planner, job: &str) -> JobId {
    planner.table.id(job).expect("the leader has the job")
}

/// Starts the first waiting run. Returns false if no run waits, or the limit of concurrent runs is reached.
fn start_next(planner: &mut Planner) -> bool {
    let id = planner.table.pop_ready();
    id.into_iter().for_each(|id| planner.start(id, at(NOW)));
    id.is_some()
}

/// Adds a job for any worker whose next tick is due in a second. Returns the run of this tick, which the
/// leader opens at once, because it opens runs a second ahead of their ticks.
fn opened_ahead(planner: &mut Planner) -> PendingRun {
    let ahead = Job::new("ahead", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    add(planner, ahead.placement(Placement::AnyWorker).overlap(Overlap::Allow));
    planner.plan_due(at(NOW));
    planner.start_ready(at(NOW));
    let opened = planner.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Open(start) => Some(start.run),
        _ => None,
    });
    let mut opened: Vec<_> = opened.collect();
    assert_eq!(opened.len(), 1, "{opened:?}");
    opened.remove(0)
}

fn request(id: u128, what: JobAction) -> JobRequest {
    JobRequest { id: RequestId::from_u128(id), by: "me".into(), at: at(NOW), valid_for: 60 * SECOND, what }
}

fn trigger(id: u128) -> JobRequest {
    request(id, JobAction::trigger("j"))
}

fn refusal(asked: Asked) -> String {
    match asked {
        Asked::Answer(JobResponse::Refused { why }) => why.to_string(),
        Asked::Store(granted) => match granted.answer {
            JobResponse::Refused { why } => why.to_string(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn to_store(asked: Asked) -> Granted {
    match asked {
        Asked::Store(granted) => *granted,
        other => panic!("{other:?}"),
    }
}

/// Returns the keys of the requests whose rows the effects close.
fn closed_rows(effects: &[Effect]) -> Vec<&str> {
    fn close(effect: &Effect) -> Option<&str> {
        match effect {
            Effect::PutRow { key, value } if key.starts_with(RequestId::PREFIX) => {
                let row: RequestRow = serde_json::from_str(value).expect("the row of a request");
                row.is_closed().then_some(key)
            }
            _ => None,
        }
    }
    effects.iter().filter_map(close).collect()
}

fn run_key(effects: &[Effect]) -> Arc<str> {
    match effects {
        [Effect::Execute(start)] => Arc::clone(&start.run.key),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_answered_and_run_once_its_row_is_stored_however_often_it_comes() {
    let mut planner = led();
    let [first, second] = [(); 2].map(|()| to_store(planner.ask(&trigger(1), true, at(NOW))));
    assert!(planner.effects.is_empty() && !start_next(&mut planner), "the row is not stored");
    let answers = [first, second].map(|granted| planner.stored(granted, at(NOW)));
    assert_eq!(answers[0], answers[1]);
    assert!(start_next(&mut planner) && !start_next(&mut planner));
    run_key(&planner.effects);
    let again = planner.ask(&trigger(1), true, at(NOW));
    assert!(matches!(again, Asked::Answer(answer) if answer == answers[0]));
}

#[test]
fn requests_of_one_microsecond_have_ticks_of_their_own_which_the_next_leader_keeps() {
    let mut planner = led();
    let mut tick_of = |id| {
        let granted = to_store(planner.ask(&trigger(id), true, at(NOW)));
        let open = granted.open.as_ref().unwrap();
        (open.remaining()[0], granted.stored_row())
    };
    let micro = Duration::from_micros(1);
    let (first, _) = tick_of(1);
    let (second, (key, value)) = tick_of(2);
    assert_eq!(
        (first, second, tick_of(2).0),
        (at(NOW), at(NOW) + micro, at(NOW) + micro),
        "also if it comes again"
    );
    let mut planner = led_from(snapshot([(key, value)]));
    planner.resume_requests(at(NOW));
    assert!(start_next(&mut planner), "its run starts");
    let started = planner.effects.iter().find_map(|effect| match effect {
        Effect::Execute(start) => Some((start.run.tick, start.run.request())),
        _ => None,
    });
    assert_eq!(started, Some((second, Some(RequestId::from_u128(2)))));
    let third = to_store(planner.ask(&trigger(3), true, at(NOW)));
    assert_eq!(third.open.unwrap().remaining()[0], at(NOW));
    let fourth = to_store(planner.ask(&trigger(4), true, at(NOW)));
    assert_eq!(fourth.open.unwrap().remaining()[0], second + micro);
}

/// Tests that the leader stores the row again before it answers. The earlier leader may have stored the row at one node only,
/// so a later leader might not find it.
#[test]
fn a_request_that_an_earlier_leader_accepted_is_answered_once_a_majority_stores_its_row() {
    let mut planner = led();
    let (key, value) = to_store(planner.ask(&trigger(1), true, at(NOW))).stored_row();
    let mut planner = led_from(snapshot([(key, value)]));
    planner.resume_requests(at(NOW));
    assert!(start_next(&mut planner), "its run starts");
    let failed = to_store(planner.ask(&trigger(1), true, at(NOW + 61)));
    drop(failed);
    planner.not_stored();
    let granted = to_store(planner.ask(&trigger(1), true, at(NOW)));
    let answer = planner.stored(granted, at(NOW));
    assert!(matches!(answer, JobResponse::Accepted { count: 1, .. }));
    let again = planner.ask(&trigger(1), true, at(NOW));
    assert!(matches!(again, Asked::Answer(same) if same == answer));
    assert!(!start_next(&mut planner), "it has one run");
}

#[test]
fn a_request_is_closed_after_its_last_run() {
    let mut planner = led();
    let span = 2_500_000 * SECOND;
    let what = JobAction::Backfill { job: "j".into(), from: at(NOW) - span, until: at(NOW) };
    let granted = to_store(planner.ask(&request(1, what), true, at(NOW)));
    let JobResponse::Accepted { count, .. } = planner.stored(granted, at(NOW)) else { panic!("accepted") };
    assert!((2..=3).contains(&count));
    assert_eq!(planner.requests.oldest(), Some(at(NOW)), "the ledger keeps the records of its runs");
    for run in 1..=count {
        planner.effects.clear();
        assert!(start_next(&mut planner) && !start_next(&mut planner), "one at once");
        let Some(Effect::Execute(start)) = planner.effects.pop() else { panic!("{:?}", planner.effects) };
        let ended = RunCompletion { owner: start.owner, key: start.run.key, end: Some(RunEnd::Left) };
        planner.run_ended(ended, false, at(NOW));
        planner.requested_run_ended(RequestId::from_u128(1), at(NOW + run));
        assert_eq!(!closed_rows(&planner.effects).is_empty(), run == count);
    }
    assert_eq!(planner.requests.oldest(), None);
}

#[test]
fn a_cancellation_cancels_active_runs_and_drops_requested_ones() {
    let mut planner = led();
    for id in [1, 2] {
        let granted = to_store(planner.ask(&trigger(id), true, at(NOW)));
        planner.stored(granted, at(NOW));
    }
    start_next(&mut planner);
    let key = run_key(&planner.effects);
    planner.effects.clear();
    let cancel = |tick| JobAction::Cancel { job: "j".into(), tick };
    let none = planner.ask(&request(3, cancel(Some(at(77)))), true, at(NOW));
    assert!(refusal(none).contains("nothing of j runs"));
    let all = planner.ask(&request(4, cancel(None)), true, at(NOW));
    assert!(matches!(all, Asked::Answer(JobResponse::Accepted { count: 2, .. })), "{all:?}");
    assert!(matches!(&planner.effects[0], Effect::Cancel { key: cancelled, .. } if *cancelled == key));
    let Effect::Report(report) = &planner.effects[1] else { panic!("{:?}", planner.effects) };
    assert_eq!(report.entry.end, RunOutcome::Cancelled);
    assert_eq!(
        closed_rows(&planner.effects),
        [&*RequestId::from_u128(2).key()],
        "the other one has an active run"
    );
    planner.effects.clear();
    let owner = planner.table.id("j");
    planner.run_ended(RunCompletion { owner, key, end: Some(RunEnd::Left) }, false, at(NOW));
    assert!(!start_next(&mut planner), "no requested run is left");
}

#[test]
fn a_cancellation_without_a_tick_spares_runs_that_are_open_ahead_of_their_ticks() {
    let mut planner = led();
    let run = opened_ahead(&mut planner);
    assert!(at(NOW) < run.not_before && run.not_before == run.tick, "{run:?}");
    let cancel = |id, tick| request(id, JobAction::Cancel { job: "ahead".into(), tick });
    let none = planner.ask(&cancel(1, None), true, at(NOW));
    assert!(refusal(none).contains("nothing of ahead runs"));
    assert!(planner.effects.is_empty(), "{:?}", planner.effects);
    let due = planner.ask(&cancel(2, None), true, run.tick);
    assert!(matches!(due, Asked::Answer(JobResponse::Accepted { count: 1, .. })), "{due:?}");
    let named = planner.ask(&cancel(3, Some(run.tick)), true, at(NOW));
    assert!(matches!(named, Asked::Answer(JobResponse::Accepted { count: 1, .. })), "its tick is named");
    let cancels = |effect: &Effect| matches!(effect, Effect::Cancel { key, .. } if *key == run.key);
    assert!(planner.effects.len() == 2 && planner.effects.iter().all(cancels), "{:?}", planner.effects);
}

#[test]
fn a_freeze_withdraws_the_open_runs_whose_ticks_it_covers() {
    let mut planner = led();
    let run = opened_ahead(&mut planner);
    let mut freeze = |id, until| {
        let what = JobAction::Freeze { reason: Some("a migration".into()), until };
        to_store(planner.ask(&request(id, what), true, at(NOW)));
        planner
            .effects
            .drain(..)
            .filter(|effect| matches!(effect, Effect::Withdraw { .. }))
            .collect::<Vec<_>>()
    };
    assert_eq!(freeze(1, run.tick).len(), 0, "the tick is due at the end of the freeze");
    let withdrawn = freeze(2, run.tick + SECOND);
    let [Effect::Withdraw { key, why: Withdrawal::Frozen }] = &withdrawn[..] else { panic!("{withdrawn:?}") };
    assert_eq!(key, &run.key);
}

#[test]
fn the_requests_of_a_removed_job_are_closed_and_an_active_run_is_not_reported() {
    let mut planner = led();
    for id in [1, 2] {
        let granted = to_store(planner.ask(&trigger(id), true, at(NOW)));
        planner.stored(granted, at(NOW));
    }
    start_next(&mut planner);
    planner.effects.clear();
    planner.remove(id_of(&planner, "j"), at(NOW));
    let reports: Vec<_> = planner
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Report(report) => Some((report.entry.cause.request(), &*report.entry.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(reports, [(Some(RequestId::from_u128(2)), Withdrawal::Removed.reason())]);
    let keys = [1, 2].map(|id| RequestId::from_u128(id).key());
    assert_eq!(closed_rows(&planner.effects), [&*keys[0], &*keys[1]]);
    assert!(
        planner.effects.iter().any(|effect| matches!(effect, Effect::RemoveRow { key } if **key == *"job/j"))
    );
    assert!(refusal(planner.ask(&trigger(3), true, at(NOW))).contains("knows no job"));
}

#[test]
fn a_request_that_is_late_or_comes_during_a_drain_is_refused() {
    let mut planner = led();
    let mut ask = |id, is_open, now| refusal(planner.ask(&trigger(id), is_open, at(now)));
    assert!(ask(1, true, NOW + 61).contains("too late, by 1.0s"));
    assert!(ask(2, false, NOW).contains("is being drained"));
    let cancel = request(3, JobAction::Cancel { job: "j".into(), tick: None });
    let late = refusal(planner.ask(&cancel, true, at(NOW + 61)));
    assert!(late.contains("may have cancelled runs"), "{late}");
}

/// Regression: a leader refused a request that an earlier leader had accepted, and a later one found the row of the earlier
/// leader and carried the request planner.effects.
#[test]
fn a_refused_request_is_answered_once_its_closing_row_is_stored() {
    let mut planner = led();
    let granted = to_store(planner.ask(&trigger(1), true, at(NOW + 61)));
    let refused = granted.stored_row();
    let answer = planner.stored(granted, at(NOW + 61));
    assert!(matches!(&answer, JobResponse::Refused { why } if why.contains("too late")), "{answer:?}");
    assert_eq!(closed_rows(&planner.effects), [&*refused.0], "the row stays no longer than it must");
    let again = planner.ask(&trigger(1), true, at(NOW));
    assert!(matches!(again, Asked::Answer(same) if same == answer), "the answer stays");
    let mut planner = led_from(snapshot([refused]));
    planner.effects.clear();
    planner.resume_requests(at(NOW));
    assert!(!start_next(&mut planner), "the row counts");
    assert_eq!(closed_rows(&planner.effects).len(), 1);
}

#[test]
fn an_expired_pause_is_refused_once_a_majority_stores_the_row_without_it() {
    let mut planner = led();
    let late = planner.ask(&request(1, JobAction::pause("j")), true, at(NOW + 61));
    let granted = to_store(late);
    let (key, value) = granted.stored_row();
    assert!(key == JobRow::key("j") && JobRow::parse(&value).unwrap().paused.is_none());
    assert!(matches!(planner.stored(granted, at(NOW + 61)), JobResponse::Refused { .. }));
}

/// Tests that the leader stores the row again before it answers. The first write of the row failed, so the row
/// may be stored on a minority of the nodes only.
#[test]
fn an_expired_pause_that_was_carried_out_is_answered_once_its_row_is_stored() {
    let mut planner = led();
    let pause = |id| request(id, JobAction::pause("j"));
    to_store(planner.ask(&pause(1), true, at(NOW)));
    planner.not_stored();
    let resume = request(2, JobAction::Resume { job: "j".into() });
    to_store(planner.ask(&resume, true, at(NOW)));
    let granted = to_store(planner.ask(&pause(1), true, at(NOW + 61)));
    let answer = planner.stored(granted, at(NOW + 61));
    assert!(matches!(answer, JobResponse::Accepted { .. }), "it did pause the job: {answer:?}");
    let row = planner.table.find("j").expect("the job").1.row().clone();
    assert!(row.paused.is_none(), "the job was resumed since then");
    assert!(refusal(planner.ask(&pause(3), true, at(NOW + 61))).contains("too late"));
}

#[test]
fn a_pause_and_a_resumption_are_carried_out_once() {
    let mut planner = led();
    let mut texts = Vec::new();
    let actions: [(u128, fn() -> JobAction); 6] = [
        (1, || JobAction::pause("j")),
        (2, || JobAction::pause("j")),
        (3, || JobAction::Resume { job: "j".into() }),
        (1, || JobAction::pause("j")),
        (4, || JobAction::Resume { job: "j".into() }),
        (3, || JobAction::Resume { job: "j".into() }),
    ];
    for (id, what) in actions {
        // The test never reports a row as stored, so the leader stores no answer. The leader can recognize a
        // repeated request only by the ids in the job's row.
        let granted = to_store(planner.ask(&request(id, what()), true, at(NOW)));
        let row = JobRow::parse(&granted.stored_row().1).unwrap();
        let JobResponse::Accepted { text, .. } = granted.answer else { panic!("accepted") };
        texts.push((text.to_string(), row.paused.is_some()));
    }
    let expected = [
        ("paused", true),
        ("was paused already", true),
        ("resumed", false),
        ("paused", false),
        ("was not paused", false),
        ("resumed", false),
    ];
    assert_eq!(texts, expected.map(|(text, paused)| (text.to_owned(), paused)));
}

#[test]
fn a_run_of_which_the_ledger_has_forgotten_the_time_is_not_reported_as_lost() {
    let lost = [SkipReason::Started, SkipReason::Unknown, SkipReason::Final, SkipReason::Pruned].map(is_lost);
    assert_eq!(lost, [true, true, false, false]);
}
