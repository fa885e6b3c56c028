//! Checks how long the nodes keep the data of a job after its last worker has ended. The leaders use memory
//! nodes, on clocks that the test moves forward.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::{
    election::Election,
    env::{Env, ScopedTask},
    node::MemoryNode,
    quorum::{Quorum, QuorumConfig},
    scheduler::{Job, Jobs, JobsError, Placement, Schedule, Scheduler, SchedulerHandle},
};
use quorate_testkit::differential::ShiftedWorld;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The time for which the nodes keep the data of a job after its last worker has ended.
const RETENTION: Duration = Duration::from_secs(8 * 3600);
/// The longest wait for an event that must happen, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// A TTL that is much longer than a step of the clocks. A leader therefore keeps its term while the test
/// moves the clocks.
const TTL: Duration = Duration::from_secs(20 * 3600);

struct Cluster {
    world: Arc<ShiftedWorld>,
    nodes: Vec<MemoryNode>,
    looker: Quorum,
}

struct Worker {
    handle: SchedulerHandle,
    quorum: Quorum,
    stop: CancellationToken,
    run: ScopedTask<()>,
}

fn often() -> Schedule {
    Schedule::every(SECOND / 5).expect("a period")
}

fn job(name: &str) -> Job {
    Job::new(name, often(), |_| async { Ok::<(), String>(()) })
}

impl Cluster {
    fn new() -> Self {
        let world = Arc::new(ShiftedWorld::default());
        let nodes: Vec<_> =
            (0..3).map(|number| MemoryNode::with_world(&format!("m{number}"), world.clone())).collect();
        let looker = quorum("looker", &world, &nodes);
        Self { world, nodes, looker }
    }

    fn worker(&self, name: &str, may_lead: bool, jobs: Vec<Job>) -> Worker {
        let quorum = quorum(name, &self.world, &self.nodes);
        let election = Election::new(&quorum, "g").eligible_while(move || may_lead);
        let scheduler = jobs.into_iter().fold(Scheduler::on(&election).ttl(TTL), Scheduler::job);
        let (handle, stop) = (scheduler.handle(), CancellationToken::new());
        let until = scheduler.run().until(stop.clone().cancelled_owned());
        let run = quorum.env().spawn_scoped(async move { until.await.expect("a sound scheduler") });
        Worker { handle, quorum, stop, run }
    }

    fn jobs(&self) -> Jobs {
        Jobs::new(&self.looker, "g").expect("a name")
    }

    async fn has_history(&self, job: &str) -> bool {
        match self.jobs().history(job, 10_000).await {
            Ok(entries) => !entries.is_empty(),
            Err(JobsError::UnknownJob { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn is_known(&self, job: &str) -> bool {
        match self.jobs().check_exists(job).await {
            Ok(()) => true,
            Err(JobsError::UnknownJob { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let env = Env::system();
        let give_up = env.now() + PATIENCE;
        while !holds().await {
            assert!(env.now() < give_up, "not so: {what}");
            env.sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ran(&self, job: &str) {
        self.until(&format!("{job} has run"), async || self.has_history(job).await).await;
    }

    /// Moves the clocks forward in steps. After each step, every task has time to run.
    async fn pass(&self, time: Duration) {
        let step = time / 16;
        for _ in 0..16 {
            self.world.pass(step);
            Env::system().sleep(Duration::from_millis(120)).await;
        }
    }
}

impl Worker {
    async fn stop(self) {
        self.stop.cancel();
        self.run.await.expect("no panic");
        self.quorum.close().await;
    }
}

fn quorum(worker: &str, world: &Arc<ShiftedWorld>, nodes: &[MemoryNode]) -> Quorum {
    let setup = QuorumConfig {
        worker: worker.into(),
        // While a worker waits for a reply, a step of the clocks looks like a slow node. The timeout is
        // therefore long.
        node_timeout: Duration::from_secs(1),
        max_ttl: Duration::from_secs(24 * 3600),
        ledger_retention: RETENTION,
        trust_new_nodes: true,
        ..QuorumConfig::default()
    };
    let builder = Quorum::builder().config(setup).env(Env::new(world.clone()));
    builder.nodes(nodes.iter().cloned()).build().expect("a sound setup")
}

#[tokio::test]
async fn the_history_of_a_removed_job_stays_for_the_retention_and_then_goes() {
    let cluster = Cluster::new();
    let worker = cluster.worker("a", true, vec![job("stays"), job("goes")]);
    cluster.ran("goes").await;
    assert!(worker.handle.remove("goes"));
    cluster
        .until("its row goes", async || {
            cluster.world.pass(SECOND * 20);
            !cluster.is_known("goes").await
        })
        .await;
    cluster.pass(RETENTION / 2).await;
    assert!(cluster.has_history("goes").await, "one can still ask why its last runs ended");
    cluster.pass(RETENTION).await;
    cluster.until("its history goes", async || !cluster.has_history("goes").await).await;
    assert!(cluster.has_history("stays").await && cluster.is_known("stays").await);
    worker.stop().await;
}

#[tokio::test]
async fn the_history_goes_though_the_leader_that_removed_the_job_is_gone() {
    let cluster = Cluster::new();
    let (first, second) = (
        cluster.worker("a", true, vec![job("j"), job("goes")]),
        cluster.worker("b", true, vec![job("j"), job("goes")]),
    );
    cluster.ran("goes").await;
    for worker in [&first, &second] {
        assert!(worker.handle.remove("goes"));
    }
    first.stop().await;
    cluster.pass(RETENTION * 2).await;
    cluster.until("its history goes", async || !cluster.has_history("goes").await).await;
    assert!(cluster.has_history("j").await);
    second.stop().await;
}

#[tokio::test]
async fn a_job_removed_without_a_leader_ends_as_well() {
    let cluster = Cluster::new();
    let before =
        cluster.worker("a", true, vec![job("j"), job("goes"), job("spread").placement(Placement::AnyWorker)]);
    cluster.ran("goes").await;
    cluster.ran("spread").await;
    before.stop().await;
    // The worker is started again with another configuration, which does not have the jobs `goes` and `spread`.
    let after = cluster.worker("a", true, vec![job("j")]);
    cluster.pass(RETENTION / 2).await;
    for job in ["goes", "spread"] {
        assert!(
            cluster.is_known(job).await && cluster.has_history(job).await,
            "{job}: it may be another version's"
        );
    }
    for job in ["goes", "spread"] {
        cluster
            .until("it ends", async || {
                cluster.world.pass(HOUR / 4);
                !cluster.is_known(job).await && !cluster.has_history(job).await
            })
            .await;
    }
    assert!(cluster.is_known("j").await);
    after.stop().await;
}

#[tokio::test]
async fn a_job_known_to_one_worker_ends_no_sooner_than_that_worker() {
    let cluster = Cluster::new();
    let old = cluster.worker("old", true, vec![job("j"), job("old's")]);
    cluster.ran("old's").await;
    cluster.jobs().pause("old's").await.expect("a leader");
    old.stop().await;
    // One worker with the old configuration still runs, but does not lead.
    let left = cluster.worker("left", false, vec![job("j"), job("old's")]);
    let new = cluster.worker("new", true, vec![job("j")]);
    cluster.pass(RETENTION * 3).await;
    assert!(cluster.has_history("old's").await, "its history is kept");
    let status = cluster.jobs().show("old's").await.expect("it is known");
    assert!(status.is_paused(), "and that it is paused");
    left.stop().await;
    cluster
        .until("it ends", async || {
            cluster.world.pass(HOUR / 4);
            !cluster.is_known("old's").await && !cluster.has_history("old's").await
        })
        .await;
    new.stop().await;
}

#[tokio::test]
async fn a_job_that_comes_back_in_time_goes_on_with_its_history() {
    let cluster = Cluster::new();
    let worker = cluster.worker("a", true, vec![job("j")]);
    cluster.ran("j").await;
    let first = cluster.jobs().history("j", 10_000).await.expect("a history").pop().expect("an entry");
    assert!(worker.handle.remove("j"));
    cluster.pass(RETENTION / 2).await;
    worker.handle.add(job("j")).expect("a sound job");
    cluster.pass(RETENTION * 2).await;
    let history = cluster.jobs().history("j", 10_000).await.expect("a history");
    // The entry of an earlier run may have been stored after the first read.
    assert!(history.len() > 1 && history.contains(&first), "{first:?} of {}", history.len());
    worker.stop().await;
}

#[tokio::test]
async fn a_group_without_workers_expires_by_the_nodes_clocks() {
    let cluster = Cluster::new();
    let worker = cluster.worker("a", true, vec![job("j"), job("spread").placement(Placement::AnyWorker)]);
    cluster.ran("j").await;
    cluster.ran("spread").await;
    worker.stop().await;
    cluster.world.pass(DAY);
    assert!(cluster.is_known("j").await, "an outage of a day loses nothing");
    cluster.world.pass(DAY * 2);
    assert!(
        !cluster.is_known("j").await
            && !cluster.has_history("j").await
            && !cluster.has_history("spread").await
    );
}
