use super::{
    AdjustableClock, Event, NodeFault, Referee, SimClock, Truth, connection::Connection,
    execution_gate::ExecutionGate, scenario::true_wall,
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

/// The time between two snapshots. After a crash, a server may start again with its latest snapshot.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(8);

/// The time for which a server must not vote after it lost data. By the end of this time, every lease that
/// the server may have lost has ended.
const QUARANTINED: Duration = Duration::from_secs(3);

/// The largest step of a server's clock that the margins of the plans cover. After a larger step, no worker may
/// count the server's votes until every lease that the server granted before would have ended.
const FAR: Duration = Duration::from_millis(100);

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

/// One simulated server. It runs the shipped engine over a store in memory, on a clock of its own.
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
    clock: AdjustableClock,
    /// One pair for each change of the clock: the true time of the change, and the larger of the amounts by
    /// which the clock was ahead just before and just after it.
    ahead: Vec<(Duration, Duration)>,
    /// The time at which the clock last stepped further than the plans' margins cover.
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

    /// Returns the largest amount by which the clock was ahead of the true time, in the span `within` before
    /// `now`. Between two changes, a clock drifts in one direction only. The largest amount therefore occurs
    /// just before or after a change, or at `now`.
    fn was_ahead(&self, now: Duration, within: Duration) -> Duration {
        let recent = self.ahead.iter().filter(|(until, _)| *until + within >= now);
        recent.map(|(_, ahead)| *ahead).fold(self.is_ahead(now), Duration::max)
    }
}

impl Server {
    /// Starts an empty server on the clock `clock`. If `durable` is true, the server reports to its clients
    /// that it is durable.
    pub fn start(
        name: &str,
        truth: Truth,
        clock: SimClock,
        node_fault: Option<NodeFault>,
        durable: bool,
        referee: Arc<Referee>,
    ) -> Arc<Self> {
        let state = State { up: true, clock: AdjustableClock::new(clock), ..State::default() };
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
        if memory == Memory::Snapshot {
            self.referee.tell(&Event::Restored { node: &self.name });
        }
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
        let before = std::mem::take(&mut state.store);
        state.forgot = Some(self.truth.now());
        if self.node_fault == Some(NodeFault::Forgetful) {
            Self::keep_marker(&before, &mut state.store);
        }
        drop(state);
        self.referee.tell(&Event::Forgot { node: &self.name });
    }

    /// Steps the server's wall clock.
    pub fn step(&self, by_millis: i64) {
        self.touch(|clock, _| clock.step(by_millis));
        if Duration::from_millis(by_millis.unsigned_abs()) > FAR {
            self.state().astray = Some(self.truth.now());
        }
    }

    /// Stops the server's clock, or lets a stopped clock continue from the time at which it stopped.
    pub fn set_clock_running(&self, running: bool) {
        self.touch(|clock, now| if running { clock.go_on(now) } else { clock.stand(now) });
    }

    fn touch(&self, how: impl FnOnce(&mut AdjustableClock, Duration)) {
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

    // --- requests ---------------------------------------------------------------------------------------

    /// Waits until the server's process is not stopped.
    pub(super) async fn awake(&self) {
        self.awake.pass().await;
    }

    /// Counts a request that the server runs although the sender has closed its end of the connection.
    pub(super) fn count_request_of_closed_sender(&self) {
        self.referee.count("ran on a broken connection");
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

    /// Runs a batch on the shipped engine.
    pub(super) fn run(&self, batch: &Batch) -> BatchReply {
        let mut state = self.state();
        let clocks = self.clocks(&state);
        let now = self.truth.now();
        let saves = now.saturating_sub(state.snapshot.0) > SNAPSHOT_EVERY;
        if saves {
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
            self.referee.tell(&Event::Saved { node: &self.name });
        }
        self.referee.ran(&self.name, batch, &reply);
        reply
    }

    /// Returns `true` if this server, if it is honest, cannot grant `resource` now to an owner for which
    /// `is_ours` returns `false`. There are four reasons:
    ///
    /// - the server stores a lease of an owner for which `is_ours` returns `true`;
    /// - the server is down and not durable (a durable server may vote as soon as it is up again);
    /// - the server lost data so recently that it must be in quarantine;
    /// - the server's clock stepped so far and so recently that no worker may count its grants.
    pub fn backs(&self, resource: &Resource, is_ours: impl Fn(&str) -> bool) -> bool {
        let state = self.state();
        let Ok(row) = state.store.lease(resource);
        let nanos = self.clocks(&state).lease_nanos;
        let holds = row.is_some_and(|row| row.until_nanos > nanos && is_ours(&row.owner));
        let barred = |since: Option<Duration>| since.is_some_and(|at| self.truth.now() < at + QUARANTINED);
        holds || (!state.up && !self.durable) || barred(state.forgot) || barred(state.astray)
    }

    /// Returns the largest amount by which the server's clock was ahead of the true time, within the time
    /// `within` before now.
    pub fn was_ahead(&self, within: Duration) -> Duration {
        self.state().was_ahead(self.truth.now(), within)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Plan, Trace};

    /// Checks that a durable server that is down counts only for the leases that it stores. Such a server votes
    /// for any worker as soon as it is up again.
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

    /// Checks a server whose clock was set far ahead. No worker may count its votes for as long as a lease from
    /// before that step can last. During that time the server must count as one that cannot grant a lease to
    /// another owner.
    #[tokio::test(start_paused = true)]
    async fn a_server_whose_clock_was_set_far_ahead_backs_until_every_earlier_lease_is_over() {
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

    /// Checks that a clock which was ahead only long ago does not excuse an early start.
    #[tokio::test(start_paused = true)]
    async fn an_old_clock_error_is_no_excuse() {
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
