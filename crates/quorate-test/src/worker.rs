use crate::{
    cluster::{lock, millis_between},
    setup::Network,
    sim::{
        Directions, Host, Link, Machine, NAP, NetworkConditions, SeedRng, SimClock, SimNode, SimWorld, Trace,
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use quorate::{Quorum, QuorumConfig, env::Env, env::WallTime};
use std::{
    fmt,
    sync::{Arc, Mutex},
};
use tokio_util::sync::CancellationToken;

type Service = Arc<dyn Fn(Process) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// One copy of the service under test: a process on a machine of its own, connected to every node.
///
/// ```
/// use quorate::{Cron, Job, Scheduler};
/// use quorate_test::Cluster;
/// use std::{convert::Infallible, time::Duration};
///
/// # quorate_test::run(async {
/// let cluster = Cluster::memory(3);
/// let worker = cluster.worker("a");
/// worker.run(|process| async move {
///     let hourly = Cron::parse("0 * * * *").map_err(|error| error.to_string())?;
///     let job = Job::new("hourly", hourly, |_run| async { Ok::<(), Infallible>(()) });
///     let scheduler = Scheduler::new(process.quorum(), "reports").job(job);
///     scheduler.run().until(process.stopped()).await.map_err(|error| error.to_string())
/// });
/// cluster.advance(Duration::from_secs(3 * 3600 + 60)).await;
/// worker.stop().await;
/// // The cluster began at midnight, which is a tick, too.
/// assert_eq!(cluster.runs("reports", "hourly").await.done().len(), 4);
/// # });
/// ```
///
/// Clones are the same worker. Its process ends with the runtime of the test.
#[derive(Clone)]
pub struct Worker(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    seed: u64,
    config: QuorumConfig,
    network: Arc<Network>,
    machine: Arc<Machine>,
    links: Vec<Arc<Link>>,
    service: Mutex<Option<Service>>,
    running: Mutex<Running>,
}

/// The process of a worker, with the parts that only the test uses.
struct Running {
    process: Process,
    host: Arc<Host>,
    /// The number of times that the worker has started.
    starts: u64,
}

/// A process of a [`Worker`], as its service sees it.
#[derive(Clone, Debug)]
pub struct Process {
    quorum: Quorum,
    env: Env,
    stop: CancellationToken,
    ended: CancellationToken,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Returns the quorum with which this process connects to the nodes of the cluster.
    pub fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// Waits until the test stops the worker ([`Worker::stop`]). Give it to [`quorate::Scheduler`] and
    /// [`quorate::Election`] as the shutdown signal.
    ///
    /// # Cancel safety
    /// Safe: dropping the future only stops the wait.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stop.clone().cancelled_owned()
    }

    fn start(
        name: &str,
        worker: (&Arc<Host>, &[Arc<Link>]),
        rng: SeedRng,
        setup: (&QuorumConfig, &Network),
    ) -> Self {
        let ((host, links), (config, network)) = (worker, setup);
        let world = SimWorld::new(Arc::clone(host), rng).knowing(Arc::clone(&network.changes));
        let env = Env::new(Arc::new(world));
        let nodes = network.servers.iter().zip(links).map(|(server, link)| {
            let trace = Trace::none(network.truth);
            SimNode::new(network.truth, Arc::clone(host), Arc::clone(link), Arc::clone(server), trace)
        });
        let config = QuorumConfig { worker: name.into(), ..config.clone() };
        let quorum = match Quorum::builder().env(env.clone()).config(config).nodes(nodes).build() {
            Ok(quorum) => quorum,
            Err(error) => panic!("the worker {name:?} cannot start: {error}"),
        };
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        Self { quorum, env, stop, ended, failures: Arc::default() }
    }

    fn run(&self, service: &Service) {
        let (service, failures, ended) =
            (Arc::clone(service), Arc::clone(&self.failures), self.ended.clone());
        let process = self.clone();
        // The guard cancels the token also if the service panics or its process is killed.
        let ends = ended.drop_guard();
        self.env.spawn(async move {
            if let Err(error) = service(process).await {
                lock(&failures).push(format!("the service returned {error}"));
            }
            drop(ends);
        });
    }
}

impl Worker {
    pub(crate) fn start(name: &str, seed: u64, config: &QuorumConfig, network: &Arc<Network>) -> Self {
        let boot = SimClock { start_nanos: 1_000_000_000, rate_ppm: 0 };
        let machine = Machine::new(network.truth, boot, network.first, NAP);
        let link = |node: usize| {
            let rng = SeedRng::new(seed, &format!("link {name} {node}"));
            Arc::new(Link::new(network.truth, rng, NetworkConditions::INSTANT))
        };
        let links: Vec<_> = (0..network.servers.len()).map(link).collect();
        let running = Running::start(name, seed, 0, (&machine, &links), (config, network));
        Self(Arc::new(Inner {
            name: name.into(),
            seed,
            config: config.clone(),
            network: Arc::clone(network),
            machine,
            links,
            service: Mutex::default(),
            running: Mutex::new(running),
        }))
    }

    /// Returns the worker's name, as the nodes and the histories show it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the quorum of the worker's present process.
    pub fn quorum(&self) -> Quorum {
        lock(&self.0.running).process.quorum.clone()
    }

    /// Returns the time that the worker's wall clock shows.
    pub fn now(&self) -> WallTime {
        WallTime::from_micros(self.0.machine.wall() / 1_000)
    }

    /// Runs `service` as a task of this worker, and again after each [`Worker::restart`]. If the service
    /// returns an error or panics, the next [`Cluster::advance`](crate::Cluster::advance) panics with it.
    pub fn run<S, F>(&self, service: S)
    where
        S: Fn(Process) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: ServiceEnd,
    {
        let service: Service = Arc::new(move |process| service(process).map(ServiceEnd::result).boxed());
        lock(&self.0.running).process.run(&service);
        *lock(&self.0.service) = Some(service);
    }

    /// Runs `task` as a task of the worker's present process: it does not run while the worker is paused, and
    /// is dropped if the worker is killed.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.0.running).process.env.spawn(task);
    }

    // --- faults -----------------------------------------------------------------------------------------

    /// Kills the process, as SIGKILL does: it sends nothing more, and its leases end by themselves.
    pub fn kill(&self) {
        lock(&self.0.running).host.crash();
        self.0.network.changes.note();
    }

    /// Stops the process where it is, as SIGSTOP does. Time goes on.
    pub fn pause(&self) {
        lock(&self.0.running).host.pause();
    }

    /// Lets a paused process continue.
    pub fn resume(&self) {
        lock(&self.0.running).host.resume();
        self.0.network.changes.note();
    }

    /// Asks the service to end at once. The returned future waits until it has ended, and closes the quorum: a
    /// shutdown without a fault.
    ///
    /// # Cancel safety
    /// The service remains asked to end. Call the method again to wait for it.
    #[must_use = "the service is only asked to end: `.await` waits until it has ended"]
    pub fn stop(&self) -> impl Future<Output = ()> + Send + use<> {
        self.ask_to_stop();
        let process = lock(&self.0.running).process.clone();
        let has_service = lock(&self.0.service).is_some();
        async move {
            if has_service {
                process.ended.cancelled().await;
            }
            process.quorum.close().await;
        }
    }

    /// Starts the worker again, after [`Worker::kill`] or [`Worker::stop`]: a new process with the same name,
    /// and the service of [`Worker::run`]. A process that still runs is killed first.
    pub fn restart(&self) {
        let Inner { name, seed, config, network, machine, links, .. } = &*self.0;
        let mut running = lock(&self.0.running);
        running.host.crash();
        let failures = Arc::clone(&running.process.failures);
        *running = Running::start(name, *seed, running.starts + 1, (machine, links), (config, network));
        running.process.failures = failures;
        if let Some(service) = &*lock(&self.0.service) {
            running.process.run(service);
        }
        network.changes.note();
    }

    /// Cuts the worker off from every node. [`Cluster::heal`](crate::Cluster::heal) ends this.
    pub fn isolate(&self) {
        (0..self.0.links.len()).for_each(|node| self.set_connected(node, false));
    }

    /// Sets the wall clock of the worker's machine, to a millisecond. No time passes, and no timer is
    /// affected.
    pub fn set_clock(&self, at: WallTime) {
        self.0.machine.step_wall(millis_between(self.now(), at));
        self.0.network.changes.note();
    }

    // --- helpers ----------------------------------------------------------------------------------------

    pub(crate) fn ask_to_stop(&self) {
        lock(&self.0.running).process.stop.cancel();
    }

    #[track_caller]
    pub(crate) fn set_connected(&self, node: usize, open: bool) {
        let nodes = self.0.links.len();
        assert!(node < nodes, "there is no node {node}: the cluster has {nodes} nodes, from 0 on");
        self.0.links[node].set_open(Directions { there: open, back: open });
        self.0.network.changes.note();
    }

    /// Removes and returns the panics of the worker's tasks, and the errors of its service.
    pub(crate) fn take_failures(&self) -> Vec<String> {
        let running = lock(&self.0.running);
        let panics = running.host.take_panics().into_iter().map(|panic| format!("a task panicked: {panic}"));
        panics.chain(std::mem::take(&mut *lock(&running.process.failures))).collect()
    }
}

impl Running {
    fn start(
        name: &str,
        seed: u64,
        starts: u64,
        (machine, links): (&Arc<Machine>, &[Arc<Link>]),
        setup: (&QuorumConfig, &Arc<Network>),
    ) -> Self {
        let host = Host::start(name, setup.1.truth, Arc::clone(machine));
        let rng = SeedRng::new(seed, &format!("worker {name} {starts}"));
        Self { process: Process::start(name, (&host, links), rng, (setup.0, setup.1)), host, starts }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.0.name).field("now", &self.now()).finish_non_exhaustive()
    }
}

/// The output of a service: nothing, or a result whose error is a failure of the test.
pub trait ServiceEnd {
    /// Returns the error, as text.
    ///
    /// # Errors
    /// The error of the service.
    fn result(self) -> Result<(), String>;
}

impl ServiceEnd for () {
    fn result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<T, E: fmt::Display> ServiceEnd for Result<T, E> {
    fn result(self) -> Result<(), String> {
        self.map(drop).map_err(|error| error.to_string())
    }
}
