use super::{
    Dial, Event, NodeFault, Referee, SimClock, Truth, connection::Connection, execution_gate::ExecutionGate,
    scenario::true_wall,
};
use quorate::{
    env::WallTime,
    node::{
        Batch, BatchReply, Hello, MemoryStore, NodeTime, Resource,
        engine::{self, Clocks, Store},
    },
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// How often a server writes the snapshot that it may come back with.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(8);

/// A server that forgot has no vote for longer than any lease lives that it may have forgotten.
const QUARANTINED: Duration = Duration::from_secs(3);

/// A clock that is set by more than this at once is outside of what a plan's margins are for: the node must not count
/// until every lease that it has ended early would have ended anyway.
const FAR: Duration = Duration::from_millis(100);

/// What a server has left after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Nothing.
    Empty,
    /// What it wrote to disk some seconds before, its marker and its counters among it.
    Snapshot,
    /// Everything that it answered for: an append-only file that is written before each answer.
    Kept,
}

/// One simulated server: the shipped engine over a store in memory, on a clock of its own.
#[derive(Debug)]
pub struct Server {
    name: String,
    truth: Truth,
    node_fault: Option<NodeFault>,
    durable: bool,
    referee: Arc<Referee>,
    awake: ExecutionGate,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    clock: Dial,
    /// By how much the clock was ahead of the truth when it was touched, and until when.
    ahead: Vec<(Duration, Duration)>,
    /// When the clock was last set ahead by more than any plan's promises allow.
    astray: Option<Duration>,
    store: MemoryStore,
    snapshot: (Duration, MemoryStore),
    up: bool,
    run: u32,
    born: Duration,
    forgot: Option<Duration>,
    connections: Vec<Weak<Connection>>,
}

impl State {
    fn is_ahead(&self, now: Duration) -> Duration {
        true_wall(now).until(WallTime::from_micros(self.clock.shows(now) / 1_000))
    }

    /// Between two touches a clock drifts one way and by little, so that its ends are the extremes.
    fn was_ahead(&self, now: Duration, within: Duration) -> Duration {
        let recent = self.ahead.iter().filter(|(until, _)| *until + within >= now);
        recent.map(|(_, ahead)| *ahead).fold(self.is_ahead(now), Duration::max)
    }
}

impl Server {
    /// An empty server that runs. Its clock starts where `clock` does. It says that it is `durable`, or not.
    pub fn start(
        name: &str,
        truth: Truth,
        clock: SimClock,
        node_fault: Option<NodeFault>,
        durable: bool,
        referee: Arc<Referee>,
    ) -> Arc<Self> {
        let state = State { up: true, clock: Dial::new(clock), ..State::default() };
        Arc::new(Self {
            name: name.to_owned(),
            truth,
            node_fault,
            durable,
            referee,
            awake: ExecutionGate::open(),
            state: Mutex::new(state),
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    // --- faults -----------------------------------------------------------------------------------------

    /// Stops (SIGSTOP) or resumes it. What arrives meanwhile waits, and runs afterwards.
    pub fn set_awake(&self, awake: bool) {
        self.awake.set_open(awake);
    }

    /// Ends the process: every connection breaks, what waited in them is gone, and so is the memory.
    pub fn crash(&self) {
        let mut state = self.state();
        state.up = false;
        let connections = std::mem::take(&mut state.connections);
        drop(state);
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.reset_by_server());
    }

    /// Starts it again after a crash.
    pub fn restart(&self, memory: Memory) {
        let mut state = self.state();
        state.up = true;
        if memory == Memory::Kept {
            state.run += 1;
            state.born = self.truth.now();
            return;
        }
        let before = match memory {
            Memory::Snapshot => state.snapshot.1.clone(),
            Memory::Empty | Memory::Kept => MemoryStore::default(),
        };
        let before = std::mem::replace(&mut state.store, before);
        state.forgot = Some(self.truth.now());
        if self.node_fault == Some(NodeFault::Forgetful) {
            Self::keep_marker(&before, &mut state.store);
        } else {
            state.run += 1;
            state.born = self.truth.now();
        }
        drop(state);
        self.referee.tell(&Event::Forgot { node: &self.name });
    }

    /// Another, new server takes its name and its address, with a clock of its own.
    pub fn replace(&self, clock: SimClock) {
        self.crash();
        self.touch(|dial, _| *dial = Dial::new(clock));
        self.restart(Memory::Empty);
    }

    /// Every connection of the workers that `of` names breaks at both ends: what has not run is lost.
    pub fn tear(&self, of: impl Fn(&str) -> bool) {
        let mut connections: Vec<_> = self.state().connections.iter().filter_map(Weak::upgrade).collect();
        connections.retain(|connection| of(connection.host.name()));
        connections.iter().for_each(|connection| connection.tear());
    }

    /// FLUSHALL: the memory is gone, the run goes on.
    pub fn flush(&self) {
        let mut state = self.state();
        let before = std::mem::take(&mut state.store);
        state.forgot = Some(self.truth.now());
        if self.node_fault == Some(NodeFault::Forgetful) {
            Self::keep_marker(&before, &mut state.store);
        }
        drop(state);
        self.referee.tell(&Event::Forgot { node: &self.name });
    }

    /// Steps its wall clock.
    pub fn step(&self, by_millis: i64) {
        self.touch(|dial, _| dial.step(by_millis));
        if Duration::from_millis(by_millis.unsigned_abs()) > FAR {
            self.state().astray = Some(self.truth.now());
        }
    }

    /// Its clock stands still, or goes on from where it stood.
    pub fn set_clock_running(&self, running: bool) {
        self.touch(|dial, now| if running { dial.go_on(now) } else { dial.stand(now) });
    }

    fn touch(&self, how: impl FnOnce(&mut Dial, Duration)) {
        let now = self.truth.now();
        let mut state = self.state();
        let before = state.is_ahead(now);
        how(&mut state.clock, now);
        let ahead = before.max(state.is_ahead(now));
        state.ahead.push((now, ahead));
    }

    fn keep_marker(before: &MemoryStore, after: &mut MemoryStore) {
        let Ok(marker) = before.marker();
        if let Some(marker) = marker {
            let Ok(()) = after.set_marker(marker);
        }
    }

    // --- service ----------------------------------------------------------------------------------------

    /// Waits until it is not stopped.
    pub(super) async fn awake(&self) {
        self.awake.pass().await;
    }

    /// A request runs whose sender has hung up, or has seen its connection break.
    pub(super) fn runs_for_the_gone(&self) {
        self.referee.count("ran on a broken connection");
    }

    /// Takes a connection and says who it is; `None` while it is down.
    pub(super) fn accept(&self, connection: &Arc<Connection>) -> Option<Hello> {
        let mut state = self.state();
        if !state.up {
            return None;
        }
        state.connections.retain(|other| other.strong_count() > 0);
        state.connections.push(Arc::downgrade(connection));
        let Ok(marker) = state.store.marker();
        Some(Hello {
            node_time: self.clocks(&state).wall,
            run_id: format!("{}-run-{}", self.name, state.run).into(),
            marker,
            uptime: self.truth.now().saturating_sub(state.born),
            version: "simulated".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: Some(self.durable),
            volatile: None,
        })
    }

    /// Runs a batch.
    pub(super) fn run(&self, batch: &Batch) -> BatchReply {
        let mut state = self.state();
        let clocks = self.clocks(&state);
        let now = self.truth.now();
        if now.saturating_sub(state.snapshot.0) > SNAPSHOT_EVERY {
            state.snapshot = (now, state.store.clone());
        }
        let mut freed = Vec::new();
        let reply = match self.node_fault {
            Some(NodeFault::Timeless) => {
                let forever = NodeTime::from_micros(u64::MAX);
                let batch = Batch { not_after: forever, ..batch.clone() };
                engine::run_telling(&mut state.store, &batch, clocks, &mut freed)
            }
            Some(NodeFault::Forgetful) | None => {
                engine::run_telling(&mut state.store, batch, clocks, &mut freed)
            }
            Some(node_fault) => super::node_fault::run(&mut state.store, batch, clocks, node_fault),
        };
        let ears: Vec<_> = match freed.is_empty() {
            true => Vec::new(),
            false => state.connections.iter().filter_map(Weak::upgrade).collect(),
        };
        drop(state);
        for freed in &freed {
            let ears: Vec<_> = ears.iter().filter(|ear| ear.listens(&freed.resource)).collect();
            let told = u32::try_from(ears.len()).unwrap_or(u32::MAX);
            ears.iter().for_each(|connection| connection.tell(freed, told));
        }
        self.referee.ran(&self.name, batch, &reply);
        reply
    }

    /// Whether no honest server in its place could now grant `resource` to anyone but an owner that `is_ours`:
    /// it holds the lease, or is down, or forgot so short a while ago that it must be in quarantine, or its clock was
    /// set so far ahead so short a while ago that no worker may count what it grants. Where it keeps
    /// everything it may vote as soon as it is up, so that being down is no excuse for what it never had.
    pub fn backs(&self, resource: &Resource, is_ours: impl Fn(&str) -> bool) -> bool {
        let state = self.state();
        let Ok(row) = state.store.lease(resource);
        let nanos = self.clocks(&state).lease_nanos;
        let holds = row.is_some_and(|row| row.until_nanos > nanos && is_ours(&row.owner));
        let barred = |since: Option<Duration>| since.is_some_and(|at| self.truth.now() < at + QUARANTINED);
        holds || (!state.up && !self.durable) || barred(state.forgot) || barred(state.astray)
    }

    /// By how much its clock was ahead of the truth at most, within the time before now.
    pub fn was_ahead(&self, within: Duration) -> Duration {
        self.state().was_ahead(self.truth.now(), within)
    }

    /// The marker that stands on it.
    pub fn marker(&self) -> Option<Arc<str>> {
        let Ok(marker) = self.state().store.marker();
        marker
    }

    /// The leases that live now, and for how long yet.
    pub fn live_leases(&self) -> Vec<(Resource, String, Duration)> {
        let state = self.state();
        let clocks = self.clocks(&state);
        let live = state.store.live_leases(clocks).into_iter().map(|(resource, row)| {
            let left = Duration::from_nanos(row.until_nanos - clocks.lease_nanos);
            (resource, row.owner.to_string(), left)
        });
        live.collect()
    }

    /// As Redis does, it times leases by its wall clock.
    fn clocks(&self, state: &State) -> Clocks {
        let micros = state.clock.shows(self.truth.now()) / 1_000;
        Clocks { wall: NodeTime::from_micros(micros), lease_nanos: micros * 1_000 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Plan, Trace};

    /// What keeps everything votes as soon as it is up again, for whoever asks.
    #[tokio::test(start_paused = true)]
    async fn a_durable_server_that_is_down_backs_what_it_holds_alone() {
        let truth = Truth::begin();
        let resource = Resource::lock("x").unwrap();
        for durable in [false, true] {
            let referee = Referee::new(truth, Trace::none(truth), Plan::default().setup);
            let server = Server::start("n0", truth, SimClock::default(), None, durable, referee);
            assert!(!server.backs(&resource, |_| true));
            server.crash();
            assert_eq!(server.backs(&resource, |_| true), !durable);
            let row = engine::LeaseRow { owner: "a".into(), until_nanos: 1_000_000_000, readers: Vec::new() };
            let Ok(()) = server.state().store.set_lease(&resource, Some(row));
            assert!(server.backs(&resource, |owner| owner == "a"), "it comes back with it");
        }
    }

    /// A clock that is set far ahead ends its leases early, and bars the server for as long as one can last.
    #[tokio::test(start_paused = true)]
    async fn a_server_whose_clock_was_set_far_ahead_backs_until_no_lease_of_before_can_live() {
        let truth = Truth::begin();
        let resource = Resource::lock("x").unwrap();
        let referee = Referee::new(truth, Trace::none(truth), Plan::default().setup);
        let server = Server::start("n0", truth, SimClock::default(), None, false, referee);
        server.step(95);
        assert!(!server.backs(&resource, |_| true), "within what the margins are for");
        server.step(1_000);
        assert!(server.backs(&resource, |_| true));
        truth.pass(QUARANTINED).await;
        assert!(!server.backs(&resource, |_| true), "no longer than any lease of before");
    }

    /// By how much a clock was ahead long ago excuses no early start.
    #[tokio::test(start_paused = true)]
    async fn how_far_a_clock_was_ahead_is_forgotten() {
        let truth = Truth::begin();
        let referee = Referee::new(truth, Trace::none(truth), Plan::default().setup);
        let right = SimClock { start_nanos: true_wall(Duration::ZERO).as_micros() * 1_000, rate_ppm: 0 };
        let server = Server::start("n0", truth, right, None, false, referee);
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis(90));
        server.step(90);
        truth.pass(second).await;
        assert_eq!(server.was_ahead(second), ms);
        server.step(-90);
        truth.pass(second).await;
        assert_eq!(server.was_ahead(second), ms, "until a second ago");
        truth.pass(second).await;
        assert_eq!(server.was_ahead(second), Duration::ZERO);
    }
}
