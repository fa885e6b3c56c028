//! Tests of a worker whose wall clock is set back or forward, before the worker leads and while it leads. No
//! tick may run twice, be lost, or run too early. The clocks of the nodes are right, and the boot clocks of the
//! workers do not step.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use futures_util::future::BoxFuture;
use quorate::{
    election::ElectionError,
    env::{BootTime, Env, ScopedTask, SystemWorld, WallTime, World},
    node::MemoryNode,
    quorum::{Quorum, SettingError},
    scheduler::{Delivery, Job, Misfire, Placement, Schedule, Scheduler, SchedulerRun},
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(100);
const HOUR: i64 = 3600;

/// The real environment, with a wall clock that a test can set.
#[derive(Debug, Default)]
struct Settable {
    micros: AtomicI64,
}

impl Settable {
    fn set(&self, seconds: i64) {
        self.micros.store(seconds * 1_000_000, Ordering::Relaxed);
    }
}

impl World for Settable {
    fn now(&self) -> BootTime {
        SystemWorld.now()
    }

    fn wall(&self) -> WallTime {
        let micros = SystemWorld.wall().as_micros();
        WallTime::from_micros(micros.saturating_add_signed(self.micros.load(Ordering::Relaxed)))
    }

    fn random(&self) -> u64 {
        SystemWorld.random()
    }

    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        SystemWorld.sleep_until(at)
    }

    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        SystemWorld.spawn(tasks, work);
    }
}

/// The starts of each tick. The key is the tick's time in microseconds. Each start has the worker's name, and
/// the time on the clock of the test's machine.
type Starts = Arc<Mutex<BTreeMap<u64, Vec<(&'static str, WallTime)>>>>;

struct Worker {
    name: &'static str,
    clock: Arc<Settable>,
    quorum: Quorum,
    starts: Starts,
}

impl Worker {
    fn new(name: &'static str, nodes: &[MemoryNode], starts: &Starts) -> Self {
        let clock = Arc::new(Settable::default());
        let builder = Quorum::builder().worker(name).nodes(nodes.iter().cloned()).trust_new_nodes(true);
        let quorum = builder.env(Env::new(clock.clone())).build().expect("a sound setup");
        Self { name, clock, quorum, starts: Arc::clone(starts) }
    }

    fn run(&self, delivery: Delivery, placement: Placement) -> SchedulerRun {
        let (name, starts) = (self.name, Arc::clone(&self.starts));
        let job = Job::new("j", Schedule::every(PERIOD).expect("a period"), move |tick| {
            let start = (name, SystemWorld.wall());
            starts.lock().expect("no panic").entry(tick.scheduled_at().as_micros()).or_default().push(start);
            async { Ok::<(), Infallible>(()) }
        });
        let job = job.misfire(Misfire::run_all(30 * SECOND)).delivery(delivery).placement(placement);
        Scheduler::new(&self.quorum, "g").ttl(SECOND).job(job).run()
    }

    fn started(&self) -> usize {
        let starts = self.starts.lock().expect("no panic");
        starts.values().flatten().filter(|(by, _)| *by == self.name).count()
    }

    /// Waits until this worker has started ten more ticks.
    async fn goes_on(&self, what: &str) {
        let (enough, deadline) = (self.started() + 10, self.quorum.env().now() + 60 * SECOND);
        while self.started() < enough {
            assert!(self.quorum.env().now() < deadline, "{} started {} {what}", self.name, self.started());
            self.quorum.env().sleep(PERIOD / 2).await;
        }
        let apart = self.quorum.wall().distance(SystemWorld.wall());
        assert!(apart < SECOND / 10, "the quorum's clock is {apart:?} off for {} {what}", self.name);
    }
}

/// A worker that leads or waits to become the leader, until it is cancelled.
struct Running {
    worker: Worker,
    stop: CancellationToken,
    run: ScopedTask<Result<(), ElectionError<SettingError>>>,
}

impl Running {
    fn start(worker: Worker, delivery: Delivery, placement: Placement) -> Self {
        let stop = CancellationToken::new();
        let until = worker.run(delivery, placement).until(stop.clone().cancelled_owned());
        let run = worker.quorum.env().spawn_scoped(until);
        Self { worker, stop, run }
    }

    async fn end(self) {
        self.stop.cancel();
        self.run.await.expect("no panic").expect("a shutdown is Ok");
        self.worker.quorum.close().await;
    }
}

async fn steps_lose_and_double_nothing(delivery: Delivery) {
    let nodes: Vec<_> = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect();
    let starts = Starts::default();
    let mut leads = Running::start(Worker::new("first", &nodes, &starts), delivery, Placement::Leader);
    leads.worker.goes_on("on a right clock").await;
    for (wrong, how) in [(HOUR, "an hour ahead"), (-HOUR, "two hours back"), (0, "set right")] {
        leads.worker.clock.set(wrong);
        leads.worker.goes_on(how).await;
    }
    // The clock of each of these workers is set while the worker waits to become the leader, and again while it
    // leads.
    for (name, wrong) in [("second", HOUR), ("third", -HOUR)] {
        let next = Running::start(Worker::new(name, &nodes, &starts), delivery, Placement::Leader);
        next.worker.quorum.ready(5 * SECOND).await.expect("a majority votes");
        next.worker.clock.set(wrong);
        std::mem::replace(&mut leads, next).end().await;
        leads.worker.goes_on("wrong since before it led").await;
        leads.worker.clock.set(-wrong);
        leads.worker.goes_on("wrong the other way, set while it led").await;
    }
    leads.end().await;

    each_once_and_none_early(&starts);
}

/// Tests jobs that are placed on any worker. If the clock of a worker is wrong by more than `max_clock_offset`,
/// the nodes grant no claim to that worker. Such a worker must not be able to take a claim from the other
/// worker either.
async fn clock_steps_harm_no_spread_tick(delivery: Delivery) {
    let nodes: Vec<_> = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect();
    let starts = Starts::default();
    let wrong = Running::start(Worker::new("wrong", &nodes, &starts), delivery, Placement::AnyWorker);
    let right = Running::start(Worker::new("right", &nodes, &starts), delivery, Placement::AnyWorker);
    right.worker.goes_on("beside a right clock").await;
    for (by, how) in [(HOUR, "beside one an hour ahead"), (-HOUR, "beside one an hour back")] {
        wrong.worker.clock.set(by);
        right.worker.goes_on(how).await;
    }
    wrong.worker.clock.set(0);
    wrong.worker.goes_on("set right").await;
    wrong.end().await;
    right.end().await;
    each_once_and_none_early(&starts);
}

#[track_caller]
fn each_once_and_none_early(starts: &Starts) {
    let starts = starts.lock().expect("no panic");
    let twice: Vec<_> = starts.iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let times: Vec<u64> = starts.keys().copied().collect();
    let period = u64::try_from(PERIOD.as_micros()).expect("short");
    let lost: Vec<_> = times.windows(2).filter(|two| two[1] - two[0] != period).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let early = starts.iter().flat_map(|(at, by)| by.iter().filter(|(_, when)| when.as_micros() < *at));
    assert_eq!(early.count(), 0, "none before it is due");
}

#[tokio::test]
async fn at_most_once() {
    steps_lose_and_double_nothing(Delivery::AtMostOnce).await;
}

#[tokio::test]
async fn at_least_once() {
    steps_lose_and_double_nothing(Delivery::AtLeastOnce).await;
}

#[tokio::test]
async fn at_most_once_spread() {
    clock_steps_harm_no_spread_tick(Delivery::AtMostOnce).await;
}

#[tokio::test]
async fn at_least_once_spread() {
    clock_steps_harm_no_spread_tick(Delivery::AtLeastOnce).await;
}
