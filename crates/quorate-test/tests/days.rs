//! Three virtual days of three replicas, which must take a few seconds.

use quorate::{Cron, Job, Scheduler};
use quorate_test::{Cluster, Process};
use std::{convert::Infallible, time::Duration};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn replica(process: Process) -> Result<(), String> {
    let nightly = Cron::parse("0 3 * * *").map_err(|error| error.to_string())?;
    let job = Job::new("nightly", nightly, |_run| async { Ok::<(), Infallible>(()) });
    let scheduler = Scheduler::new(process.quorum(), "reports").job(job);
    scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn three_replicas_run_a_nightly_job_for_three_days() {
    let cluster = Cluster::memory(5);
    for name in ["a", "b", "c"] {
        cluster.worker(name).run(replica);
    }
    cluster.advance(3 * DAY).await;
    let runs = cluster.runs("reports", "nightly").await;
    assert_eq!(runs.done().len(), 3, "{runs}");
    runs.assert_all_done();
    assert_eq!(cluster.terms("reports").await.len(), 1);
}
