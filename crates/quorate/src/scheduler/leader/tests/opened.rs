//! Tests of how the leader ends runs that are open to workers.

use crate::{
    env::WallTime,
    ledger::{LedgerView, TermLedger},
    node::FencingToken,
    scheduler::{
        Schedule,
        job::{Job, RunContext, RunOutcome},
        leader::tests::stage::{Begun, Candidate, PERIOD, SECOND, Stage, accepted, never},
        policy::{Delivery, Misfire, Placement},
        store::{AssignedTo, HistoryEntry, JobAction, OpenRun, RunRecord, WorkRow},
    },
    session::{Seen, Sessions},
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Returns a job that is placed on any worker and is due once. Its handler ends at once.
fn due_at(tick: WallTime, delivery: Delivery, window: Duration) -> Job {
    executed_at(tick, &Begun::default()).delivery(delivery).misfire(Misfire::run_all(window))
}

/// Returns a job that is placed on any worker and is due once. Its handler notes its start.
fn executed_at(tick: WallTime, begun: &Begun) -> Job {
    let begun = Arc::clone(begun);
    let job = Job::new("j", Schedule::at(tick), move |run: RunContext| {
        begun.lock().unwrap().push(run.scheduled_at());
        async { Ok::<(), String>(()) }
    });
    job.placement(Placement::AnyWorker)
}

/// Returns a job that is placed on any worker and runs only on request.
fn on_request() -> Job {
    Job::new("j", never(), |_| async { Ok::<(), String>(()) }).placement(Placement::AnyWorker)
}

fn other_job() -> Job {
    Job::new("other", never(), |_| async { Ok::<(), String>(()) })
}

/// Adds a job to a candidate.
fn add(candidate: &Candidate, job: Job) {
    let added = candidate.registry.change(|jobs| {
        jobs.insert(Arc::clone(&job.name), Arc::new(job));
        Ok::<(), ()>(())
    });
    added.expect("the jobs change");
}

async fn view(stage: &Stage) -> LedgerView {
    LedgerView::of(stage.ledger.read().await.unwrap())
}

/// Waits until the ledger fits. Returns what `find` returns.
async fn when<T>(stage: &Stage, what: &str, find: impl Fn(&LedgerView) -> Option<T>) -> T {
    let env = stage.quorum.env();
    let deadline = env.now() + 15 * SECOND;
    loop {
        let view = view(stage).await;
        if let Some(found) = find(&view) {
            return found;
        }
        assert!(env.now() < deadline, "{what}: {view:?}");
        env.sleep(PERIOD / 5).await;
    }
}

/// Waits until the ledger has the record of an open run for which `fits` returns true. Returns the key of the
/// run, and the record.
async fn open_record(stage: &Stage, fits: impl Fn(&OpenRun) -> bool) -> (Arc<str>, OpenRun) {
    let find = |view: &LedgerView| {
        view.records.iter().find_map(|(key, value)| match RunRecord::parse(value) {
            Ok(RunRecord::Open(open)) if fits(&open) => Some((Arc::clone(key), open)),
            _ => None,
        })
    };
    when(stage, "no such open record", find).await
}

/// Waits until a later leader than `before` has sealed the ledger.
async fn next_term_leads(stage: &Stage, before: FencingToken) {
    when(stage, "no later leader", |view| (view.sealed_by > before).then_some(())).await;
}

async fn only_entry(stage: &Stage) -> HistoryEntry {
    let history = stage.history_when("j", |all| !all.is_empty()).await;
    assert_eq!(history.len(), 1, "{history:#?}");
    history[0].clone()
}

fn soon(stage: &Stage) -> WallTime {
    stage.quorum.env().wall() + SECOND
}

#[tokio::test]
async fn a_leader_without_the_job_ends_a_run_that_no_worker_takes() {
    for comes_back in [false, true] {
        let stage = Stage::new();
        let job = due_at(soon(&stage), Delivery::AtLeastOnce, 5 * SECOND);
        let first = stage.candidate("a", std::slice::from_ref(&job));
        let (_, open) = open_record(&stage, |_| true).await;
        let term = view(&stage).await.sealed_by;
        first.crashes().await;
        let next = stage.candidate("b", &[other_job()]);
        if comes_back {
            next_term_leads(&stage, term).await;
            add(&next, job);
        }
        let entry = only_entry(&stage).await;
        assert_eq!((entry.end, &*entry.worker), (RunOutcome::SkippedMisfire, "b"), "{entry:?}");
        assert!(stage.quorum.wall() > open.take_by);
        next.resigns().await;
        assert_eq!(stage.history("j").await.len(), 1);
    }
}

#[tokio::test]
async fn the_next_leader_enters_the_reason_for_which_a_run_was_ended_unstarted() {
    let stage = Stage::new();
    let job = due_at(soon(&stage), Delivery::AtLeastOnce, 60 * SECOND);
    let first = stage.candidate("a", std::slice::from_ref(&job));
    let (key, open) = open_record(&stage, |_| true).await;
    first.crashes().await;
    // The test writes what a leader writes just before it crashes: a worker has the run, and the run is cancelled.
    let term = FencingToken::new(view(&stage).await.sealed_by.get() + 1);
    let (led, _, _task) = TermLedger::take_over(&stage.ledger, term, || true).await.unwrap();
    let to = AssignedTo { worker: "w".into(), session: "w/1".into(), term, seq: 1 };
    let cancel = Some("on request of me@here".into());
    let cancelled = OpenRun { cancel, to: Some(to.clone()), ..open };
    led.assign(&key, RunRecord::Open(cancelled).to_value(), to.id()).await.unwrap();
    drop((led, _task));
    let next = stage.candidate("b", &[job]);
    let entry = only_entry(&stage).await;
    let found = (entry.end, &*entry.reason, entry.attempts);
    assert_eq!(found, (RunOutcome::Cancelled, "on request of me@here", 0), "{entry:?}");
    next.resigns().await;
}

/// Tests rule L5 of `docs/design/ledger.md`.
#[tokio::test]
async fn a_run_that_a_majority_has_forgotten_is_lost_or_gets_another_generation() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let mut stage = Stage::new();
        let job = due_at(soon(&stage), delivery, 99 * SECOND);
        let first = stage.candidate("a", std::slice::from_ref(&job));
        let (key, open) = open_record(&stage, |_| true).await;
        first.crashes().await;
        stage.forget(2..5).await;
        let next = stage.candidate("b", std::slice::from_ref(&job));
        let worker = stage.worker("w", &[job]);
        match delivery {
            Delivery::AtMostOnce => {
                let entry = only_entry(&stage).await;
                assert_eq!(entry.end, RunOutcome::Lost, "{entry:?}");
            }
            Delivery::AtLeastOnce => {
                let (again, record) = open_record(&stage, |open| open.generation == 2).await;
                let max_ttl = stage.quorum.config().max_ttl;
                assert!(again == key && record.not_before > open.not_before + max_ttl, "{record:?}");
            }
        }
        worker.stops().await;
        next.resigns().await;
    }
}

#[tokio::test]
async fn only_a_leader_with_the_job_opens_another_generation() {
    let stage = Stage::new();
    let (begun, started) = (Begun::default(), CancellationToken::new());
    let notes = started.clone();
    let job = |handler: bool| {
        let job = executed_at(soon(&stage), &begun).misfire(Misfire::run_all(60 * SECOND));
        let notes = notes.clone();
        let hangs = move |_| {
            notes.cancel();
            std::future::pending::<Result<(), String>>()
        };
        if handler { Job::new("j", job.schedule, hangs).placement(Placement::AnyWorker) } else { job }
    };
    let first = stage.candidate("a", &[job(false)]);
    let worker = stage.worker("w", &[job(true)]);
    started.cancelled().await;
    let (_, open) = open_record(&stage, |open| open.to.is_some()).await;
    let session = open.to.clone().unwrap().session;
    let term = view(&stage).await.sealed_by;
    worker.crashes().await;
    first.crashes().await;
    let next = stage.candidate("b", &[other_job()]);
    next_term_leads(&stage, term).await;
    let look = || async {
        let names = [Arc::clone(&session)];
        Sessions::look(&stage.quorum, "g", &names).await.into_iter().any(|(_, seen)| seen == Seen::Free)
    };
    let env = stage.quorum.env();
    while !look().await {
        env.sleep(PERIOD).await;
    }
    // Meanwhile the leader notices the end of the session, and looks for the end of the run.
    env.sleep(3 * SECOND).await;
    let (_, still) = open_record(&stage, |_| true).await;
    assert_eq!(still.generation, 1, "its leader does not have the job");
    assert!(stage.history("j").await.is_empty());
    add(&next, job(false));
    let (_, again) = open_record(&stage, |open| open.generation == 2).await;
    assert!(again.take_by > open.take_by);
    next.resigns().await;
}

#[tokio::test]
async fn a_cancellation_and_a_removal_end_an_open_run_once() {
    let job = || Arc::<str>::from("j");
    for removed in [false, true] {
        let stage = Stage::new();
        let leader = stage.candidate("a", &[on_request()]);
        let trigger = stage.request(JobAction::trigger(job()));
        assert_eq!(accepted(&leader.ask(&trigger).await), 1);
        let (_, open) = open_record(&stage, |_| true).await;
        assert!(open.not_before.until(open.take_by) >= Duration::from_secs(3600));
        if removed {
            leader.registry.change(|jobs| jobs.remove("j").map(drop).ok_or(())).unwrap();
        } else {
            let cancel = stage.request(JobAction::Cancel { job: job(), tick: None });
            assert_eq!(accepted(&leader.ask(&cancel).await), 1);
        }
        let entry = only_entry(&stage).await;
        let found = (entry.end, entry.cause.request(), entry.attempts);
        assert_eq!(found, (RunOutcome::Cancelled, Some(trigger.id), 0));
        leader.resigns().await;
        let history = stage.history("j").await;
        assert_eq!(history.len(), 1, "{history:#?}");
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_its_worker_may_start_it_never_starts() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let tick = stage.quorum.env().wall() + 4 * SECOND;
    let job = executed_at(tick, &begun);
    let leader = stage.candidate("a", std::slice::from_ref(&job));
    let worker = stage.worker("w", &[job]);
    open_record(&stage, |open| open.to.is_some()).await;
    let cancel = stage.request(JobAction::Cancel { job: "j".into(), tick: Some(tick) });
    assert_eq!(accepted(&leader.ask(&cancel).await), 1);
    let entry = only_entry(&stage).await;
    assert_eq!((entry.end, entry.attempts), (RunOutcome::Cancelled, 0), "{entry:?}");
    stage.when("the tick is due", || stage.quorum.wall() > tick + SECOND).await;
    assert!(begun.lock().unwrap().is_empty());
    worker.stops().await;
    leader.resigns().await;
}

#[tokio::test]
async fn a_pause_ends_the_open_runs_of_ticks_and_no_requested_runs() {
    let stage = Stage::new();
    let ticks = due_at(soon(&stage), Delivery::AtLeastOnce, 60 * SECOND);
    let requested = Job { name: "requested".into(), ..on_request() };
    let leader = stage.candidate("a", &[ticks, requested]);
    let trigger = stage.request(JobAction::trigger("requested"));
    assert_eq!(accepted(&leader.ask(&trigger).await), 1);
    let (key, _) = open_record(&stage, |open| open.cause.request().is_some()).await;
    open_record(&stage, |open| open.cause.request().is_none()).await;
    for job in ["requested", "j"] {
        drop(leader.ask(&stage.request(JobAction::pause(job))).await);
    }
    assert_eq!(only_entry(&stage).await.end, RunOutcome::SkippedPaused);
    let (still, _) = open_record(&stage, |open| open.cause.request().is_some()).await;
    assert_eq!(still, key);
    assert!(stage.history("requested").await.is_empty());
    leader.resigns().await;
}

/// Tests that a run which a leader has assigned starts in time without a leader, and that the next leader closes it.
#[tokio::test]
async fn a_leader_that_steps_down_leaves_its_open_runs_to_their_workers() {
    let (stage, begun, busy) = (Stage::new(), Begun::default(), CancellationToken::new());
    let noted = busy.clone();
    // The leader waits for the end of this run, and meanwhile its tasks notice the step-down.
    let slow = Job::new("slow", Schedule::every(PERIOD).unwrap(), move |_| {
        noted.cancel();
        async {
            crate::env::Env::system().sleep(SECOND / 5).await;
            Ok::<(), String>(())
        }
    });
    let job = executed_at(stage.quorum.env().wall() + 4 * SECOND, &begun);
    let leader = stage.candidate("a", &[job.clone(), slow]);
    let worker = stage.worker("w", std::slice::from_ref(&job));
    let (key, open) = open_record(&stage, |open| open.to.is_some()).await;
    busy.cancelled().await;
    leader.resigns().await;
    let row = WorkRow::key(&open.to.as_ref().unwrap().session);
    let view = view(&stage).await;
    let row = view.records.get(&row).and_then(|row| WorkRow::parse(row));
    assert!(row.is_some_and(|row| row.runs.contains_key(&key)), "{view:?}");
    assert_eq!(view.records.get(&key), Some(&RunRecord::Open(open).to_value()));
    stage.when("the worker starts it", || begun.lock().unwrap().len() == 1).await;
    assert!(stage.history("j").await.is_empty(), "there is no leader");
    let next = stage.candidate("b", &[job]);
    let entry = only_entry(&stage).await;
    assert_eq!((entry.end, &*entry.worker), (RunOutcome::Done, "w"), "{entry:?}");
    worker.stops().await;
    next.resigns().await;
    assert_eq!(begun.lock().unwrap().len(), 1);
}

/// Tests that the crash of a worker before the start costs an at-most-once run about a second.
#[tokio::test]
async fn a_run_that_its_worker_does_not_start_goes_to_another_worker() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let tick = stage.quorum.env().wall() + 4 * SECOND;
    let job = executed_at(tick, &begun).delivery(Delivery::AtMostOnce).misfire(Misfire::run_all(60 * SECOND));
    let leader = stage.candidate("a", std::slice::from_ref(&job));
    let stuck = stage.worker("stuck", std::slice::from_ref(&job));
    let (key, first) = open_record(&stage, |open| open.to.is_some()).await;
    stuck.crashes().await;
    let other = stage.worker("other", &[job]);
    let entry = only_entry(&stage).await;
    assert_eq!((entry.end, &*entry.worker), (RunOutcome::Done, "other"), "{entry:?}");
    assert_eq!(begun.lock().unwrap().len(), 1);
    assert!(first.to.is_some_and(|to| &*to.worker == "stuck") && key.contains("/j/"));
    other.stops().await;
    leader.resigns().await;
}
