use super::*;
use crate::{
    measure::JobsMeasures,
    node::FencingToken,
    scheduler::{
        job::Job,
        plan::{
            effect::RunCompletion,
            led_jobs::AfterRun,
            reporter::{FROZEN, Reporter},
        },
        policy::{Overlap, Placement},
        run::{on_leader::RunEnd, pending_run::PendingRun},
        schedule::every,
        store::snapshot::{
            LedgerSnapshot,
            tests::{SECOND, at, sealed, snapshot},
        },
    },
};

const NOW: u64 = 10;

/// Returns a leader's jobs and requests. The only job is `j`, which is not due.
fn led() -> (LedJobs, Requests) {
    led_from(sealed(&[], &[]))
}

/// Returns the jobs and requests of a leader that found `ledger` at its seal. The only job is `j`, which is not
/// due.
fn led_from(ledger: LedgerSnapshot) -> (LedJobs, Requests) {
    let reporter = Reporter::new("me".into(), FencingToken::new(9));
    let mut jobs = LedJobs::new(ledger, reporter, None, SECOND, 1, JobsMeasures::new(&"g".into(), []));
    let job = Job::new("j", every(1_000_000 * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    jobs.take_over(Arc::new(job), at(NOW), &mut Vec::new());
    jobs.registered(0);
    (jobs, Requests::default())
}

/// Adds a job for any worker whose next tick is due in a second. Returns the run of this tick, which the
/// leader opens at once, because it opens runs a second ahead of their ticks.
fn opened_ahead(jobs: &mut LedJobs, out: &mut Vec<Effect>) -> PendingRun {
    let ahead = Job::new("ahead", every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    let ahead = ahead.placement(Placement::AnyWorker).overlap(Overlap::Allow);
    jobs.take_over(Arc::new(ahead), at(NOW), out);
    jobs.registered(1);
    while jobs.plan_next(at(NOW), out) {}
    while jobs.start_next(at(NOW), out) {}
    let opened = out.drain(..).filter_map(|effect| match effect {
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
    request(id, JobAction::Trigger { job: "j".into() })
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
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let [first, second] =
        [(); 2].map(|()| to_store(requests.ask(trigger(1), true, &mut jobs, at(NOW), &mut out)));
    assert!(out.is_empty() && !jobs.start_next(at(NOW), &mut out), "the row is not stored");
    let answers = [first, second].map(|granted| requests.stored(granted, &mut jobs, at(NOW), &mut out));
    assert_eq!(answers[0], answers[1]);
    assert!(jobs.start_next(at(NOW), &mut out) && !jobs.start_next(at(NOW), &mut out));
    run_key(&out);
    let again = requests.ask(trigger(1), true, &mut jobs, at(NOW), &mut out);
    assert!(matches!(again, Asked::Answer(answer) if answer == answers[0]));
}

#[test]
fn requests_of_one_microsecond_have_ticks_of_their_own_which_the_next_leader_keeps() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let mut tick_of = |id| {
        let granted = to_store(requests.ask(trigger(id), true, &mut jobs, at(NOW), &mut out));
        let open = granted.open.as_ref().unwrap();
        (open.remaining()[0], granted.to_store())
    };
    let micro = Duration::from_micros(1);
    let (first, _) = tick_of(1);
    let (second, (key, value)) = tick_of(2);
    assert_eq!(
        (first, second, tick_of(2).0),
        (at(NOW), at(NOW) + micro, at(NOW) + micro),
        "also if it comes again"
    );
    let (mut jobs, mut requests) = led_from(snapshot([(key, value)]));
    requests.resume(&mut jobs, at(NOW), &mut out);
    assert!(jobs.start_next(at(NOW), &mut out), "its run starts");
    let started = out.iter().find_map(|effect| match effect {
        Effect::Execute(start) => Some((start.run.tick, start.run.request())),
        _ => None,
    });
    assert_eq!(started, Some((second, Some(RequestId::from_u128(2)))));
    let third = to_store(requests.ask(trigger(3), true, &mut jobs, at(NOW), &mut out));
    assert_eq!(third.open.unwrap().remaining()[0], at(NOW));
    let fourth = to_store(requests.ask(trigger(4), true, &mut jobs, at(NOW), &mut out));
    assert_eq!(fourth.open.unwrap().remaining()[0], second + micro);
}

/// Tests that the leader stores the row again before it answers. The earlier leader may have stored the row at one node only,
/// so a later leader might not find it.
#[test]
fn a_request_that_an_earlier_leader_accepted_is_answered_once_a_majority_stores_its_row() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let (key, value) = to_store(requests.ask(trigger(1), true, &mut jobs, at(NOW), &mut out)).to_store();
    let (mut jobs, mut requests) = led_from(snapshot([(key, value)]));
    requests.resume(&mut jobs, at(NOW), &mut out);
    assert!(jobs.start_next(at(NOW), &mut out), "its run starts");
    let failed = to_store(requests.ask(trigger(1), true, &mut jobs, at(NOW + 61), &mut out));
    drop(failed);
    requests.not_stored();
    let granted = to_store(requests.ask(trigger(1), true, &mut jobs, at(NOW), &mut out));
    let answer = requests.stored(granted, &mut jobs, at(NOW), &mut out);
    assert!(matches!(answer, JobResponse::Accepted { count: 1, .. }));
    let again = requests.ask(trigger(1), true, &mut jobs, at(NOW), &mut out);
    assert!(matches!(again, Asked::Answer(same) if same == answer));
    assert!(!jobs.start_next(at(NOW), &mut out), "it has one run");
}

#[test]
fn a_request_is_closed_after_its_last_run() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let span = 2_500_000 * SECOND;
    let what = JobAction::Backfill { job: "j".into(), from: at(NOW) - span, until: at(NOW) };
    let granted = to_store(requests.ask(request(1, what), true, &mut jobs, at(NOW), &mut out));
    let JobResponse::Accepted { count, .. } = requests.stored(granted, &mut jobs, at(NOW), &mut out) else {
        panic!("accepted")
    };
    assert!((2..=3).contains(&count));
    assert_eq!(requests.oldest(), Some(at(NOW)), "the ledger keeps the records of its runs");
    for run in 1..=count {
        out.clear();
        assert!(
            jobs.start_next(at(NOW), &mut out) && !jobs.start_next(at(NOW), &mut Vec::new()),
            "one at once"
        );
        let Some(Effect::Execute(start)) = out.pop() else { panic!("{out:?}") };
        let (owner, key, tick) = (start.owner, start.run.key, start.run.tick);
        let ended = RunCompletion { owner, key, tick, cause: start.run.cause, end: Some(RunEnd::Left) };
        let after = jobs.end_run(0, ended, false, at(NOW), &mut out);
        assert_eq!(after, AfterRun::Unfinished);
        requests.on_run_end(RequestId::from_u128(1), &mut jobs, at(NOW + run), &mut out);
        assert_eq!(!closed_rows(&out).is_empty(), run == count);
    }
    assert_eq!(requests.oldest(), None);
}

#[test]
fn a_cancellation_cancels_active_runs_and_drops_requested_ones() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    for id in [1, 2] {
        let granted = to_store(requests.ask(trigger(id), true, &mut jobs, at(NOW), &mut out));
        requests.stored(granted, &mut jobs, at(NOW), &mut out);
    }
    jobs.start_next(at(NOW), &mut out);
    let key = run_key(&out);
    out.clear();
    let cancel = |tick| JobAction::Cancel { job: "j".into(), tick };
    let none = requests.ask(request(3, cancel(Some(at(77)))), true, &mut jobs, at(NOW), &mut out);
    assert!(refusal(none).contains("nothing of j runs"));
    let all = requests.ask(request(4, cancel(None)), true, &mut jobs, at(NOW), &mut out);
    assert!(matches!(all, Asked::Answer(JobResponse::Accepted { count: 2, .. })), "{all:?}");
    assert!(matches!(&out[0], Effect::Cancel { key: cancelled, .. } if *cancelled == key));
    let Effect::Report(report) = &out[1] else { panic!("{out:?}") };
    assert_eq!(report.entry.end, RunOutcome::Cancelled);
    assert_eq!(closed_rows(&out), [&*RequestId::from_u128(2).key()], "the other one has an active run");
    out.clear();
    jobs.end_run(
        0,
        RunCompletion {
            owner: crate::scheduler::plan::effect::RunOwner::Job(0),
            key,
            tick: at(NOW),
            cause: crate::scheduler::job::RunCause::Scheduled,
            end: Some(RunEnd::Left),
        },
        false,
        at(NOW),
        &mut out,
    );
    assert!(!jobs.start_next(at(NOW), &mut out), "no requested run is left");
}

#[test]
fn a_cancellation_without_a_tick_spares_runs_that_are_open_ahead_of_their_ticks() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let run = opened_ahead(&mut jobs, &mut out);
    assert!(at(NOW) < run.not_before && run.not_before == run.tick, "{run:?}");
    let cancel = |id, tick| request(id, JobAction::Cancel { job: "ahead".into(), tick });
    let none = requests.ask(cancel(1, None), true, &mut jobs, at(NOW), &mut out);
    assert!(refusal(none).contains("nothing of ahead runs"));
    assert!(out.is_empty(), "{out:?}");
    let due = requests.ask(cancel(2, None), true, &mut jobs, run.tick, &mut out);
    assert!(matches!(due, Asked::Answer(JobResponse::Accepted { count: 1, .. })), "{due:?}");
    let named = requests.ask(cancel(3, Some(run.tick)), true, &mut jobs, at(NOW), &mut out);
    assert!(matches!(named, Asked::Answer(JobResponse::Accepted { count: 1, .. })), "its tick is named");
    let cancels = |effect: &Effect| matches!(effect, Effect::Cancel { key, .. } if *key == run.key);
    assert!(out.len() == 2 && out.iter().all(cancels), "{out:?}");
}

#[test]
fn a_freeze_withdraws_the_open_runs_whose_ticks_it_covers() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let run = opened_ahead(&mut jobs, &mut out);
    let mut freeze = |id, until| {
        let what = JobAction::Freeze { reason: "a migration".into(), until };
        to_store(requests.ask(request(id, what), true, &mut jobs, at(NOW), &mut out));
        out.drain(..).filter(|effect| matches!(effect, Effect::Withdraw { .. })).collect::<Vec<_>>()
    };
    assert_eq!(freeze(1, run.tick).len(), 0, "the tick is due at the end of the freeze");
    let withdrawn = freeze(2, run.tick + SECOND);
    let [Effect::Withdraw { key, end: RunOutcome::SkippedFrozen, why }] = &withdrawn[..] else {
        panic!("{withdrawn:?}")
    };
    assert_eq!((key, &**why), (&run.key, FROZEN));
}

#[test]
fn the_requests_of_a_removed_job_are_closed_and_an_active_run_is_not_reported() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    for id in [1, 2] {
        let granted = to_store(requests.ask(trigger(id), true, &mut jobs, at(NOW), &mut out));
        requests.stored(granted, &mut jobs, at(NOW), &mut out);
    }
    jobs.start_next(at(NOW), &mut out);
    out.clear();
    let active = jobs.remove(0, at(NOW), &mut out);
    requests.drop_job(&"j".into(), &active, &jobs, at(NOW), &mut out);
    let reports: Vec<_> = out
        .iter()
        .filter_map(|effect| match effect {
            Effect::Report(report) => Some((report.entry.cause.request(), &*report.entry.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(reports, [(Some(RequestId::from_u128(2)), REMOVED)]);
    let keys = [1, 2].map(|id| RequestId::from_u128(id).key());
    assert_eq!(closed_rows(&out), [&*keys[0], &*keys[1]]);
    assert!(out.iter().any(|effect| matches!(effect, Effect::RemoveRow { key } if **key == *"job/j")));
    assert!(refusal(requests.ask(trigger(3), true, &mut jobs, at(NOW), &mut out)).contains("knows no job"));
}

#[test]
fn a_request_that_is_late_or_comes_during_a_drain_is_refused() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let mut ask =
        |id, is_open, now| refusal(requests.ask(trigger(id), is_open, &mut jobs, at(now), &mut out));
    assert!(ask(1, true, NOW + 61).contains("too late, by 1.0s"));
    assert!(ask(2, false, NOW).contains("is being drained"));
    let cancel = request(3, JobAction::Cancel { job: "j".into(), tick: None });
    let late = refusal(requests.ask(cancel, true, &mut jobs, at(NOW + 61), &mut out));
    assert!(late.contains("may have cancelled runs"), "{late}");
}

/// Regression: a leader refused a request that an earlier leader had accepted, and a later one found the row of the earlier
/// leader and carried the request out.
#[test]
fn a_refused_request_is_answered_once_its_closing_row_is_stored() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let granted = to_store(requests.ask(trigger(1), true, &mut jobs, at(NOW + 61), &mut out));
    let refused = granted.to_store();
    let answer = requests.stored(granted, &mut jobs, at(NOW + 61), &mut out);
    assert!(matches!(&answer, JobResponse::Refused { why } if why.contains("too late")), "{answer:?}");
    assert_eq!(closed_rows(&out), [&*refused.0], "the row stays no longer than it must");
    let again = requests.ask(trigger(1), true, &mut jobs, at(NOW), &mut out);
    assert!(matches!(again, Asked::Answer(same) if same == answer), "the answer stays");
    let (mut jobs, mut requests) = led_from(snapshot([refused]));
    out.clear();
    requests.resume(&mut jobs, at(NOW), &mut out);
    assert!(!jobs.start_next(at(NOW), &mut out), "the row counts");
    assert_eq!(closed_rows(&out).len(), 1);
}

#[test]
fn an_expired_pause_is_refused_once_a_majority_stores_the_row_without_it() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let late = requests.ask(request(1, JobAction::pause("j")), true, &mut jobs, at(NOW + 61), &mut out);
    let granted = to_store(late);
    let (key, value) = granted.to_store();
    assert!(key == JobRow::key("j") && JobRow::parse(&value).unwrap().paused.is_none());
    assert!(matches!(
        requests.stored(granted, &mut jobs, at(NOW + 61), &mut out),
        JobResponse::Refused { .. }
    ));
}

/// Tests that the leader stores the row again before it answers. The first write of the row failed, so the row
/// may be stored on a minority of the nodes only.
#[test]
fn an_expired_pause_that_was_carried_out_is_answered_once_its_row_is_stored() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
    let pause = |id| request(id, JobAction::pause("j"));
    to_store(requests.ask(pause(1), true, &mut jobs, at(NOW), &mut out));
    requests.not_stored();
    let resume = request(2, JobAction::Resume { job: "j".into() });
    to_store(requests.ask(resume, true, &mut jobs, at(NOW), &mut out));
    let granted = to_store(requests.ask(pause(1), true, &mut jobs, at(NOW + 61), &mut out));
    let answer = requests.stored(granted, &mut jobs, at(NOW + 61), &mut out);
    assert!(matches!(answer, JobResponse::Accepted { .. }), "it did pause the job: {answer:?}");
    let row = jobs.table().get(0).expect("the job").row().clone();
    assert!(row.paused.is_none(), "the job was resumed since then");
    assert!(refusal(requests.ask(pause(3), true, &mut jobs, at(NOW + 61), &mut out)).contains("too late"));
}

#[test]
fn a_pause_and_a_resumption_are_carried_out_once() {
    let (mut jobs, mut requests) = led();
    let mut out = Vec::new();
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
        let granted = to_store(requests.ask(request(id, what()), true, &mut jobs, at(NOW), &mut out));
        let row = JobRow::parse(&granted.to_store().1).unwrap();
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
