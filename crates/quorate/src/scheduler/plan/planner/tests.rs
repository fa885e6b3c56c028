use super::*;
use crate::scheduler::{
    job::{RequestId, RunCause, RunOutcome},
    plan::{
        active_run::Withdrawal,
        effect::{RunCompletion, RunStart},
    },
    policy::{Delivery, Misfire, Placement},
    run::{on_leader::RunEnd, pending_run::PendingRun},
    schedule::Schedule,
    store::{
        self, HistoryEntry, JobRow, OpenRun, RunKey, RunRecord,
        snapshot::tests::{SECOND, at, sealed, snapshot},
    },
};

pub(super) fn settings() -> LeaderSettings {
    LeaderSettings {
        group: "g".into(),
        worker: "me".into(),
        term: FencingToken::new(9),
        max_clock_offset: Duration::ZERO,
        ttl: SECOND,
        max_running: usize::MAX,
        measures: JobsMeasures::new(&"g".into(), []),
        left_out: LeftOut::default(),
    }
}

pub(super) fn job(name: &str) -> Job {
    let job = Job::new(name, Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    job.misfire(Misfire::run_once(10 * SECOND))
}

pub(super) fn registry(jobs: impl IntoIterator<Item = Job>) -> BTreeMap<Arc<str>, Arc<Job>> {
    jobs.into_iter().map(|job| (Arc::clone(&job.name), Arc::new(job))).collect()
}

/// Lets the planner take over all waiting jobs, and reports the rows of the new jobs as written.
pub(super) fn take_over(planner: &mut Planner, now: u64) -> Vec<Effect> {
    planner.take_over(at(now));
    while planner.has_jobs_to_take() {
        planner.take_over(at(now));
    }
    let effects = planner.take_effects();
    for effect in &effects {
        if let Effect::Register { id, .. } = effect {
            planner.registered(*id);
        }
    }
    effects
}

pub(super) fn planner(
    sealed: LedgerSnapshot,
    jobs: impl IntoIterator<Item = Job>,
    now: u64,
) -> (Planner, Vec<Effect>) {
    let mut planner = Planner::new(sealed, Definitions::default(), settings());
    planner.change(&registry(jobs), at(now));
    let effects = take_over(&mut planner, now);
    (planner, effects)
}

/// Lets the planner make decisions and start runs at the time `now`. Returns the started runs.
pub(super) fn starts(planner: &mut Planner, now: u64) -> Vec<RunStart> {
    planner.plan_due(at(now));
    planner.start_ready(at(now));
    runs(planner.take_effects())
}

pub(super) fn runs(effects: Vec<Effect>) -> Vec<RunStart> {
    let run = |effect| match effect {
        Effect::Execute(start) | Effect::Open(start) => Some(start),
        _ => None,
    };
    effects.into_iter().filter_map(run).collect()
}

fn completion(start: &RunStart, end: Option<RunEnd>) -> RunCompletion {
    RunCompletion { owner: start.owner, key: Arc::clone(&start.run.key), end }
}

/// Returns the completion of a run that a worker has executed.
pub(super) fn done(start: &RunStart) -> RunCompletion {
    saved(start, None)
}

/// Returns the completion of a run that has saved a state.
pub(super) fn saved(start: &RunStart, state: Option<&str>) -> RunCompletion {
    let (job, PendingRun { tick, cause, .. }) = (&start.job.name, &start.run);
    let entry = HistoryEntry::new(job, *tick, *cause, RunOutcome::Done, &"w".into(), FencingToken::new(9));
    let entry = Box::new(HistoryEntry { started: Some(at(11)), ..entry });
    completion(start, Some(RunEnd::Ended { entry, state: state.map(Into::into) }))
}

fn reports(effects: &[Effect]) -> Vec<(Arc<str>, RunOutcome)> {
    let report = |effect: &Effect| match effect {
        Effect::Report(report) => Some((Arc::clone(&report.entry.job), report.entry.end)),
        _ => None,
    };
    effects.iter().filter_map(report).collect()
}

pub(super) fn row_of<'a>(effects: &'a [Effect], wanted: &str) -> Option<&'a Arc<str>> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::PutRow { key, value } if **key == *wanted => Some(value),
        _ => None,
    })
}

/// Returns the snapshot of a ledger with an open record of the tick 5 of the job `j`.
fn with_open_run() -> LedgerSnapshot {
    with_open_run_of(None)
}

/// Returns a ledger in which a run of the job `j` is open, which has a concurrency key.
fn with_open_run_of(key: Option<&str>) -> LedgerSnapshot {
    let open = OpenRun {
        generation: 1,
        at: at(5),
        not_before: at(5),
        take_by: at(15),
        delivery: Delivery::AtMostOnce,
        cause: RunCause::Scheduled,
        term: FencingToken::new(3),
        labels: Default::default(),
        uses: key.map(Into::into),
        state: None,
        cancel: None,
        payload: None,
        job: None,
        token: FencingToken::new(1),
        to: None,
    };
    let row = JobRow { since: at(1), schedule: "every 1s".into(), ..JobRow::default() };
    let record = RunRecord::Open(open).to_value();
    snapshot([(JobRow::key("j"), row.to_value()), (RunKey::new("j", at(5)).key(), record)])
}

#[test]
fn a_new_job_is_registered_before_it_starts() {
    let mut planner = Planner::new(sealed(&[], &[]), Definitions::default(), settings());
    planner.change(&registry([job("j")]), at(10));
    planner.take_over(at(10));
    let effects = planner.take_effects();
    let [Effect::Register { id, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert!(planner.is_complete() && starts(&mut planner, 12).is_empty());
    planner.registered(*id);
    assert_eq!(starts(&mut planner, 12).len(), 1);
    assert_eq!(planner.table().ready().executing(), 1);
}

#[test]
fn jobs_are_taken_over_in_parts_and_requests_wait_for_the_last() {
    let jobs = (0..=JOBS_AT_ONCE).map(|number| job(&format!("j{number}")));
    let mut planner = Planner::new(sealed(&[], &[]), Definitions::default(), settings());
    planner.change(&registry(jobs), at(10));
    planner.take_over(at(10));
    assert_eq!(planner.take_effects().len(), JOBS_AT_ONCE);
    assert!(planner.has_jobs_to_take() && !planner.is_complete());
    planner.take_over(at(10));
    assert_eq!(planner.take_effects().len(), 1);
    assert!(!planner.has_jobs_to_take() && planner.is_complete());
}

#[test]
fn the_mark_says_up_to_when_all_ticks_are_decided() {
    let (mut planner, _) = planner(sealed(&[], &[]), [job("j")], 10);
    let mark = |planner: &mut Planner| {
        planner.mark();
        row_of(&planner.take_effects(), MARK).map(|row| row.parse::<u64>().unwrap())
    };
    assert_eq!(mark(&mut planner), None);
    let started = starts(&mut planner, 12);
    let waits = at(12).as_micros() - 1;
    assert_eq!(mark(&mut planner), Some(waits), "the tick at 12 s waits, and the next leader must find it");
    planner.run_ended(done(&started[0]), false, at(12));
    starts(&mut planner, 12);
    assert_eq!(mark(&mut planner), Some(at(12).as_micros()));
}

#[test]
fn the_end_of_a_run_of_a_removed_job_does_not_restore_its_row() {
    let schedule = Schedule::delay(SECOND).unwrap();
    let counts = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
    let (mut planner, _) = planner(sealed(&[], &[]), [counts], 10);
    let started = starts(&mut planner, 12);
    planner.change(&BTreeMap::new(), at(12));
    let effects = planner.take_effects();
    assert!(matches!(&effects[..], [Effect::RemoveRow { .. }]), "{effects:?}");
    planner.run_ended(done(&started[0]), false, at(13));
    let effects = planner.take_effects();
    assert_eq!(reports(&effects), [("j".into(), RunOutcome::Done)]);
    assert!(row_of(&effects, "job/j").is_none(), "{effects:?}");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CloseHistory(job) if **job == *"j")));
}

#[test]
fn the_end_of_a_run_is_written_where_the_schedule_counts_from_it() {
    let counts = Job::new("j", Schedule::delay(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    let (mut planner, _) = planner(sealed(&[], &[]), [counts], 10);
    let started = starts(&mut planner, 12);
    planner.run_ended(done(&started[0]), false, at(13));
    let effects = planner.take_effects();
    let row = JobRow::parse(row_of(&effects, "job/j").expect("its row is written")).unwrap();
    assert_eq!(row.ended, Some(at(13)));
    assert_eq!(planner.table().timers().next(), Some(at(14)));
}

#[test]
fn a_leader_without_the_job_watches_its_open_run_and_enters_its_end() {
    let (mut planner, effects) = planner(with_open_run(), [], 10);
    let watched = runs(effects);
    let [watch] = &watched[..] else { panic!("{watched:?}") };
    assert_eq!((watch.owner, watch.run.tick), (None, at(5)));
    assert!(planner.low_water(at(10)) <= at(5), "its record is kept");
    assert_eq!(planner.table().ready().executing(), 0);
    planner.run_ended(done(watch), false, at(13));
    let effects = planner.take_effects();
    assert_eq!(reports(&effects), [("j".into(), RunOutcome::Done)]);
    assert_eq!(planner.needed.unfinished().count(), 0, "and is not kept any more");
    // Only now is the job added to the leader. The leader continues the open run, and does not open it again.
    planner.change(&registry([job("j").placement(Placement::AnyWorker)]), at(13));
    let effects = take_over(&mut planner, 13);
    let later = runs(effects).into_iter().chain(starts(&mut planner, 14));
    assert!(later.map(|start| start.run.tick).all(|tick| tick > at(5)));
}

#[test]
fn a_job_is_taken_over_once_the_watches_of_its_runs_have_ended() {
    let (mut planner, effects) = planner(with_open_run(), [], 10);
    let watch = runs(effects).remove(0);
    planner.change(&registry([job("j").placement(Placement::AnyWorker)]), at(11));
    planner.take_over(at(11));
    let effects = planner.take_effects();
    assert!(matches!(&effects[..], [Effect::Release { key }] if *key == watch.run.key), "{effects:?}");
    assert!(!planner.has_jobs_to_take());
    planner.plan_due(at(11));
    planner.mark();
    assert!(planner.take_effects().is_empty(), "the ticks of this job are not decided on");
    planner.run_ended(completion(&watch, Some(RunEnd::Left)), false, at(11));
    assert!(planner.has_jobs_to_take());
    planner.take_over(at(11));
    let adopted = starts(&mut planner, 11).remove(0);
    assert_eq!((adopted.owner, &adopted.run.key), (planner.table().id("j"), &watch.run.key));
}

#[test]
fn the_open_runs_of_a_job_that_has_ended_are_withdrawn() {
    let (mut planner, effects) = planner(with_open_run(), [], 10);
    let watch = runs(effects).remove(0);
    assert_eq!(planner.unknown_jobs().into_iter().collect::<Vec<_>>(), [Arc::<str>::from("j")]);
    planner.jobs_ended(vec!["j".into()], at(11));
    let effects = planner.take_effects();
    let withdrawn = |effect: &Effect| matches!(effect, Effect::Withdraw { key, why: Withdrawal::Ended } if *key == watch.run.key);
    assert!(effects.iter().any(withdrawn), "{effects:?}");
    assert!(matches!(&effects[0], Effect::RemoveRow { key } if **key == *"job/j"));
    planner.jobs_ended(vec!["j".into()], at(11));
    assert!(planner.unknown_jobs().is_empty() && planner.take_effects().is_empty());
}

#[test]
fn the_runs_of_jobs_with_one_key_do_not_exceed_its_limit_wherever_they_run() {
    let shares = |name| job(name).concurrency("database", 2);
    let jobs =
        [shares("a"), shares("b").placement(Placement::AnyWorker), shares("c").priority(9), job("free")];
    let (mut planner, _) = planner(sealed(&[], &[]), jobs, 10);
    let name = |start: &RunStart| start.job.name.to_string();
    let first = starts(&mut planner, 11);
    let names: Vec<String> = first.iter().map(name).collect();
    assert_eq!(names, ["c", "a", "free"], "by priority, then by time, also if a worker executes the run");
    assert!(starts(&mut planner, 11).is_empty() && planner.table().has_blocked());
    let mut next = |ended: &RunStart| -> Vec<String> {
        planner.run_ended(done(ended), false, at(11));
        starts(&mut planner, 11).iter().map(name).collect()
    };
    assert!(next(&first[2]).is_empty(), "its end makes no room for the others");
    assert_eq!(next(&first[0]), ["b"]);
    assert!(!planner.table().has_blocked());
}

#[test]
fn an_open_run_counts_under_the_next_leader_before_any_other_run_starts() {
    let shares = |name| job(name).concurrency("database", 1);
    let filler = (0..JOBS_AT_ONCE).map(|number| job(&format!("f{number}")));
    let jobs = [shares("a").priority(9), shares("j").placement(Placement::AnyWorker)];
    let mut planner = Planner::new(with_open_run_of(Some("database")), Definitions::default(), settings());
    planner.change(&registry(filler.chain(jobs)), at(10));
    let names = |runs: &[RunStart]| {
        let shared = runs.iter().filter(|start| start.job.rules.concurrency.is_some());
        shared.map(|start| (start.job.name.to_string(), start.run.tick)).collect::<Vec<_>>()
    };
    planner.take_over(at(10));
    planner.take_effects().iter().for_each(|effect| {
        if let Effect::Register { id, .. } = effect {
            planner.registered(*id);
        }
    });
    assert!(planner.table().id("a").is_some() && planner.has_jobs_to_take());
    assert_eq!(names(&starts(&mut planner, 12)), [], "a job that is not taken over yet may have an open run");
    let taken = runs(take_over(&mut planner, 12)).into_iter().chain(starts(&mut planner, 12));
    let taken: Vec<RunStart> = taken.filter(|start| start.job.rules.concurrency.is_some()).collect();
    assert_eq!(names(&taken), [("j".to_owned(), at(5))], "and not the one of the higher priority");
    planner.run_ended(done(&taken[0]), false, at(12));
    assert_eq!(names(&starts(&mut planner, 12))[0].0, "a");
}

#[test]
fn an_open_run_of_a_job_that_the_leader_does_not_have_has_its_key_until_it_ends() {
    let shares = job("a").concurrency("database", 1);
    let (mut planner, effects) = planner(with_open_run_of(Some("database")), [shares], 10);
    let watch = runs(effects).remove(0);
    assert!(starts(&mut planner, 12).is_empty() && planner.table().has_blocked());
    planner.run_ended(done(&watch), false, at(13));
    assert_eq!(starts(&mut planner, 13).len(), 1);
}

#[test]
fn a_run_that_comes_too_late_leaves_its_key_to_the_next_job() {
    let shares = |name, within| job(name).misfire(Misfire::run_once(within)).concurrency("database", 1);
    let jobs = [shares("a", SECOND), shares("late", SECOND).priority(9), shares("next", 100 * SECOND)];
    let (mut planner, _) = planner(sealed(&[], &[]), jobs, 10);
    let name = |start: &RunStart| start.job.name.to_string();
    let first = starts(&mut planner, 11);
    assert_eq!(first.iter().map(name).collect::<Vec<_>>(), ["late"]);
    planner.run_ended(done(&first[0]), false, at(11));
    let second = starts(&mut planner, 11);
    assert_eq!(second.iter().map(name).collect::<Vec<_>>(), ["a"]);
    planner.run_ended(done(&second[0]), false, at(50));
    planner.start_ready(at(50));
    let third = runs(planner.take_effects());
    assert_eq!(third.iter().map(name).collect::<Vec<_>>(), ["next"]);
}

#[test]
fn a_job_runs_once_after_each_end_that_it_follows() {
    use crate::scheduler::schedule::{AfterEnd, Schedule};
    let follower =
        |name: &str, on| Job::new(name, Schedule::after("j", on), |_| async { Ok::<(), String>(()) });
    let jobs = || {
        [
            job("j"),
            follower("ok", AfterEnd::Success),
            follower("bad", AfterEnd::Failure),
            follower("any", AfterEnd::End),
        ]
    };
    let (mut planner, effects) = planner(sealed(&[], &[]), jobs(), 10);
    assert!(runs(effects).is_empty());
    let first = starts(&mut planner, 12);
    assert_eq!(first.len(), 1, "nothing has ended yet");
    planner.run_ended(done(&first[0]), false, at(12));
    let mut next = starts(&mut planner, 12);
    next.retain(|start| *start.job.name != *"j");
    let mut names: Vec<_> = next.iter().map(|start| start.job.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["any", "ok"]);
    assert!(next.iter().all(|start| start.run.tick == first[0].run.tick && start.run.at == first[0].run.at));
    assert!(starts(&mut planner, 12).is_empty(), "once");
    assert!(planner.low_water(at(500)) <= first[0].run.at, "the records are kept together");
}

#[test]
fn a_new_leader_follows_the_recorded_ends_that_have_no_run_yet() {
    use crate::scheduler::schedule::{AfterEnd, Schedule};
    let follower =
        || Job::new("ok", Schedule::after("j", AfterEnd::Success), |_| async { Ok::<(), String>(()) });
    let row = |job: Job, since| {
        let row = JobRow { since: at(since), ..JobRow::default() };
        let row = row.described_by(&job, at(since));
        (JobRow::key(&job.name), row.to_value())
    };
    let closed = |job: &str, tick: u64| {
        let record = RunRecord::closed("w", (RunOutcome::Done, ""), None, (FencingToken::new(1), at(tick)));
        (RunKey::new(job, at(tick)).key(), record.to_value())
    };
    let ledger = |extra: Vec<(Arc<str>, Arc<str>)>| {
        let rows = [row(job("j"), 1), row(follower(), 6), closed("j", 5), closed("j", 7), closed("j", 8)];
        snapshot(rows.into_iter().chain(extra))
    };
    let followed = |ledger| {
        let (mut planner, effects) = planner(ledger, [job("j"), follower()], 9);
        let started = runs(effects).into_iter().chain(starts(&mut planner, 9));
        let mut more: Vec<_> = started.filter(|start| *start.job.name == *"ok").collect();
        while let Some(start) = more.last().map(done) {
            planner.run_ended(start, false, at(9));
            let next: Vec<_> =
                starts(&mut planner, 9).into_iter().filter(|start| *start.job.name == *"ok").collect();
            if next.is_empty() {
                break;
            }
            more.extend(next);
        }
        more.iter().map(|start| start.run.tick).collect::<Vec<_>>()
    };
    assert_eq!(
        followed(ledger(Vec::new())),
        [at(7), at(8)],
        "the end at 5 was before the job was registered"
    );
    assert_eq!(followed(ledger(vec![closed("ok", 7)])), [at(8)], "the other one has run");
}

#[test]
fn a_stored_job_needs_no_row_and_runs_once_a_majority_has_its_definition() {
    use crate::scheduler::{
        plan::requests::{Asked, Granted},
        store::{DefinitionText, JobAction, JobRequest, StoredJob},
    };
    let mut planner = Planner::new(snapshot([]), Definitions::default(), settings());
    take_over(&mut planner, 9);
    let put = |planner: &mut Planner, id: u32, seconds: u32, now: u64| -> (Box<Granted>, WallTime) {
        let job = Job::named("beat", Schedule::every(seconds * SECOND).unwrap(), "h");
        let definitions = vec![DefinitionText::new(&job.definition().unwrap())];
        let what = JobAction::Put { job: "beat".into(), definitions, expect: None };
        let (id, by) = (RequestId::from_u128(id.into()), "me".into());
        let asked = planner.ask(&JobRequest { id, by, at: at(now), valid_for: SECOND, what }, true, at(now));
        let Asked::Store(mut granted) = asked else { panic!("{asked:?}") };
        assert_eq!(row_of(&take_over(planner, now), "job/beat"), None);
        let rows = granted.take_rows();
        assert_eq!(rows.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["def/beat", "definitions"]);
        (granted, StoredJob::parse(rows[0].1.as_ref().unwrap()).unwrap().since)
    };
    let (granted, since) = put(&mut planner, 1, 1, 10);
    assert_eq!(since, at(10));
    assert!(starts(&mut planner, 11).is_empty(), "no majority has the definition");
    planner.stored(*granted, at(11));
    assert_eq!(starts(&mut planner, 11).len(), 1);
    assert_eq!(put(&mut planner, 2, 1, 20).1, at(10), "its ticks go on to count");
    let mut planner = Planner::new(snapshot([]), Definitions::default(), settings());
    take_over(&mut planner, 9);
    put(&mut planner, 1, 60, 10);
    let job = Job::named("beat", Schedule::every(90 * SECOND).unwrap(), "h");
    let stored = planner.definitions.job_to_store(&job.definition().unwrap(), at(30)).unwrap();
    assert_eq!(stored.stored, Some(at(30)), "another schedule");
}

/// Returns a planner of which the ledger has the stored job `once`, due at `due`, and a freeze of the group until 30 s.
async fn frozen_with_single_run(due: u64) -> Planner {
    use crate::scheduler::{
        registry::Handlers,
        store::{Paused, StoredJob},
    };
    let single = Job::named("once", Schedule::at(at(due)), "h").misfire(Misfire::run_once(100 * SECOND));
    let id = RequestId::from_u128(7);
    let definition = StoredJob::new(&"me".into(), at(5), id, (&single.definition().unwrap(), &single));
    let mut freeze = GroupFreeze::default();
    freeze.freeze(id, Paused { at: at(6), until: Some(at(30)), ..Paused::default() });
    let rows = [
        (StoredJob::key("once"), definition.to_value()),
        (JobRow::key("once"), JobRow { since: at(5), ..JobRow::default() }.to_value()),
        (GroupFreeze::KEY.into(), freeze.to_value()),
    ];
    let sealed = snapshot(rows);
    let definitions = Definitions::read("g", &sealed, &Handlers::default()).await;
    let mut planner = Planner::new(sealed, definitions, settings());
    planner.change(&BTreeMap::new(), at(10));
    take_over(&mut planner, 10);
    planner
}

#[tokio::test]
async fn a_single_run_that_is_due_after_a_freeze_is_kept_by_a_leader_that_finds_the_freeze() {
    let mut planner = frozen_with_single_run(40).await;
    assert!(planner.definitions().contains("once"));
    assert!(starts(&mut planner, 31).is_empty() && planner.definitions().contains("once"));
    assert_eq!(starts(&mut planner, 41).iter().map(|start| start.run.tick).collect::<Vec<_>>(), [at(40)]);
}

#[tokio::test]
async fn a_single_run_that_was_not_started_when_the_term_ended_is_kept_for_the_next_leader() {
    for end in [RunEnd::Abandoned, RunEnd::Left] {
        let mut planner = frozen_with_single_run(40).await;
        let started = starts(&mut planner, 41);
        // The run may end before the leader has seen that its term is over.
        planner.run_ended(completion(&started[0], Some(end)), false, at(42));
        planner.plan_due(at(43));
        assert!(planner.definitions().contains("once"));
        assert!(!planner.take_effects().iter().any(|effect| matches!(effect, Effect::RemoveRow { .. })));
    }
}

#[tokio::test]
async fn a_single_run_that_a_freeze_covers_is_entered_and_removed_at_its_end() {
    let mut planner = frozen_with_single_run(20).await;
    assert!(starts(&mut planner, 21).is_empty() && planner.definitions().contains("once"));
    planner.plan_due(at(31));
    let effects = planner.take_effects();
    assert_eq!(reports(&effects), [("once".into(), RunOutcome::SkippedFrozen)]);
    assert!(!planner.definitions().contains("once"));
    let is_removal = |effect: &Effect| matches!(effect, Effect::RemoveRow { key } if **key == *"def/once");
    assert!(effects.iter().any(is_removal), "{effects:?}");
}

#[tokio::test]
async fn a_single_run_whose_time_passes_during_a_pause_is_removed_once_it_is_resumed() {
    let mut planner = frozen_with_single_run(40).await;
    planner.plan_due(at(31));
    let id = planner.table().id("once").expect("it is taken over");
    planner.pause(id, RequestId::from_u128(8), store::Paused { at: at(32), ..store::Paused::default() });
    assert!(starts(&mut planner, 41).is_empty() && planner.definitions().contains("once"));
    planner.resume(id, RequestId::from_u128(9), at(42));
    planner.plan_due(at(42));
    assert_eq!(reports(&planner.take_effects()), [("once".into(), RunOutcome::SkippedPaused)]);
    assert!(!planner.definitions().contains("once"));
}
