//! Two workers, some servers, and a picture of the states of a lock on all of them.

use super::timeline::{Kind, Timeline};
use crate::sim::{
    Directions, Host, Link, Machine, NAP, NetworkConditions, SeedRng, Server, SimClock, SimNode, SimWorld,
    Trace, Truth,
};
use quorate::{
    env::Env,
    lease::{Lease, LeaseEvent, Lock},
    quorum::{Quorum, QuorumConfig},
};
use quorate_test::sim::NoHooks;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc::UnboundedReceiver;

/// The time between two readings of the states.
const STEP: Duration = Duration::from_millis(20);

/// The wall clock of every machine at the beginning, in nanoseconds: a day in 2026.
const EPOCH: u64 = 1_790_000_000_000_000_000;

/// The name of the lock.
pub(super) const LOCK: &str = "invoice";

/// A lease, with the events that its holder has received.
struct Holding {
    lease: Lease,
    events: UnboundedReceiver<LeaseEvent>,
    state: LeaseEvent,
}

/// One worker process. Its lane in the picture has the worker's own index.
pub(super) struct Worker {
    pub(super) host: Arc<Host>,
    env: Env,
    quorum: Quorum,
    links: Vec<Arc<Link>>,
    holding: Arc<Mutex<Option<Holding>>>,
    stopped: bool,
}

pub(super) struct Scene {
    pub(super) truth: Truth,
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) workers: Vec<Worker>,
    pub(super) picture: Timeline,
    /// The lane of the first server.
    first_server: usize,
    /// The true time at which the picture begins.
    begin: Duration,
    /// The owner of the lock on each server and the remaining time, at the last reading.
    stored: Vec<Option<(String, Duration)>>,
}

impl Scene {
    /// Starts the servers and two workers, and waits until the servers vote. `lanes` names the lanes of the
    /// picture: those of the workers, then others, and the servers from `first_server` on.
    #[expect(clippy::expect_used, reason = "a story that cannot begin has no picture")]
    pub(super) async fn start(
        truth: Truth,
        setup: QuorumConfig,
        title: &str,
        lanes: &[&str],
        first_server: usize,
    ) -> Self {
        let trace = Trace::none(truth);
        let clock = SimClock { start_nanos: EPOCH, rate_ppm: 0 };
        let server = |name: &&str| Server::start(name, truth, clock, false, Arc::new(NoHooks), None);
        let servers: Vec<_> = lanes[first_server..].iter().map(server).collect();
        let worker = |index: usize| {
            let name = lanes[index];
            let machine = Machine::new(truth, SimClock { start_nanos: 1, rate_ppm: 0 }, clock, NAP);
            let host = Host::start(name, truth, machine);
            let random = |what: &str| SeedRng::new(1, &format!("{what} {name}"));
            let env = Env::new(Arc::new(SimWorld::new(Arc::clone(&host), random("random"))));
            let links: Vec<_> = (0..servers.len())
                .map(|at| Arc::new(Link::new(truth, random(&format!("link {at}")), NetworkConditions::CALM)))
                .collect();
            let node = |(link, server): (&Arc<Link>, &Arc<Server>)| {
                SimNode::new(truth, Arc::clone(&host), Arc::clone(link), Arc::clone(server), trace.clone())
            };
            let nodes: Vec<_> = links.iter().zip(&servers).map(node).collect();
            let setup = QuorumConfig { worker: name.replace(' ', "-").into(), ..setup.clone() };
            let quorum = Quorum::builder().env(env.clone()).config(setup).nodes(nodes).build();
            let quorum = quorum.expect("the settings can be used");
            Worker { host, env, quorum, links, holding: Arc::default(), stopped: false }
        };
        let workers: Vec<_> = (0..2).map(worker).collect();
        // The servers are new. The end of their quarantine takes no real time.
        truth.pass(setup.quarantine() * 2).await;
        for worker in &workers {
            worker.quorum.ready(Duration::from_secs(1)).await.expect("every server votes");
        }
        let stored = vec![None; servers.len()];
        let picture = Timeline::new(title, lanes);
        Self { truth, servers, workers, picture, first_server, begin: truth.now(), stored }
    }

    /// Begins the picture now.
    pub(super) fn begin(&mut self) {
        self.begin = self.truth.now();
    }

    /// Returns the time since the picture began.
    pub(super) fn now(&self) -> Duration {
        self.truth.now() - self.begin
    }

    /// Lets a worker wait for the lock, and hold it.
    pub(super) fn acquire(&self, worker: usize, options: impl FnOnce(Lock) -> Lock) {
        let worker = &self.workers[worker];
        let (lock, holding) = (options(worker.quorum.lock(LOCK)), Arc::clone(&worker.holding));
        worker.env.spawn(async move {
            // A story whose worker does not acquire the lock fails at its next line.
            if let Ok(lease) = lock.acquire().await {
                let events = lease.events();
                let holding_now = Holding { lease, events, state: LeaseEvent::Held };
                *holding.lock().unwrap_or_else(PoisonError::into_inner) = Some(holding_now);
            }
        });
    }

    /// Calls `look` with the lease of a worker.
    ///
    /// # Panics
    /// If the worker has acquired none.
    #[expect(clippy::expect_used, reason = "a story that does not go as its picture says must not be drawn")]
    pub(super) fn lease<T>(&self, worker: usize, look: impl FnOnce(&Lease) -> T) -> T {
        let holding = self.workers[worker].holding.lock().unwrap_or_else(PoisonError::into_inner);
        look(&holding.as_ref().expect("the worker has acquired the lock").lease)
    }

    /// Returns whether a worker holds the lock now, by its own judgement.
    pub(super) fn holds(&self, worker: usize) -> bool {
        let holding = self.workers[worker].holding.lock().unwrap_or_else(PoisonError::into_inner);
        holding.as_ref().is_some_and(|holding| holding.lease.is_valid())
    }

    /// Opens or cuts the links of a worker to the servers with these indexes.
    pub(super) fn set_links(&self, worker: usize, servers: impl IntoIterator<Item = usize>, open: bool) {
        for server in servers {
            self.workers[worker].links[server].set_open(Directions { there: open, back: open });
        }
    }

    /// Stops or continues the process of a worker.
    pub(super) fn set_stopped(&mut self, worker: usize, stopped: bool) {
        self.workers[worker].stopped = stopped;
        let host = &self.workers[worker].host;
        if stopped { host.pause() } else { host.resume() }
    }

    /// Lets time pass until `at`, and enters all states into the picture.
    pub(super) async fn until(&mut self, at: Duration) {
        while self.now() < at {
            let from = self.now();
            self.truth.pass(STEP).await;
            let span = (from, self.now());
            self.read_workers(span);
            self.read_servers(span);
            self.picture.lasts(span.1);
        }
    }

    fn read_workers(&mut self, span: (Duration, Duration)) {
        for (index, worker) in self.workers.iter().enumerate() {
            let own = if index == 0 { Kind::First } else { Kind::Second };
            let mut holding = worker.holding.lock().unwrap_or_else(PoisonError::into_inner);
            if worker.stopped {
                self.picture.state(index, span, Kind::Stopped, "the process is stopped");
                continue;
            }
            let Some(holding) = holding.as_mut() else { continue };
            while let Ok(event) = holding.events.try_recv() {
                holding.state = event;
            }
            match holding.state {
                _ if !holding.lease.is_valid() => {}
                LeaseEvent::Held => self.picture.state(index, span, own, "held"),
                LeaseEvent::AtRisk => self.picture.state(index, span, own, "at risk"),
                LeaseEvent::StepDown => self.picture.state(index, span, Kind::Ending, "step-down"),
                LeaseEvent::Lost => {}
            }
        }
    }

    fn read_servers(&mut self, span: (Duration, Duration)) {
        for (index, server) in self.servers.iter().enumerate() {
            let lane = self.first_server + index;
            let leases = server.live_leases();
            let found = leases.into_iter().find(|(resource, ..)| resource.to_string() == LOCK);
            let before = self.stored[index].take();
            let Some((_, owner, left)) = found else { continue };
            let first = owner.starts_with(&*self.workers[0].quorum.config().worker);
            let kind = if first { Kind::First } else { Kind::Second };
            let text = format!("key of {}", self.workers[usize::from(!first)].host.name());
            // A longer remaining time than before: the lease was extended.
            if before.is_some_and(|(same, less)| same == owner && less < left) {
                self.picture.mark(lane, span.1, "");
            }
            self.stored[index] = Some((owner, left));
            self.picture.state(lane, span, kind, &text);
        }
    }
}
