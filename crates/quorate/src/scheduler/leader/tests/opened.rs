//! Tests of how the leader ends runs that are open to workers.

use crate::{
    claim::{Claimed, Slots},
    env::WallTime,
    scheduler::{
        handle::SchedulerHandle,
        job::{Job, RunOutcome},
        leader::tests::stage::{PERIOD, SECOND, Stage, accepted, never},
        policy::{Delivery, Misfire, Placement},
        schedule::at,
        store::{HistoryEntry, JobAction, OpenRun, RunRecord, SlotRow},
    },
};
use std::{sync::Arc, time::Duration};

/// Returns a job that is placed on any worker and is due once. No worker takes the run unless a test does so.
fn due_at(tick: WallTime, delivery: Delivery) -> Job {
    let job = Job::new("j", at(tick), |_| async { Ok::<(), String>(()) });
    job.placement(Placement::AnyWorker).delivery(delivery).misfire(Misfire::Skip)
}

/// Returns a job that is placed on any worker and runs only on request.
fn on_request() -> Job {
    Job::new("j", never(), |_| async { Ok::<(), String>(()) }).placement(Placement::AnyWorker)
}

fn other_job() -> Job {
    Job::new("other", never(), |_| async { Ok::<(), String>(()) })
}

/// Waits until the ledger has the record of an open run for which `fits` returns true. Returns the key of the
/// run, and the record.
async fn open_record(stage: &Stage, fits: impl Fn(&OpenRun) -> bool) -> (Arc<str>, OpenRun) {
    let env = stage.quorum.env();
    let deadline = env.now() + 15 * SECOND;
    loop {
        let answers = stage.ledger.read().await.unwrap();
        let records = answers.iter().flat_map(|answer| &answer.state.records);
        let open = records.filter_map(|(key, record)| match RunRecord::parse(&record.value) {
            Ok(RunRecord::Open(open)) if fits(&open) => Some((Arc::clone(key), open)),
            _ => None,
        });
        if let Some(found) = open.last() {
            return found;
        }
        assert!(env.now() < deadline, "no such open record: {answers:?}");
        env.sleep(PERIOD / 5).await;
    }
}

/// Returns the highest term of a run's records.
async fn highest_term(stage: &Stage, key: &str) -> u64 {
    let answers = stage.ledger.read().await.unwrap();
    let records = answers.iter().flat_map(|answer| &answer.state.records);
    records.filter(|(other, _)| **other == *key).map(|(_, record)| record.term.get()).max().unwrap()
}

/// Waits until a term later than `before` has written the run's record.
async fn next_term_has(stage: &Stage, key: &str, before: u64) {
    let env = stage.quorum.env();
    let deadline = env.now() + 15 * SECOND;
    while highest_term(stage, key).await <= before {
        assert!(env.now() < deadline, "no later leader adopts the run");
        env.sleep(PERIOD / 10).await;
    }
}

async fn only_entry(stage: &Stage) -> HistoryEntry {
    let history = stage.history_when("j", |all| !all.is_empty()).await;
    assert_eq!(history.len(), 1, "{history:#?}");
    history[0].clone()
}

#[tokio::test]
async fn a_leader_without_the_job_ends_a_run_that_no_worker_takes() {
    for comes_back in [false, true] {
        let stage = Stage::new();
        let job = due_at(stage.quorum.env().wall() + 3 * SECOND, Delivery::AtLeastOnce);
        let first = stage.candidate("a", std::slice::from_ref(&job));
        let (key, open) = open_record(&stage, |_| true).await;
        let term = highest_term(&stage, &key).await;
        first.crashes().await;
        let next = stage.candidate("b", &[other_job()]);
        if comes_back {
            next_term_has(&stage, &key, term).await;
            SchedulerHandle { registry: next.registry.clone() }.add(job).unwrap();
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
    let job = due_at(stage.quorum.env().wall() + 3 * SECOND, Delivery::AtLeastOnce);
    let first = stage.candidate("a", std::slice::from_ref(&job));
    let (run, open) = open_record(&stage, |_| true).await;
    first.crashes().await;
    // The test takes the slot and ends the run there, as the first leader would do just before it crashes. So
    // the slot shows the end, but the run has no closed record.
    let slots = Slots::new(&stage.quorum, &"g".into(), SECOND, SECOND / 4);
    let Claimed::Free(claim) = slots.claim(&open.slot(&run)).await else { panic!("the slot is free") };
    assert!(claim.take().await);
    let void = SlotRow::Void { end: RunOutcome::Cancelled, why: "on request of me@here".into() };
    claim.complete(&void.to_text()).await.unwrap();
    let next = stage.candidate("b", &[job]);
    let entry = only_entry(&stage).await;
    let found = (entry.end, &*entry.reason, entry.attempts);
    assert_eq!(found, (RunOutcome::Cancelled, "on request of me@here", 0), "{entry:?}");
    next.resigns().await;
}

/// Tests rule R9c of `docs/design/scheduler.md`.
#[tokio::test]
async fn a_run_that_too_few_nodes_remember_is_lost_before_its_horizon() {
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        let mut stage = Stage::new();
        let job =
            due_at(stage.quorum.env().wall() + 3 * SECOND, delivery).misfire(Misfire::run_all(99 * SECOND));
        let first = stage.candidate("a", std::slice::from_ref(&job));
        let (key, open) = open_record(&stage, |_| true).await;
        first.crashes().await;
        stage.forget(2..5).await;
        let next = stage.candidate("b", &[job]);
        match delivery {
            Delivery::AtMostOnce => {
                let entry = only_entry(&stage).await;
                assert_eq!(entry.end, RunOutcome::Lost, "{entry:?}");
            }
            Delivery::AtLeastOnce => {
                let (again, record) = open_record(&stage, |open| open.generation == 2).await;
                assert!(again == key && record.at > open.at, "{record:?}");
            }
        }
        next.resigns().await;
    }
}

#[tokio::test]
async fn only_a_leader_with_the_job_opens_another_generation() {
    let stage = Stage::new();
    let job = due_at(stage.quorum.env().wall() + 3 * SECOND, Delivery::AtLeastOnce);
    let first = stage.candidate("a", std::slice::from_ref(&job));
    let (run, open) = open_record(&stage, |_| true).await;
    let term = highest_term(&stage, &run).await;
    // The test acts as a worker that takes the run and stops without a result.
    let slots = Slots::new(&stage.quorum, &"g".into(), SECOND, SECOND / 4);
    let slot = open.slot(&run);
    let Claimed::Free(claim) = slots.claim(&slot).await else { panic!("the slot is free") };
    assert!(claim.take().await);
    claim.let_run_out();
    drop(claim);
    first.crashes().await;
    let next = stage.candidate("b", &[other_job()]);
    next_term_has(&stage, &slot.run, term).await;
    // After this sleep, the worker's claim has expired, and the leader has inspected the slot again.
    stage.quorum.env().sleep(4 * SECOND).await;
    let (_, still) = open_record(&stage, |_| true).await;
    assert_eq!(still.generation, 1, "its leader does not have the job");
    assert!(stage.history("j").await.is_empty());
    SchedulerHandle { registry: next.registry.clone() }.add(job).unwrap();
    let (_, again) = open_record(&stage, |open| open.generation == 2).await;
    assert!(again.take_by > open.take_by);
    next.resigns().await;
}

#[tokio::test]
async fn a_cancellation_and_a_removal_end_an_open_run_once() {
    let job = || Arc::<str>::from("j");
    for removed in [false, true] {
        let stage = Stage::new();
        // The nodes have just started. A node counts for the slot of a run only if its memory began a second before.
        stage.quorum.env().sleep(SECOND + PERIOD).await;
        let leader = stage.candidate("a", &[on_request()]);
        let trigger = stage.request(JobAction::Trigger { job: job() });
        assert_eq!(accepted(&leader.ask(&trigger).await), 1);
        let (_, open) = open_record(&stage, |_| true).await;
        assert!(open.take_by.until(open.horizon) >= Duration::from_secs(3600));
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
async fn a_pause_ends_the_open_runs_of_ticks_and_no_requested_runs() {
    let stage = Stage::new();
    stage.quorum.env().sleep(SECOND + PERIOD).await;
    let ticks = due_at(stage.quorum.env().wall() + 3 * SECOND, Delivery::AtLeastOnce);
    let requested = Job { name: "requested".into(), ..on_request() };
    let leader = stage.candidate("a", &[ticks, requested]);
    let trigger = stage.request(JobAction::Trigger { job: "requested".into() });
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

/// Regression: a leader took the open runs off the list when it stepped down, so that no worker found them before the
/// next leader listed them.
#[tokio::test]
async fn a_leader_that_steps_down_leaves_its_open_runs_on_the_list() {
    let stage = Stage::new();
    let begun = tokio_util::sync::CancellationToken::new();
    let told = begun.clone();
    // The leader waits for the end of this run, and meanwhile its tasks notice the step-down.
    let slow = Job::new("slow", crate::scheduler::schedule::every(PERIOD).unwrap(), move |_| {
        told.cancel();
        async {
            crate::env::Env::system().sleep(SECOND / 5).await;
            Ok::<(), String>(())
        }
    });
    let job = due_at(stage.quorum.env().wall() + 5 * SECOND, Delivery::AtLeastOnce);
    let leader = stage.candidate("a", &[job, slow]);
    let (key, _) = open_record(&stage, |_| true).await;
    begun.cancelled().await;
    leader.resigns().await;
    let answers = stage.ledger.read().await.unwrap();
    let rows = answers.iter().flat_map(|answer| &answer.state.records).filter(|(row, _)| **row == *"open");
    let listing = rows.filter(|(_, record)| record.value.contains(&*key)).count();
    assert!(listing >= 3, "{listing} nodes list it");
}
