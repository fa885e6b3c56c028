use crate::{
    Node, Runs, Terms, Worker, build_hint,
    paused::require_paused_clock,
    setup::{Network, marked},
    sim::{AdjustableClock, Changes, NoHooks, Server, SimClock, Truth},
    state::MessageState,
};
use quorate::{
    Claims, Election, Quorum, QuorumConfig,
    env::WallTime,
    scheduler::{Jobs, JobsError},
};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The time at which a cluster begins, if [`ClusterBuilder::starts_at`] sets no other: 2026-01-01T00:00:00Z.
const BEGINNING: WallTime = WallTime::from_micros(1_767_225_600_000_000);
/// The time between two checks of a condition for which the test waits.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// The largest number of entries of a history that an assertion reads.
const ENTRIES_MAX: usize = 100_000;

/// Nodes in memory, and workers that use them. The test turns their clocks and injects faults.
///
/// ```
/// use quorate_test::Cluster;
/// use std::time::Duration;
///
/// # quorate_test::run(async {
/// let cluster = Cluster::memory(5);
/// let a = cluster.worker("a");
/// let lease = a.quorum().lock("report").acquire().await?;
/// a.pause(); // as SIGSTOP does
/// cluster.advance(Duration::from_secs(60)).await; // takes no time
/// a.resume();
/// assert!(lease.fencing_token().is_err());
/// # Ok::<(), quorate::AcquireError>(())
/// # }).unwrap();
/// ```
///
/// Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    truth: Truth,
    seed: u64,
    config: QuorumConfig,
    network: Arc<Network>,
    clock: Mutex<AdjustableClock>,
    workers: Mutex<Vec<Worker>>,
    /// The worker with which the test reads the nodes.
    reader: Mutex<Option<Worker>>,
}

/// The settings of a [`Cluster`], made by [`Cluster::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing starts before `start`"]
pub struct ClusterBuilder {
    nodes: usize,
    seed: u64,
    starts_at: WallTime,
    config: QuorumConfig,
}

impl ClusterBuilder {
    /// Sets the number of nodes. The default is three. A test in which two nodes fail needs five, and takes almost
    /// twice as long.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the seed of the workers' random numbers. Two runs of a test with one seed are alike. The default
    /// is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the time that all clocks show at first. The default is 2026-01-01T00:00:00Z.
    pub fn starts_at(mut self, at: WallTime) -> Self {
        self.starts_at = at;
        self
    }

    /// Sets the settings of all workers, except for their names.
    pub fn config(mut self, config: QuorumConfig) -> Self {
        self.config = config;
        self
    }

    /// Starts the nodes. They are trusted, as after `quorate nodes trust`.
    ///
    /// # Panics
    /// If there is no node, or if the tokio runtime is not one with a paused clock:
    /// `#[tokio::test(start_paused = true)]`, or [`quorate_test::run`](crate::run).
    pub fn start(self) -> Cluster {
        require_paused_clock();
        assert!(self.nodes > 0, "a cluster needs at least one node");
        let truth = Truth::begin();
        let changes = Changes::begin(truth);
        let clock = SimClock { start_nanos: self.starts_at.as_micros() * 1_000, rate_ppm: 0 };
        let start = |number| {
            let name = format!("node-{number}");
            Server::start(&name, truth, clock, self.config.durable, Arc::new(NoHooks), Some(changes.clone()))
        };
        let servers: Vec<_> = (0..self.nodes).map(start).collect();
        marked(&servers, &self.config, self.starts_at);
        Cluster(Arc::new(Inner {
            truth,
            seed: self.seed,
            config: self.config,
            network: Arc::new(Network { truth, changes, servers, first: clock }),
            clock: Mutex::new(AdjustableClock::new(clock)),
            workers: Mutex::default(),
            reader: Mutex::default(),
        }))
    }
}

impl Cluster {
    /// Starts a cluster of `nodes` nodes with the default settings.
    ///
    /// # Panics
    /// See [`ClusterBuilder::start`].
    pub fn memory(nodes: usize) -> Self {
        Self::builder().nodes(nodes).start()
    }

    /// Returns the settings of a new cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder { nodes: 3, seed: 0, starts_at: BEGINNING, config: QuorumConfig::default() }
    }

    /// Returns the worker of this name. The first call with a name starts the worker.
    ///
    /// # Panics
    /// If the name or the cluster's settings cannot be used.
    pub fn worker(&self, name: &str) -> Worker {
        let mut workers = lock(&self.0.workers);
        if let Some(worker) = workers.iter().find(|worker| worker.name() == name) {
            return worker.clone();
        }
        let worker = Worker::start(name, self.0.seed, &self.0.config, &self.0.network);
        workers.push(worker.clone());
        worker
    }

    /// Returns the node with this number, from 0 on.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node(&self, number: usize) -> Node {
        let servers = &self.0.network.servers;
        let Some(server) = servers.get(number) else {
            panic!("there is no node {number}: the cluster has {} nodes, from 0 on", servers.len())
        };
        Node::new(Arc::clone(server), Arc::clone(&self.0.network))
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> Vec<Node> {
        (0..self.0.network.servers.len()).map(|number| self.node(number)).collect()
    }

    // --- time -------------------------------------------------------------------------------------------

    /// Returns the time that a clock shows which nothing has changed but [`Cluster::set_clocks`].
    pub fn now(&self) -> WallTime {
        WallTime::from_micros(lock(&self.0.clock).shows(self.0.truth.now()) / 1_000)
    }

    /// Lets `time` pass. Everything that is due meanwhile happens, in its order.
    ///
    /// # Panics
    /// If a task of a worker has panicked, with its message.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the clock where it is.
    pub async fn advance(&self, time: Duration) {
        build_hint::passes(time);
        self.0.truth.pass(time).await;
        self.check_workers();
    }

    /// Lets time pass until [`Cluster::now`] is `at`. Returns at once if it is later already.
    ///
    /// # Panics
    /// If a task of a worker has panicked, with its message.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the clock where it is.
    pub async fn advance_to(&self, at: WallTime) {
        self.advance(self.now().until(at)).await;
    }

    /// Lets time pass until `condition` returns true.
    ///
    /// # Panics
    /// If `condition` is still false after `within`, or if a task of a worker has panicked.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the clock where it is.
    #[track_caller]
    pub fn until(&self, within: Duration, condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        let (cluster, mut condition) = (self.clone(), condition);
        async move {
            let limit = cluster.0.truth.now() + within;
            while !condition() {
                let over = cluster.0.truth.now() >= limit;
                assert!(!over, "the condition at {caller} was still false after {within:?}");
                cluster.advance(CHECK_EVERY).await;
            }
        }
    }

    /// Sets the wall clocks of all workers and nodes, as an operator would. No time passes. A node whose
    /// clock steps by more than [`QuorumConfig::clock_step_allowance`] does not vote for a while.
    pub fn set_clocks(&self, at: WallTime) {
        let step = millis_between(self.now(), at);
        lock(&self.0.clock).step(step);
        lock(&self.0.workers).iter().for_each(|worker| worker.set_clock(at));
        self.nodes().iter().for_each(|node| node.set_clock(at));
    }

    // --- network ----------------------------------------------------------------------------------------

    /// Cuts the network between these workers and these nodes, in both directions. Messages that were already
    /// sent wait at the cut.
    pub fn partition<'a>(
        &self,
        workers: impl IntoIterator<Item = &'a Worker>,
        nodes: impl IntoIterator<Item = usize>,
    ) {
        let nodes: Vec<usize> = nodes.into_iter().collect();
        for worker in workers {
            nodes.iter().for_each(|&node| worker.set_connected(node, false));
        }
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        for worker in &*lock(&self.0.workers) {
            (0..self.0.network.servers.len()).for_each(|node| worker.set_connected(node, true));
        }
    }

    // --- state ------------------------------------------------------------------------------------------

    /// Reads the history of a job of the group `group`: its runs, and the ticks that did not run. The history
    /// is empty if no scheduler with this job has led yet.
    ///
    /// # Panics
    /// If no majority of the nodes answers.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn runs(&self, group: &str, job: &str) -> Runs {
        let jobs = Jobs::new(&self.reader().quorum(), group);
        let read = match jobs {
            Ok(jobs) => jobs.history(job, ENTRIES_MAX).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(entries) => Runs::new(job, entries),
            Err(JobsError::UnknownJob { .. }) => Runs::new(job, Vec::new()),
            Err(error) => panic!("cannot read the runs of {job:?}: {error}"),
        }
    }

    /// Reads the history of the terms of the group `group`.
    ///
    /// # Panics
    /// If no majority of the nodes answers.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn terms(&self, group: &str) -> Terms {
        let observer = match Election::new(&self.reader().quorum(), group).observe() {
            Ok(observer) => observer,
            Err(error) => panic!("cannot read the terms of {group:?}: {error}"),
        };
        match observer.history(ENTRIES_MAX).await {
            Ok(terms) => Terms::new(group, terms),
            Err(error) => panic!("cannot read the terms of {group:?}: {error}"),
        }
    }

    /// Returns the name of the worker that leads the group `group`, or `None` if no worker leads.
    ///
    /// # Panics
    /// If no majority of the nodes answers.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn leader(&self, group: &str) -> Option<String> {
        let leader = match Election::new(&self.reader().quorum(), group).observe() {
            Ok(mut observer) => observer.leader().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match leader {
            Ok(leader) => leader.map(|leader| leader.worker.to_string()),
            Err(error) => panic!("cannot read the leader of {group:?}: {error}"),
        }
    }

    /// Reads the state of the message `id` of the set `set`.
    ///
    /// # Panics
    /// If no majority of the nodes answers.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn message(&self, set: &str, id: &str) -> MessageState {
        match Claims::new(&self.reader().quorum(), set).inspect(id).await {
            Ok(state) => MessageState::new(id, state),
            Err(error) => panic!("cannot read the state of the message {id:?}: {error}"),
        }
    }

    /// Returns a quorum of the test's own, for requests that the methods of the cluster do not cover. It is
    /// no worker: no fault stops it.
    pub fn quorum(&self) -> Quorum {
        self.reader().quorum()
    }

    fn reader(&self) -> Worker {
        let network = &self.0.network;
        let mut reader = lock(&self.0.reader);
        reader.get_or_insert_with(|| Worker::start("test", self.0.seed, &self.0.config, network)).clone()
    }

    #[track_caller]
    fn check_workers(&self) {
        for worker in &*lock(&self.0.workers) {
            let failures = worker.take_failures();
            assert!(failures.is_empty(), "the worker {}: {}", worker.name(), failures.join("; "));
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.0.network.servers.len();
        f.debug_struct("Cluster").field("now", &self.now()).field("nodes", &nodes).finish_non_exhaustive()
    }
}

/// Returns the whole milliseconds from `from` to `to`, negative if `to` is earlier.
pub(crate) fn millis_between(from: WallTime, to: WallTime) -> i64 {
    let millis = i64::try_from(from.distance(to).as_millis()).unwrap_or(i64::MAX);
    if to < from { -millis } else { millis }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::{
        Job, Scheduler,
        node::engine::QUEUE_MAX,
        scheduler::{Placement, Schedule},
    };
    use std::convert::Infallible;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Counts the requests of three replicas on five nodes in an idle hour. An extension of the leader's lease takes
    /// five requests, every 3.3 s: 5,400. The tests of the nodes are as many, and so are the attempts of the other
    /// candidates. Each session of a worker costs as much as the leader's lease, and twice as much to read the
    /// worker's row, every 5 s. Polls every 100 ms would be more than 200,000.
    #[tokio::test(start_paused = true)]
    async fn replicas_do_not_poll_while_nothing_changes() {
        for (placement, most) in [(Placement::Leader, 25_000), (Placement::AnyWorker, 70_000)] {
            let cluster = Cluster::memory(5);
            for name in ["a", "b", "c"] {
                cluster.worker(name).run(move |process| async move {
                    let schedule = Schedule::every(24 * HOUR).map_err(|error| error.to_string())?;
                    let job = Job::new("daily", schedule, |_run| async { Ok::<(), Infallible>(()) });
                    let scheduler = Scheduler::new(process.quorum(), "g").job(job.placement(placement));
                    scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string())
                });
            }
            cluster.advance(HOUR).await;
            let requests = || cluster.0.network.servers.iter().map(|server| server.requests()).sum::<u64>();
            let before = requests();
            cluster.advance(HOUR).await;
            let hourly = requests() - before;
            assert!((5_000..most).contains(&hourly), "{placement:?}: {hourly} requests in an hour");
        }
    }

    /// The cost of a crowd of fair waiters, and the order in which they were served.
    struct Crowd {
        /// The requests in ten seconds in which the lock was held.
        waiting: u64,
        /// The requests while all were served, and the time that this took.
        draining: u64,
        took: Duration,
        order: Vec<usize>,
    }

    const CROWD: usize = 200;

    /// Lets more fair waiters than a queue keeps wait for one lock, in so many workers. They begin at these intervals.
    async fn crowd(workers: usize, apart: Duration) -> Crowd {
        let cluster = Cluster::memory(3);
        let holder = cluster.worker("holder").quorum();
        let held = holder.lock("x").acquire().await.expect("free");
        let served = Arc::new(Mutex::new(Vec::new()));
        let crowd: Vec<_> = (0..workers).map(|number| cluster.worker(&format!("w{number}"))).collect();
        for number in 0..CROWD {
            let (worker, served) = (&crowd[number % workers], Arc::clone(&served));
            let quorum = worker.quorum();
            worker.spawn(async move {
                let lock = quorum.lock("x").fair(Duration::ZERO).wait(HOUR);
                let lease = lock.acquire().await.expect("its turn comes");
                served.lock().expect("no panic").push(number);
                quorum.env().sleep(Duration::from_millis(2)).await;
                lease.release().await.expect("all nodes answer");
            });
            cluster.advance(apart).await;
        }
        let requests = || cluster.0.network.servers.iter().map(|server| server.requests()).sum::<u64>();
        cluster.advance(Duration::from_secs(5)).await;
        let before = requests();
        cluster.advance(Duration::from_secs(10)).await;
        let waiting = requests() - before;
        held.release().await.expect("all nodes answer");
        let began = cluster.now();
        cluster.until(HOUR, || served.lock().expect("no panic").len() == CROWD).await;
        let order = served.lock().expect("no panic").clone();
        Crowd { waiting, draining: requests() - before - waiting, took: began.until(cluster.now()), order }
    }

    /// Tests that waiters far behind renew their entries and attempt seldom, that a release makes only those attempt whose
    /// turn is near, and that it wakes the one of a worker's waiters whose turn comes first.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_fair_waiters_asks_seldom_and_is_served_in_order() {
        for (workers, apart) in [(CROWD, 1), (8, 1), (8, 0), (1, 0)] {
            let found = crowd(workers, Duration::from_millis(apart)).await;
            let Crowd { waiting, draining, took, order } = found;
            let of = format!("{workers} workers, {apart} ms apart");
            assert!(waiting < 30_000, "{of}: {waiting} requests in ten seconds of waiting");
            assert!(draining < 30 * CROWD as u64, "{of}: {draining} requests in {CROWD} turns");
            assert!(took < Duration::from_secs(2), "{of}: the lock was free for long: {took:?}");
            assert!(apart == 0 || order[..QUEUE_MAX].is_sorted(), "{of}: {order:?}");
        }
    }
}
