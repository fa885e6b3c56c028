//! Tests of leaders whose nodes forget between two terms.

use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, RunContext, RunOutcome},
        leader::tests::stage::{Begun, PERIOD, SECOND, Stage, accepted, never, often},
        policy::{Delivery, Misfire},
        schedule::Schedule,
        store::{HistoryEntry, JobAction, RunKey},
    },
};
use std::sync::Arc;

fn job(name: &str, schedule: Schedule, delivery: Delivery, begun: &Begun) -> Job {
    let begun = Arc::clone(begun);
    let job = Job::new(name, schedule, move |tick: RunContext| {
        begun.lock().unwrap().push(tick.scheduled_at());
        async { Ok::<(), String>(()) }
    });
    job.delivery(delivery).misfire(Misfire::run_all(60 * SECOND))
}

/// Waits until each of the five nodes has a record under `key`.
async fn all_nodes_have(stage: &Stage, key: &Arc<str>) {
    let env = stage.quorum.env();
    let deadline = env.now() + 15 * SECOND;
    loop {
        let answers = stage.ledger.read().await.unwrap();
        let has = answers.iter().filter(|answer| answer.state.records.iter().any(|(other, _)| other == key));
        let have = has.count();
        if have == 5 {
            return;
        }
        assert!(env.now() < deadline, "{have} nodes have {key}");
        env.sleep(PERIOD / 5).await;
    }
}

#[tokio::test]
async fn a_minority_that_forgets_loses_nothing_and_is_copied_to() {
    let mut stage = Stage::new();
    let (begun, tick) = (Begun::default(), stage.quorum.env().wall() + 3 * SECOND);
    let once = job("once", Schedule::at(tick), Delivery::AtLeastOnce, &begun);
    let first = stage.candidate("a", std::slice::from_ref(&once));
    stage.history_when("once", |all| !all.is_empty()).await;
    first.crashes().await;
    stage.forget(0..2).await;
    let asked = job("asked", never(), Delivery::AtLeastOnce, &Begun::default());
    let next = stage.candidate("b", &[once, asked]);
    accepted(&next.ask(&stage.request(JobAction::trigger("asked"))).await);
    all_nodes_have(&stage, &RunKey::new("once", tick).key()).await;
    stage.history_when("asked", |all| !all.is_empty()).await;
    next.resigns().await;
    let history = stage.history("once").await;
    assert_eq!((history.len(), begun.lock().unwrap().len()), (1, 1), "{history:#?}");
    assert_eq!((history[0].end, &*history[0].worker), (RunOutcome::Done, "a"));
}

#[tokio::test]
async fn ticks_up_to_the_founding_are_lost_or_run_once_more_after_a_majority_has_forgotten() {
    let mut stage = Stage::new();
    let (most, least) = (Begun::default(), Begun::default());
    let jobs = |most: &Begun, least: &Begun| {
        [
            job("most", often(), Delivery::AtMostOnce, most),
            job("least", often(), Delivery::AtLeastOnce, least),
        ]
    };
    let first = stage.candidate("a", &jobs(&most, &least));
    let runs = |begun: &Begun| begun.lock().unwrap().len();
    stage.when("both run", || runs(&most) > 3 && runs(&least) > 3).await;
    first.crashes().await;
    let crashed = stage.quorum.wall();
    stage.forget(2..5).await;
    let (founded, again) = (stage.quorum.wall(), Begun::default());
    let between = |tick: WallTime| crashed < tick && tick < founded;
    let count = |all: &[HistoryEntry], end| {
        all.iter().filter(|entry| between(entry.tick) && entry.end == end && &*entry.worker == "b").count()
    };
    let next = stage.candidate("b", &jobs(&Begun::default(), &again));
    // The observer waits for more than a second between the two times.
    let lost = stage.history_when("most", |all| count(all, RunOutcome::Lost) >= 10).await;
    assert!(lost.iter().filter(|entry| between(entry.tick)).all(|entry| entry.end == RunOutcome::Lost));
    stage.history_when("least", |all| count(all, RunOutcome::Done) >= 10).await;
    next.resigns().await;
    let mut again: Vec<WallTime> =
        again.lock().unwrap().iter().copied().filter(|tick| between(*tick)).collect();
    let runs = again.len();
    again.sort_unstable();
    again.dedup();
    assert_eq!(again.len(), runs, "once");
}
