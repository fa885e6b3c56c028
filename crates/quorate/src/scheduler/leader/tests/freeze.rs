//! Tests of a freeze of the group.

use crate::{
    env::WallTime,
    scheduler::{
        control::{Jobs, Reason},
        job::{Job, RunOutcome},
        leader::tests::stage::{PERIOD, SECOND, Stage, accepted, ends, often, refused},
        policy::{Delivery, Misfire},
        store::{HistoryEntry, JobAction, JobResponse},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

fn counted(name: &str, runs: &Arc<AtomicUsize>) -> Job {
    let count = Arc::clone(runs);
    Job::new(name, often(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<(), String>(()) }
    })
    .misfire(Misfire::run_all(60 * SECOND))
    .delivery(Delivery::AtMostOnce)
}

fn freeze(until: WallTime) -> JobAction {
    JobAction::Freeze { reason: Some("a migration".into()), until }
}

/// Returns the runs that were executed within a span that was skipped.
fn ran_within(history: &[HistoryEntry]) -> Vec<&HistoryEntry> {
    let spans = ends(history, RunOutcome::SkippedFrozen);
    let is_within = |entry: &HistoryEntry| {
        spans.iter().any(|span| span.tick <= entry.tick && Some(entry.tick) <= span.until)
    };
    history.iter().filter(|entry| entry.end == RunOutcome::Done && is_within(entry)).collect()
}

#[tokio::test]
async fn a_freeze_stops_all_jobs_survives_its_leader_and_ends_on_time() {
    let stage = Stage::new();
    let status = Jobs::new(&stage.quorum, "g").unwrap();
    let [one, two] = [(), ()].map(|()| Arc::new(AtomicUsize::new(0)));
    let jobs = [counted("j", &one), counted("k", &two)];
    let total = || one.load(Ordering::Relaxed) + two.load(Ordering::Relaxed);
    let first = stage.candidate("a", &jobs);
    stage.when("both run", || one.load(Ordering::Relaxed) > 2 && two.load(Ordering::Relaxed) > 2).await;
    let late = first.ask(&stage.request(freeze(stage.quorum.wall()))).await;
    assert!(refused(&late).contains("ended already"), "{late:?}");

    let end = stage.quorum.wall() + PERIOD * 20;
    let request = stage.request(freeze(end));
    accepted(&first.ask(&request).await);
    let frozen_at = total();
    let statuses = status.list().await.unwrap();
    assert_eq!(statuses.len(), 2);
    for status in &statuses {
        assert!(status.frozen && status.is_paused(), "{status:?}");
        assert_eq!((status.paused_until, status.pause_reason.as_deref()), (Some(end), Some("a migration")));
        assert!(status.next.is_some_and(|next| next >= end));
    }
    assert_eq!(status.frozen().await.unwrap().and_then(|frozen| frozen.until), Some(end));
    first.crashes().await;
    let next = stage.candidate("b", &jobs);
    accepted(&next.ask(&request).await);
    assert!(stage.quorum.wall() < end, "the freeze has not ended yet");
    // A run that had begun before the freeze was accepted may have ended since.
    assert!(total() <= frozen_at + 2, "{} runs, {frozen_at} before", total());
    stage.when("both run again", || total() > frozen_at + 6).await;
    assert!(stage.quorum.wall() > end);
    assert_eq!(status.frozen().await.unwrap(), None);
    for job in ["j", "k"] {
        let spans = |all: &[HistoryEntry]| {
            ends(all, RunOutcome::SkippedFrozen).iter().any(|entry| entry.until.is_some())
        };
        let history = stage.history_when(job, spans).await;
        let skipped = ends(&history, RunOutcome::SkippedFrozen);
        assert!(skipped.iter().all(|entry| entry.reason.starts_with("the group was frozen")), "{skipped:#?}");
        assert!(skipped.iter().filter(|entry| entry.until.is_some()).count() == 1, "{skipped:#?}");
        assert!(ran_within(&history).is_empty(), "{history:#?}");
    }
    next.resigns().await;
}

#[tokio::test]
async fn an_unfrozen_group_runs_at_once_and_a_paused_job_stays_paused() {
    let stage = Stage::new();
    let status = Jobs::new(&stage.quorum, "g").unwrap();
    let [one, two] = [(), ()].map(|()| Arc::new(AtomicUsize::new(0)));
    let jobs = [counted("j", &one), counted("k", &two)];
    let leader = stage.candidate("a", &jobs);
    stage.when("both run", || one.load(Ordering::Relaxed) > 1 && two.load(Ordering::Relaxed) > 1).await;
    let not = leader.ask(&stage.request(JobAction::Unfreeze)).await;
    assert!(matches!(&not, JobResponse::Accepted { text, .. } if &**text == "was not frozen"), "{not:?}");
    let end = stage.quorum.wall() + 3600 * SECOND;
    accepted(&leader.ask(&stage.request(freeze(end))).await);
    accepted(&leader.ask(&stage.request(JobAction::pause("k"))).await);
    let resumed = leader.ask(&stage.request(JobAction::Resume { job: "j".into() })).await;
    assert!(matches!(&resumed, JobResponse::Accepted { text, .. } if text.contains("frozen")), "{resumed:?}");
    let trigger = stage.request(JobAction::trigger("j"));
    accepted(&leader.ask(&trigger).await);
    let requested = |all: &[HistoryEntry]| all.iter().any(|entry| entry.cause.request() == Some(trigger.id));
    stage.history_when("j", requested).await;
    let why = status.why("j", None).await.unwrap();
    assert_eq!(why.reason, Reason::Frozen, "{why:?}");
    let [ran, stopped] = [&one, &two].map(|runs| runs.load(Ordering::Relaxed));
    accepted(&leader.ask(&stage.request(JobAction::Unfreeze)).await);
    stage.when("it runs again", || one.load(Ordering::Relaxed) > ran + 2).await;
    assert_eq!(two.load(Ordering::Relaxed), stopped);
    let paused = status.show("k").await.unwrap();
    assert!(paused.is_paused() && !paused.frozen, "{paused:?}");
    leader.resigns().await;
}
