//! Tests of requests to jobs while the jobs run.

use crate::{
    ledger::{LedgerView, TermLedger},
    node::FencingToken,
    scheduler::{
        job::{Job, RunCause, RunContext, RunOutcome},
        leader::tests::stage::{Begun, PERIOD, SECOND, Stage, accepted, ends, never, often, refused},
        policy::{Delivery, Misfire},
        schedule::Schedule,
        store::RequestRow,
        store::{HistoryEntry, JobAction, JobRow},
    },
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Returns a job that is not due during the test, so that only requests run it. The handler appends the tick of
/// its run to `begun`, and returns after the time `takes`.
fn idle(begun: &Begun, takes: std::time::Duration) -> Job {
    let begun = Arc::clone(begun);
    Job::new("j", never(), move |tick: RunContext| {
        begun.lock().unwrap().push(tick.scheduled_at());
        async move {
            crate::env::Env::system().sleep(takes).await;
            Ok::<(), String>(())
        }
    })
}

fn named(job: &str) -> Arc<str> {
    job.into()
}

#[tokio::test]
async fn a_job_stays_paused_under_every_leader_until_it_is_resumed() {
    let stage = Stage::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let job = Job::new("j", often(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<(), String>(()) }
    });
    let jobs = [job.misfire(Misfire::run_all(60 * SECOND)).delivery(Delivery::AtMostOnce)];
    let first = stage.candidate("a", &jobs);
    stage.when("it runs", || runs.load(Ordering::Relaxed) > 2).await;
    let pause = stage.request(JobAction::pause(named("j")));
    accepted(&first.ask(&pause).await);
    let again = stage.request(JobAction::pause(named("j")));
    accepted(&first.ask(&again).await);
    first.resigns().await;
    let paused_at = runs.load(Ordering::Relaxed);
    let next = stage.candidate("b", &jobs);
    // The triggered run starts even during the pause. A scheduled tick is due during the `sleep` below. The
    // count of runs then shows that this tick was skipped.
    let trigger = stage.request(JobAction::trigger(named("j")));
    assert_eq!(accepted(&next.ask(&trigger).await), 1);
    let triggered =
        |all: &[HistoryEntry]| all.iter().any(|entry| entry.cause == RunCause::Triggered { id: trigger.id });
    stage.history_when("j", triggered).await;
    stage.quorum.env().sleep(PERIOD * 3).await;
    assert_eq!(runs.load(Ordering::Relaxed), paused_at + 1);
    accepted(&next.ask(&stage.request(JobAction::Resume { job: named("j") })).await);
    stage.when("it runs again", || runs.load(Ordering::Relaxed) > paused_at + 3).await;
    let history = stage.history_when("j", |all| !ends(all, RunOutcome::SkippedPaused).is_empty()).await;
    let spans = ends(&history, RunOutcome::SkippedPaused);
    let span = spans.iter().find(|entry| entry.until.is_some()).expect("one entry for the pause");
    assert!(span.reason.contains("me@here"), "{span:?}");
    next.resigns().await;
    // The ticks of the pause have an entry as skipped. So the last leader runs no catch-up for them.
    let last = stage.candidate("c", &jobs);
    let before = runs.load(Ordering::Relaxed);
    stage.when("it runs", || runs.load(Ordering::Relaxed) > before + 5).await;
    let until = span.until.expect("a span");
    let history = stage.history("j").await;
    let within = |entry: &&HistoryEntry| {
        entry.end == RunOutcome::Done && entry.tick >= span.tick && entry.tick <= until
    };
    let caught_up: Vec<_> =
        history.iter().filter(within).filter(|entry| entry.cause.request().is_none()).collect();
    assert!(caught_up.is_empty(), "{caught_up:#?}");
    last.resigns().await;
}

#[tokio::test]
async fn a_pause_ends_on_time_under_the_next_leader_too() {
    let stage = Stage::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let job = Job::new("j", often(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<(), String>(()) }
    });
    let jobs = [job.misfire(Misfire::run_all(60 * SECOND)).delivery(Delivery::AtMostOnce)];
    let pause = |until| JobAction::Pause {
        job: named("j"),
        reason: Some("the disk is full".into()),
        until: Some(until),
    };
    let first = stage.candidate("a", &jobs);
    stage.when("it runs", || runs.load(Ordering::Relaxed) > 2).await;
    let late = stage.request(pause(stage.quorum.wall()));
    let answer = first.ask(&late).await;
    let why = refused(&answer);
    assert!(why.contains("ended already"), "{why}");

    // The end of this pause comes during the term of the leader that accepted it.
    let before = runs.load(Ordering::Relaxed);
    let end = stage.quorum.wall() + PERIOD * 4;
    accepted(&first.ask(&stage.request(pause(end))).await);
    stage.when("it runs again", || runs.load(Ordering::Relaxed) > before + 3).await;
    assert!(stage.quorum.wall() > end);

    // The end of this pause comes during the term of the next leader.
    let end = stage.quorum.wall() + PERIOD * 10;
    accepted(&first.ask(&stage.request(pause(end))).await);
    first.resigns().await;
    let next = stage.candidate("b", &jobs);
    let before = runs.load(Ordering::Relaxed);
    stage.when("it runs under the next leader", || runs.load(Ordering::Relaxed) > before + 3).await;
    assert!(stage.quorum.wall() > end);
    let two = |all: &[HistoryEntry]| {
        ends(all, RunOutcome::SkippedPaused).iter().filter(|entry| entry.until.is_some()).count() > 1
    };
    let history = stage.history_when("j", two).await;
    for entry in ends(&history, RunOutcome::SkippedPaused) {
        assert!(entry.reason.contains("the disk is full") || entry.until.is_none(), "{entry:?}");
    }
    let ran_within = |entry: &&HistoryEntry| {
        let spans = ends(&history, RunOutcome::SkippedPaused);
        let is_within = spans.iter().any(|span| span.tick <= entry.tick && Some(entry.tick) <= span.until);
        entry.end == RunOutcome::Done && is_within
    };
    assert_eq!(history.iter().filter(ran_within).count(), 0, "{history:#?}");
    next.resigns().await;
}

#[tokio::test]
async fn a_request_is_carried_out_once_however_often_it_is_sent() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let jobs = [idle(&begun, PERIOD / 10)];
    let first = stage.candidate("a", &jobs);
    let trigger = stage.request(JobAction::trigger(named("j")));
    let answers = [first.ask(&trigger).await, first.ask(&trigger).await];
    assert_eq!(answers[0], answers[1]);
    stage.history_when("j", |all| all.len() == 1).await;
    assert_eq!(first.ask(&trigger).await, answers[0]);
    first.resigns().await;
    let next = stage.candidate("b", &jobs);
    assert_eq!(next.ask(&trigger).await, answers[0], "the next leader gives the same answer");
    let other = stage.request(JobAction::trigger(named("j")));
    accepted(&next.ask(&other).await);
    let history = stage.history_when("j", |all| all.len() > 1).await;
    assert_eq!(history.len(), 2, "{history:#?}");
    let causes = [trigger.id, other.id].map(|id| RunCause::Triggered { id });
    assert!(history.iter().all(|entry| causes.contains(&entry.cause) && entry.end == RunOutcome::Done));
    assert_eq!(*begun.lock().unwrap(), [trigger.at, other.at]);
    next.resigns().await;
}

#[tokio::test]
async fn an_impossible_request_is_refused_with_the_reason() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let second = Job::new("second", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
    let leader = stage.candidate("a", &[idle(&begun, PERIOD), second]);
    let why = async |ask: JobAction| refused(&leader.ask(&stage.request(ask)).await).to_owned();
    assert!(why(JobAction::trigger(named("k"))).await.contains("a knows no job called \"k\""));
    assert!(why(JobAction::pause(named("k"))).await.contains("knows no job"));
    assert!(why(JobAction::Cancel { job: named("j"), tick: None }).await.contains("nothing of j runs"));
    let until = stage.quorum.env().wall();
    let span =
        |seconds: u32| JobAction::Backfill { job: named("second"), from: until - SECOND * seconds, until };
    assert!(why(span(5_000)).await.contains("holds 5000 ticks; ask for at most 1000"));
    assert!(why(span(0)).await.contains("is empty"));
    let mut late = stage.request(JobAction::trigger(named("j")));
    late.at = late.at - 61 * SECOND;
    assert!(refused(&leader.ask(&late).await).contains("too late"));
    assert!(begun.lock().unwrap().is_empty());
    leader.resigns().await;
}

#[tokio::test]
async fn a_backfill_goes_on_under_the_next_leader_and_runs_no_tick_twice() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let (stage, begun) = (Stage::new(), Begun::default());
        // The nodes have just started. A node must be more than a second old to prove that an at-most-once run
        // was not started.
        stage.quorum.env().sleep(SECOND + PERIOD).await;
        // The job is scheduled so rarely that no scheduled tick is due during the test. The ticks of the
        // back-fill are in the past.
        let jobs = [idle(&begun, PERIOD / 2).delivery(delivery)];
        let span = 1_000_000 * SECOND;
        let ask = JobAction::Backfill {
            job: named("j"),
            from: stage.quorum.env().wall() - span * 12,
            until: stage.quorum.env().wall(),
        };
        let request = stage.request(ask);
        let first = stage.candidate("a", &jobs);
        assert_eq!(accepted(&first.ask(&request).await), 12);
        stage.when("some have run", || begun.lock().unwrap().len() >= 4).await;
        first.crashes().await;
        let next = stage.candidate("b", &jobs);
        let history = stage
            .history_when("j", |all| {
                let ticks: BTreeSet<_> = all.iter().map(|entry| entry.tick).collect();
                ticks.len() == 12
            })
            .await;
        assert!(history.iter().all(|entry| entry.cause == RunCause::Backfilled { id: request.id }));
        next.resigns().await;
        let begun = begun.lock().unwrap();
        let ticks: BTreeSet<_> = begun.iter().collect();
        match delivery {
            Delivery::AtMostOnce => {
                assert_eq!(begun.len(), ticks.len(), "no tick runs twice");
                let lost = ends(&history, RunOutcome::Lost).len();
                assert!(lost <= 1, "only the run that the crash interrupted: {history:#?}");
                assert!(ticks.len() + lost >= 12, "every tick has an end: {history:#?}");
            }
            Delivery::AtLeastOnce => {
                assert_eq!(ticks.len(), 12, "no tick is lost");
                assert!(begun.len() <= 13, "only the run that the crash interrupted runs twice");
                assert_eq!(ends(&history, RunOutcome::Done).len(), 12, "{history:#?}");
            }
        }
    }
}

#[tokio::test]
async fn a_cancellation_ends_the_active_run_and_drops_the_requested_ones() {
    let stage = Stage::new();
    let begun = Begun::default();
    let starts = Arc::clone(&begun);
    let job = Job::new("j", never(), move |tick: RunContext| {
        starts.lock().unwrap().push(tick.scheduled_at());
        async move {
            tick.cancellation_token().cancelled().await;
            Err::<(), _>("stopped")
        }
    });
    let leader = stage.candidate("a", &[job]);
    let now = stage.quorum.env().wall();
    let backfill = JobAction::Backfill { job: named("j"), from: now - 5 * 1_000_000 * SECOND, until: now };
    assert_eq!(accepted(&leader.ask(&stage.request(backfill)).await), 5);
    stage.when("the first runs", || !begun.lock().unwrap().is_empty()).await;
    let first = begun.lock().unwrap()[0];
    let cancel = |tick| JobAction::Cancel { job: named("j"), tick };
    assert_eq!(accepted(&leader.ask(&stage.request(cancel(Some(first)))).await), 1);
    stage.when("the second runs", || begun.lock().unwrap().len() == 2).await;
    assert_eq!(accepted(&leader.ask(&stage.request(cancel(None))).await), 4, "the second, and three to come");
    let history = stage.history_when("j", |all| all.len() == 3).await;
    assert!(history.iter().all(|entry| entry.end == RunOutcome::Cancelled), "{history:#?}");
    assert!(history[0].reason.contains("on request of me@here") && history[0].started.is_some());
    assert!(history[2].until.is_some() && history[2].started.is_none(), "{history:#?}");
    leader.resigns().await;
    let next = stage.candidate("b", &[idle(&begun, PERIOD)]);
    accepted(&next.ask(&stage.request(JobAction::trigger(named("j")))).await);
    stage.history_when("j", |all| all.len() == 4).await;
    assert_eq!(begun.lock().unwrap().len(), 3, "no cancelled run starts again");
    next.resigns().await;
}

#[tokio::test]
async fn the_requests_of_a_removed_job_are_reported_and_closed() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let leader = stage.candidate("a", &[idle(&begun, PERIOD * 10)]);
    let [runs, waits] = [(), ()].map(|()| stage.request(JobAction::trigger(named("j"))));
    accepted(&leader.ask(&runs).await);
    accepted(&leader.ask(&waits).await);
    stage.when("the first runs", || !begun.lock().unwrap().is_empty()).await;
    leader.registry.change(|jobs| jobs.remove("j").map(drop).ok_or(())).unwrap();
    let history = stage.history_when("j", |all| all.len() == 2).await;
    let end = |id| history.iter().find(|entry| entry.cause == RunCause::Triggered { id }).map(|e| e.end);
    assert_eq!(
        [end(runs.id), end(waits.id)],
        [Some(RunOutcome::Done), Some(RunOutcome::Cancelled)],
        "{history:#?}"
    );
    assert!(ends(&history, RunOutcome::Cancelled)[0].reason.contains("the job was removed"), "{history:#?}");
    leader.resigns().await;
    for id in [runs.id, waits.id] {
        let ledger = LedgerView::of(stage.ledger.read().await.unwrap());
        let row: RequestRow = serde_json::from_str(&ledger.records[&id.key()]).unwrap();
        assert!(row.is_closed(), "{row:?}");
    }
    assert_eq!(begun.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_pause_that_is_sent_again_after_a_resumption_has_no_effect() {
    let (stage, begun) = (Stage::new(), Begun::default());
    let jobs = [idle(&begun, PERIOD)];
    let first = stage.candidate("a", &jobs);
    let pause = stage.request(JobAction::pause(named("j")));
    let resume = stage.request(JobAction::Resume { job: named("j") });
    accepted(&first.ask(&pause).await);
    accepted(&first.ask(&resume).await);
    first.resigns().await;
    // The ledger has no answers to the requests, because the candidates of these tests have no inbox. So the
    // ledger is the same as if the first leader had crashed before it wrote its answers.
    let next = stage.candidate("b", &jobs);
    accepted(&next.ask(&pause).await);
    let ledger = LedgerView::of(stage.ledger.read().await.unwrap());
    let row = JobRow::parse(&ledger.records[&JobRow::key("j")]).unwrap();
    assert_eq!((row.paused, row.requests), (None, vec![pause.id, resume.id]));
    next.resigns().await;
}

#[tokio::test]
async fn a_superseded_leader_does_not_keep_the_lease_for_its_active_runs() {
    /// A value that sets its flag when it is dropped. The test thus sees that the owner of the value was
    /// dropped.
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (stage, begun, over) = (Stage::new(), Begun::default(), Arc::new(AtomicBool::new(false)));
    let (runs, ends) = (Arc::clone(&begun), Arc::clone(&over));
    let hangs = Job::new("hangs", never(), move |tick: RunContext| {
        runs.lock().unwrap().push(tick.scheduled_at());
        let dropped = Dropped(Arc::clone(&ends));
        async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), String>>().await
        }
    });
    let busy = Job::new("busy", often(), |_| async { Ok::<(), String>(()) });
    let leader = stage.candidate("a", &[hangs, busy]);
    accepted(&leader.ask(&stage.request(JobAction::trigger(named("hangs")))).await);
    stage.when("it runs", || !begun.lock().unwrap().is_empty()).await;
    let term = LedgerView::of(stage.ledger.read().await.unwrap()).sealed_by.get();
    let _later =
        TermLedger::take_over(&stage.ledger, FencingToken::new(term + 1_000), || true).await.unwrap();
    stage.when("the run is dropped", || over.load(Ordering::Relaxed)).await;
    leader.crashes().await;
}
