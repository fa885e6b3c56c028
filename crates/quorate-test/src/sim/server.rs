use super::{
    AdjustableClock, Changes, ServerHooks, SimClock, Truth, connection::Connection,
    execution_gate::ExecutionGate,
};
use quorate::node::{
    Batch, BatchReply, Hello, MemoryStore, NodeTime, Reply, Request, Resource, copy::LeadAct, engine::Clocks,
    engine::Store as _,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The time between two snapshots. After a crash, a server may start again with its latest snapshot.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(8);

/// The keys of the records with which a leader notes how far it has decided, and how far it has removed old runs. No
/// worker waits for them, and they change every ten or fifteen seconds.
const MARKS: [&str; 2] = ["looked", "low_water"];

/// The data that a server still has after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// No data.
    Empty,
    /// The snapshot that the server wrote to disk some seconds before, with its marker and its counters.
    Snapshot,
    /// All data that the server has acknowledged, as with an append-only file that is written before each answer.
    Kept,
}

/// A change of a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockChange {
    /// The true time of the change.
    pub at: Duration,
    /// The time that the clock showed before the change, in nanoseconds.
    pub before: u64,
    /// The time that the clock showed after the change, in nanoseconds.
    pub after: u64,
}

/// One simulated server. It runs requests on rows in memory, on a clock of its own.
#[derive(Debug)]
pub struct Server {
    name: String,
    truth: Truth,
    durable: bool,
    hooks: Arc<dyn ServerHooks>,
    changes: Option<Arc<Changes>>,
    awake: ExecutionGate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    clock: AdjustableClock,
    changes: Vec<ClockChange>,
    store: MemoryStore,
    /// Grows whenever the data may have changed.
    version: u64,
    snapshot: (Duration, MemoryStore),
    up: bool,
    run: u32,
    born: Duration,
    forgot: Option<Duration>,
    /// The number of requests that the server has run.
    requests: u64,
    connections: Vec<Weak<Connection>>,
}

impl Server {
    /// Starts an empty server on the clock `clock`. If `durable` is true, the server reports to its clients
    /// that it is durable.
    pub fn start(
        name: &str,
        truth: Truth,
        clock: SimClock,
        durable: bool,
        hooks: Arc<dyn ServerHooks>,
        changes: Option<Arc<Changes>>,
    ) -> Arc<Self> {
        let state = State {
            clock: AdjustableClock::new(clock),
            changes: Vec::new(),
            store: MemoryStore::default(),
            version: 1,
            snapshot: (Duration::ZERO, MemoryStore::default()),
            up: true,
            run: 0,
            born: Duration::ZERO,
            forgot: None,
            requests: 0,
            connections: Vec::new(),
        };
        Arc::new(Self {
            name: name.to_owned(),
            truth,
            durable,
            hooks,
            changes,
            awake: ExecutionGate::open(),
            state: Mutex::new(state),
        })
    }

    /// Returns the server's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    // --- faults -----------------------------------------------------------------------------------------

    /// Stops (SIGSTOP) or resumes the server. Messages that arrive while it is stopped wait, and run afterwards.
    pub fn set_awake(&self, awake: bool) {
        self.awake.set_open(awake);
    }

    /// Kills the process. Every connection breaks, and requests that have not run are lost. The argument of
    /// [`Self::restart`] decides which data is lost.
    pub fn crash(&self) {
        let mut state = self.state();
        state.up = false;
        let connections = std::mem::take(&mut state.connections);
        drop(state);
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.reset_by_server());
    }

    /// Starts the process again after a crash.
    pub fn restart(&self, memory: Memory) {
        let mut state = self.state();
        state.up = true;
        state.version += 1;
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
        if self.hooks.hides_losses() {
            Self::keep_marker(&before, &mut state.store);
        } else {
            state.run += 1;
            state.born = self.truth.now();
        }
        drop(state);
        self.hooks.forgot(&self.name);
        if memory == Memory::Snapshot {
            self.hooks.restored(&self.name);
        }
    }

    /// Returns the stamp of the node `name` that the server stores.
    pub fn stamp_of(&self, name: &str) -> u64 {
        let Ok(stamps) = self.state().store.stamps();
        stamps.get(name).copied().unwrap_or_default()
    }

    /// Returns the server's own stamp in its latest snapshot.
    pub fn stamp_in_snapshot(&self) -> u64 {
        let Ok(stamps) = self.state().snapshot.1.stamps();
        stamps.get(&*self.name).copied().unwrap_or_default()
    }

    /// Replaces the server by a new one with the same name and address, but with another clock and no data.
    pub fn replace(&self, clock: SimClock) {
        self.crash();
        self.touch(|current, _| *current = AdjustableClock::new(clock));
        self.restart(Memory::Empty);
    }

    /// Breaks, at both ends, the connections of all workers for whose names `of` returns `true`. Requests that
    /// have not run are lost.
    pub fn tear(&self, of: impl Fn(&str) -> bool) {
        let mut connections: Vec<_> = self.state().connections.iter().filter_map(Weak::upgrade).collect();
        connections.retain(|connection| of(connection.host.name()));
        connections.iter().for_each(|connection| connection.tear());
    }

    /// Deletes every key, as FLUSHALL does. The process continues to run.
    pub fn flush(&self) {
        let mut state = self.state();
        state.version += 1;
        let before = std::mem::take(&mut state.store);
        state.forgot = Some(self.truth.now());
        if self.hooks.hides_losses() {
            Self::keep_marker(&before, &mut state.store);
        }
        drop(state);
        self.hooks.forgot(&self.name);
    }

    /// Steps the server's wall clock.
    pub fn step(&self, by_millis: i64) {
        self.touch(|clock, _| clock.step(by_millis));
    }

    /// Stops the server's clock, or lets a stopped clock continue from the time at which it stopped.
    pub fn set_clock_running(&self, running: bool) {
        self.touch(|clock, now| if running { clock.go_on(now) } else { clock.stand(now) });
    }

    fn touch(&self, how: impl FnOnce(&mut AdjustableClock, Duration)) {
        let now = self.truth.now();
        let mut state = self.state();
        let before = state.clock.shows(now);
        how(&mut state.clock, now);
        let after = state.clock.shows(now);
        state.changes.push(ClockChange { at: now, before, after });
    }

    fn keep_marker(before: &MemoryStore, after: &mut MemoryStore) {
        let Ok(marker) = before.marker();
        if let Some(marker) = marker {
            let Ok(()) = after.set_marker(marker);
        }
    }

    // --- requests ---------------------------------------------------------------------------------------

    /// Waits until the server's process is not stopped.
    pub(super) async fn awake(&self) {
        self.awake.pass().await;
    }

    /// Returns `true` if the server's process exists and is not stopped.
    pub(super) fn is_awake(&self) -> bool {
        self.awake.is_open() && self.state().up
    }

    /// Counts a request that the server runs although the sender has closed its end of the connection.
    pub(super) fn count_request_of_closed_sender(&self) {
        self.hooks.sender_is_gone();
    }

    /// Accepts a connection, and returns the server's identity. Returns `None` while the server does not run.
    pub(super) fn accept(&self, connection: &Arc<Connection>) -> Option<Hello> {
        let mut state = self.state();
        if !state.up {
            return None;
        }
        state.connections.retain(|other| other.strong_count() > 0);
        state.connections.push(Arc::downgrade(connection));
        let Ok(marker) = state.store.marker();
        let Ok(stamps) = state.store.stamps();
        Some(Hello {
            node_time: self.clocks(&state).wall,
            run_id: self.run_id_of(&state),
            marker,
            data: None,
            stamps,
            uptime: self.truth.now().saturating_sub(state.born),
            version: "simulated".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: Some(self.durable),
            volatile: None,
            unable: None,
        })
    }

    /// Runs a batch on the store.
    pub(super) fn run(&self, batch: &Batch) -> BatchReply {
        let mut state = self.state();
        let clocks = self.clocks(&state);
        let now = self.truth.now();
        let saves = self.hooks.takes_snapshots() && now.saturating_sub(state.snapshot.0) > SNAPSHOT_EVERY;
        if saves {
            state.snapshot = (now, state.store.clone());
        }
        state.requests += batch.requests.len() as u64;
        state.version += 1;
        let mut freed = Vec::new();
        let reply = self.hooks.run(&mut state.store, batch, clocks, &mut freed);
        let listeners: Vec<_> = match freed.is_empty() {
            true => Vec::new(),
            false => state.connections.iter().filter_map(Weak::upgrade).collect(),
        };
        drop(state);
        for freed in &freed {
            let listeners: Vec<_> = listeners.iter().filter(|ear| ear.listens(&freed.resource)).collect();
            let receivers = u32::try_from(listeners.len()).unwrap_or(u32::MAX);
            listeners.iter().for_each(|connection| connection.report_release(freed, receivers));
        }
        if saves {
            self.hooks.saved(&self.name);
        }
        self.hooks.ran(&self.name, batch, &reply);
        if let Some(changes) = &self.changes
            && batch.requests.iter().zip(&reply.replies).any(|(request, reply)| has_changed(request, reply))
        {
            changes.note();
        }
        reply
    }

    /// Calls `look` with the server's data and its present clocks.
    pub fn with_store<T>(&self, look: impl FnOnce(&mut MemoryStore, Clocks) -> T) -> T {
        let mut state = self.state();
        state.version += 1;
        let clocks = self.clocks(&state);
        look(&mut state.store, clocks)
    }

    /// Returns the server's data and state at this moment.
    pub fn view(&self) -> ServerView<'_> {
        let state = self.state();
        ServerView { clocks: self.clocks(&state), durable: self.durable, state }
    }

    /// Returns the true time.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// Returns `true` if the server's process exists. It may be stopped.
    pub fn is_up(&self) -> bool {
        self.state().up
    }

    /// Returns the time that the server's clock shows, in nanoseconds.
    pub fn wall_nanos(&self) -> u64 {
        self.state().clock.shows(self.truth.now())
    }

    /// Returns the number of requests that the server has run.
    pub fn requests(&self) -> u64 {
        self.state().requests
    }

    /// Returns the id of the server's present process.
    pub fn run_id(&self) -> Arc<str> {
        self.run_id_of(&self.state())
    }

    fn run_id_of(&self, state: &State) -> Arc<str> {
        format!("{}-run-{}", self.name, state.run).into()
    }

    /// Returns the marker that is stored on the server.
    pub fn marker(&self) -> Option<Arc<str>> {
        let Ok(marker) = self.state().store.marker();
        marker
    }

    /// Returns the leases that have not ended, each with its remaining time.
    pub fn live_leases(&self) -> Vec<(Resource, String, Duration)> {
        let state = self.state();
        let clocks = self.clocks(&state);
        let live = state.store.live_leases(clocks).into_iter().map(|(resource, row)| {
            let left = Duration::from_nanos(row.until_nanos - clocks.lease_nanos);
            (resource, row.owner.to_string(), left)
        });
        live.collect()
    }

    /// Returns the clocks for the engine. The server measures leases by its wall clock, as Redis does.
    fn clocks(&self, state: &State) -> Clocks {
        let micros = state.clock.shows(self.truth.now()) / 1_000;
        Clocks { wall: NodeTime::from_micros(micros), lease_nanos: micros * 1_000 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server's data and state at one moment, for an observer with many questions. The server runs no request while
/// the view exists.
#[derive(Debug)]
pub struct ServerView<'a> {
    state: MutexGuard<'a, State>,
    clocks: Clocks,
    durable: bool,
}

impl ServerView<'_> {
    /// Returns a number that grows whenever the server's data may have changed.
    pub fn version(&self) -> u64 {
        self.state.version
    }

    /// Returns the end of the lease on `resource` that the server stores of a writer or a reader for whose owner token
    /// `is_its` returns `true`, by the clock of [`is_future`](Self::is_future). Of several such leases, the end is the
    /// latest. Returns 0 if there is none. The result changes only with the [`version`](Self::version).
    pub fn lease_end(&self, resource: &Resource, is_its: impl Fn(&str) -> bool) -> u64 {
        let Ok(Some(row)) = self.state.store.lease(resource) else { return 0 };
        let readers = row.readers.iter().map(|reader| (&*reader.owner, reader.until_nanos));
        let all = readers.chain([(&*row.owner, row.until_nanos)]);
        all.filter(|(owner, _)| is_its(owner)).map(|(_, until)| until).max().unwrap_or_default()
    }

    /// Returns `true` if the server's clock for leases has not reached `nanos`.
    pub fn is_future(&self, nanos: u64) -> bool {
        nanos > self.clocks.lease_nanos
    }

    /// Returns `true` if the server's process exists. It may be stopped.
    pub fn is_up(&self) -> bool {
        self.state.up
    }

    /// Returns `true` if the server reports that it is durable.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// Returns the true time at which the server last lost data.
    pub fn forgot_at(&self) -> Option<Duration> {
        self.state.forgot
    }

    /// Returns the changes of the server's clock, in their order.
    pub fn clock_changes(&self) -> &[ClockChange] {
        &self.state.changes
    }
}

/// Returns `true` if the request has changed data for which a worker may wait.
fn has_changed(request: &Request, reply: &Reply) -> bool {
    match (request, reply) {
        (_, Reply::Refused(_) | Reply::Held { .. } | Reply::Released(false)) => false,
        (
            Request::Extend { .. }
            | Request::ExtendShare { .. }
            | Request::Inspect { .. }
            | Request::Read { .. }
            | Request::Prune { .. }
            | Request::Keep { .. }
            | Request::Stamp { .. }
            | Request::Lead { act: LeadAct::Confirm, .. },
            _,
        ) => false,
        (Request::Lead { act: LeadAct::Put { writes }, .. }, _) => {
            !writes.iter().all(|put| MARKS.contains(&&*put.key))
        }
        (Request::Mark { expect, marker }, _) => expect.as_ref() != Some(marker),
        _ => true,
    }
}
