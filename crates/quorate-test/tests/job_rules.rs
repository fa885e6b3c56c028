//! The rules that say on which days, where, how many at once and after which other job the runs of a job start.

use quorate::{
    Cron, Job, Scheduler,
    scheduler::{AlertKind, Jobs, Reason, RunOutcome, Schedule, every},
};
use quorate_test::{Cluster, time};
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Runs these jobs on the workers `names`.
fn run(cluster: &Cluster, names: &[&str], jobs: impl Fn() -> Vec<Job> + Clone + Send + Sync + 'static) {
    for name in names {
        let jobs = jobs.clone();
        cluster.worker(name).run(move |process| {
            let scheduler = jobs().into_iter().fold(Scheduler::new(process.quorum(), "g"), Scheduler::job);
            async move { scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string()) }
        });
    }
}

async fn done(_run: quorate::scheduler::RunContext) -> Result<(), Infallible> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_excepted_day_has_no_run_also_across_a_change_of_the_leader() {
    let cluster = Cluster::builder().nodes(3).starts_at(time("2027-12-23T20:00:00Z")).start();
    run(&cluster, &["a", "b"], || {
        let daily: Schedule = Cron::parse("30 0 * * *").unwrap().zone("Europe/Kyiv").unwrap().into();
        let bounded = daily.except(["2027-12-25", "2027-12-26"]).unwrap().until_day("2027-12-27").unwrap();
        vec![Job::new("daily", bounded, done)]
    });
    cluster.advance(DAY / 8).await;
    let leader = cluster.leader("g").await.unwrap();
    cluster.worker(&leader).kill();
    cluster.advance(5 * DAY).await;
    let ticks = [time("2027-12-23T22:30:00Z"), time("2027-12-26T22:30:00Z")];
    assert_eq!(cluster.runs("g", "daily").await.done(), ticks);
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    let why = jobs.why("daily", Some(time("2027-12-24T22:30:00Z"))).await.unwrap();
    assert_eq!(why.reason, Reason::Schedule, "{why:#?}");
    assert!(why.text.ends_with("2027-12-25 is one of the schedule's excepted days"), "{why:#?}");
    let why = jobs.why("daily", Some(time("2027-12-27T22:30:00Z"))).await.unwrap();
    assert!(why.text.contains("after the schedule's last day, until = 2027-12-27"), "{why:#?}");
    let status = jobs.show("daily").await.unwrap();
    assert!(status.next.is_none() && status.schedule.contains("not on 2027-12-25"), "{status:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_paused_after_failures_in_a_row_and_counts_again_after_it_is_resumed() {
    let cluster = Cluster::memory(3);
    let (alerts, fails) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let (reported, failing) = (Arc::clone(&alerts), Arc::clone(&fails));
    run(&cluster, &["a", "b"], move || {
        let (reported, failing) = (Arc::clone(&reported), Arc::clone(&failing));
        let handler = move |_| {
            let fails = failing.load(Ordering::Relaxed);
            async move { if fails { Err("no such table") } else { Ok(()) } }
        };
        let job = Job::new("load", every(60 * SECOND).unwrap(), handler).pause_after_failures(3);
        vec![job.on_alert(move |alert| {
            reported.lock().unwrap().push(alert.kind);
            async {}
        })]
    });
    let jobs = Jobs::new(&cluster.quorum(), "g").unwrap();
    cluster.advance(150 * SECOND).await;
    // The next leader goes on counting.
    let leader = cluster.leader("g").await.unwrap();
    cluster.worker(&leader).kill();
    cluster.advance(600 * SECOND).await;
    let failed = |runs: &quorate_test::Runs| {
        runs.entries().iter().filter(|entry| entry.end == RunOutcome::Failed).count()
    };
    let runs = cluster.runs("g", "load").await;
    assert_eq!(failed(&runs), 3, "{runs}");
    let why = jobs.why("load", None).await.unwrap();
    assert_eq!(why.reason, Reason::Paused, "{why:#?}");
    assert!(why.text.contains("3 failed runs in a row; the last: no such table"), "{why:#?}");
    assert_eq!(*alerts.lock().unwrap(), [AlertKind::Failed, AlertKind::Paused]);
    let audit = jobs.audit(9).await.unwrap();
    assert!(audit.len() == 1 && audit[0].by.starts_with("the leader "), "{audit:#?}");

    jobs.resume("load").await.unwrap();
    cluster.advance(130 * SECOND).await;
    assert_eq!(jobs.why("load", None).await.unwrap().reason, Reason::Ran, "two more failures do not suffice");
    cluster.worker(&leader).restart();
    cluster.advance(60 * SECOND).await;
    assert_eq!(jobs.why("load", None).await.unwrap().reason, Reason::Paused, "the third one does");
    fails.store(false, Ordering::Relaxed);
    jobs.resume("load").await.unwrap();
    cluster.advance(600 * SECOND).await;
    let runs = cluster.runs("g", "load").await;
    assert!(failed(&runs) == 6 && runs.done().len() >= 9, "{runs}");
    let kinds = alerts.lock().unwrap().clone();
    assert_eq!(kinds, [AlertKind::Failed, AlertKind::Paused, AlertKind::Paused, AlertKind::Recovered]);
}
