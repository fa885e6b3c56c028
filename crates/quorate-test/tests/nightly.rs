//! An example of a user's test: a nightly job over a change of the clocks and the crash of its leader.

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
        self.reports.lock().unwrap().push((run.at(), worker, token));
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

/// Three nights with a change of the clocks in the second one. The leader is killed ten seconds before that tick.
async fn nights(
    seed: u64,
    noon_before: &str,
    changed: &str,
) -> (Service, Vec<(WallTime, String, u64)>, String) {
    let cluster = Cluster::builder().seed(seed).starts_at(time(noon_before)).start();
    let service = Service::default();
    for name in ["a", "b", "c"] {
        let service = service.clone();
        cluster.worker(name).run(move |process| service.clone().run(process));
    }
    cluster.advance_to(time(changed) - Duration::from_secs(10)).await;
    let leader = cluster.leader("reports").await.expect("one of three workers leads");
    cluster.worker(&leader).kill();
    cluster.advance(Duration::from_secs(36 * 3600)).await;

    let (runs, terms) = (cluster.runs("reports", "nightly").await, cluster.terms("reports").await);
    runs.assert_all_done();
    runs.assert_none_twice();
    assert_eq!(terms.len(), 2, "{terms}");
    terms.assert_one_at_a_time();
    assert_ne!(terms.leaders()[1], leader);
    let reports = service.reports.lock().unwrap().clone();
    (service, reports, format!("{runs}\n{terms}"))
}

#[tokio::test(start_paused = true)]
async fn the_night_without_half_past_two_has_one_report_although_its_leader_dies() {
    let noon = "2026-03-27T12:00[Europe/Berlin]";
    let (_, reports, _) = nights(0, noon, "2026-03-29T03:00[Europe/Berlin]").await;
    let ticks: Vec<WallTime> = reports.iter().map(|(tick, ..)| *tick).collect();
    let expected = [
        "2026-03-28T02:30[Europe/Berlin]",
        "2026-03-29T03:00[Europe/Berlin]",
        "2026-03-30T02:30[Europe/Berlin]",
    ];
    assert_eq!(ticks, expected.map(time));
    assert!(reports[0].2 < reports[1].2 && reports[1].2 == reports[2].2, "one token for each term");
}

#[tokio::test(start_paused = true)]
async fn the_night_with_two_half_past_twos_has_one_report() {
    let noon = "2026-10-23T12:00[Europe/Berlin]";
    let (_, reports, _) = nights(0, noon, "2026-10-25T00:30:00Z").await;
    let ticks: Vec<WallTime> = reports.iter().map(|(tick, ..)| *tick).collect();
    let expected = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(ticks, expected.map(time));
}

/// The same seed gives the same history, to the microsecond; `QUORATE_TEST_RUNS=1000` runs it a thousand times.
#[test]
fn a_night_is_alike_in_every_run() {
    let runs = std::env::var("QUORATE_TEST_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(5);
    let night = |seed| {
        let noon = "2026-03-27T12:00[Europe/Berlin]";
        let (_, reports, history) = quorate_test::run(nights(seed, noon, "2026-03-29T03:00[Europe/Berlin]"));
        format!("{reports:?}\n{history}")
    };
    let (began, first) = (std::time::Instant::now(), night(7));
    eprintln!("one run took {:?}", began.elapsed());
    for _ in 1..runs {
        assert_eq!(night(7), first);
    }
    eprintln!("{runs} runs took {:?}", began.elapsed());
}
