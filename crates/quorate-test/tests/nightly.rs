//! An example of a user's test: a nightly job over a change of the clocks and the crash of its leader.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use quorate::{Cron, Job, Scheduler, env::WallTime, scheduler::RunContext};
use quorate_test::{Cluster, Process, time};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The service under test. Its handler writes the day's report to a store.
#[derive(Clone, Default)]
struct Service {
    /// The reports of the store: the tick, the worker that wrote it and its fencing token.
    reports: Arc<Mutex<Vec<(WallTime, String, u64)>>>,
}

impl Service {
    async fn report(self, run: RunContext, worker: String) -> Result<(), quorate::LeaseLost> {
        let token = run.fencing_token()?.get();
        self.reports.lock().unwrap().push((run.scheduled_at(), worker, token));
        Ok(())
    }

    async fn run(self, process: Process) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let at_half_past_two = Cron::parse("30 2 * * *")?.zone("Europe/Berlin")?;
        let worker = process.quorum().config().worker.to_string();
        let job = Job::new("nightly", at_half_past_two, move |run| self.clone().report(run, worker.clone()));
        let scheduler = Scheduler::new(process.quorum(), "reports").job(job);
        scheduler.run().until(process.stopped()).await?;
        Ok(())
    }
}

/// Three replicas from an hour before the tick until two hours after it. Their leader is killed ten seconds
/// before the tick. Returns the reports in the store, and the histories as text.
async fn night(seed: u64, tick: WallTime) -> (Vec<(WallTime, String, u64)>, String) {
    let hour = Duration::from_secs(3600);
    let cluster = Cluster::builder().seed(seed).starts_at(tick - hour).start();
    let service = Service::default();
    for name in ["a", "b", "c"] {
        let service = service.clone();
        cluster.worker(name).run(move |process| service.clone().run(process));
    }
    cluster.advance_to(tick - Duration::from_secs(10)).await;
    let leader = cluster.leader("reports").await.expect("one of three workers leads");
    cluster.worker(&leader).kill();
    cluster.advance(2 * hour).await;

    let (runs, terms) = (cluster.runs("reports", "nightly").await, cluster.terms("reports").await);
    runs.assert_done(&[tick]);
    runs.assert_all_done();
    assert_eq!(terms.len(), 2, "{terms}");
    terms.assert_one_at_a_time();
    assert_ne!(terms.leaders()[1], leader);
    let reports = service.reports.lock().unwrap().clone();
    let written = [(tick, terms.leaders()[1].to_owned(), terms.tokens()[1])];
    assert_eq!(reports, written, "the new leader has written it, under its own token");
    (reports, format!("{runs}\n{terms}"))
}

#[tokio::test(start_paused = true)]
async fn the_night_without_half_past_two_has_one_report_although_its_leader_dies() {
    night(0, time("2026-03-29T03:00[Europe/Berlin]")).await;
}

#[tokio::test(start_paused = true)]
async fn the_night_with_two_half_past_twos_has_one_report_although_its_leader_dies() {
    night(0, time("2026-10-25T02:30:00+02:00[Europe/Berlin]")).await;
}

/// The same seed gives the same history, to the microsecond. `QUORATE_TEST_RUNS=1000` compares a thousand
/// runs.
#[test]
fn a_night_is_alike_in_every_run() {
    let runs = std::env::var("QUORATE_TEST_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(5);
    let run = |seed| quorate_test::run(night(seed, time("2026-03-29T03:00[Europe/Berlin]")));
    let first = run(7);
    assert!((1..runs).all(|_| run(7) == first));
    assert!((8..28).any(|seed| run(seed) != first), "another seed may elect another worker");
}
