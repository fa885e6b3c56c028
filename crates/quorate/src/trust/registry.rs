use crate::{
    config::majority,
    env::{BootTime, WallTime},
    measure::{NodeMeasures, NodeReport},
    node::{Incarnation, NodeTime, STAMP_MAX},
    trust::{
        NodeEpoch, NodeState, NodeStatus, VoteRejection,
        clock_offset::ClockOffset,
        latency::Latencies,
        node_state::{is_new, log_state},
        quorum_clock,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The states of a quorum's nodes. Each driver records the state of its node here. The other drivers and the
/// callers read it.
#[derive(Debug)]
pub(crate) struct NodeRegistry {
    entries: Vec<NodeEntry>,
    state: Mutex<RegistryState>,
    changed: watch::Sender<()>,
    /// True once a majority of the nodes has been able to vote at the same time.
    had_quorum: AtomicBool,
    latencies: Latencies,
    measures: NodeMeasures,
}

#[derive(Debug)]
struct NodeEntry {
    name: Arc<str>,
    epoch: AtomicU64,
    /// The number of handshakes so far. Each handshake begins a new session.
    sessions: AtomicU64,
    incarnation: AtomicU64,
    since_micros: AtomicU64,
    votes_from_micros: AtomicU64,
    round_trip_nanos: AtomicU64,
    twin: AtomicBool,
    /// Wakes the node's driver when the state of another node has changed. Each driver has a signal of its own,
    /// so that the drivers wake in the order of the nodes. Otherwise two simulations of one seed would differ.
    wake: Arc<Notify>,
    /// The beginning and the end of the time, on the boot clock, in which the node's clock is known not to have
    /// stepped.
    steady: Mutex<(BootTime, BootTime)>,
    /// The best sample of the node's clock. It is kept when a connection ends.
    clock: Mutex<Option<ClockOffset>>,
}

impl NodeEntry {
    /// Returns the best sample of the node's clock.
    fn sample(&self) -> Option<ClockOffset> {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct RegistryState {
    states: Vec<NodeState>,
    versions: Vec<Option<Arc<str>>>,
    run_ids: Vec<Option<Arc<str>>>,
    /// The marker of each node, as this worker last saw it.
    markers: Vec<MarkerState>,
    /// The largest stamp of each node that this worker has seen, and the node that returned it.
    stamps: Vec<(u64, usize)>,
    /// For each node, the lines that were logged since the node last voted. Each line is logged only once.
    logged: Vec<BTreeSet<String>>,
}

/// The result of comparing a node's marker with this worker's node list and shared settings.
#[derive(Clone, Debug, PartialEq)]
enum MarkerState {
    /// No handshake with the node has succeeded so far.
    Unknown,
    /// There was a handshake, but no marker counts. Either the node had none, or the connection has ended and
    /// the node may have another marker by now.
    None,
    /// The marker names the same node list and shared settings.
    Agrees,
    /// The marker names another node list, or other shared settings.
    Differs(VoteRejection),
}

/// The number of nodes that a worker has reached, for a decision that needs a majority of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Every node was reached or found unreachable, and a majority was reached.
    Enough,
    /// The first handshake with a node is under way.
    NotYet,
    /// Every node was reached or found unreachable, but fewer than a majority were reached.
    TooFew { met: usize, needed: usize },
}

/// The decision on whether a worker may write a marker to a node that has none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FirstMark {
    /// The worker may write the marker.
    Allowed,
    /// The worker must wait, because the first handshake with another node is under way.
    NotYet,
    /// The worker must not write the marker now.
    Refused(VoteRejection),
}

impl RegistryState {
    fn reached(&self) -> Reached {
        let mut nodes = self.markers.iter().zip(&self.states);
        if nodes.any(|(marker, state)| *marker == MarkerState::Unknown && *state == NodeState::Connecting) {
            return Reached::NotYet;
        }
        // Two names of one server have the same run id, and count as one node.
        let met: BTreeSet<&Arc<str>> = self
            .markers
            .iter()
            .zip(&self.run_ids)
            .filter(|(marker, _)| **marker != MarkerState::Unknown)
            .filter_map(|(_, run_id)| run_id.as_ref())
            .collect();
        match (met.len(), majority(self.markers.len())) {
            (met, needed) if met < needed => Reached::TooFew { met, needed },
            _ => Reached::Enough,
        }
    }
}

impl NodeRegistry {
    pub(crate) fn new(names: &[Arc<str>]) -> Self {
        let entry = |name: &Arc<str>| NodeEntry {
            name: Arc::clone(name),
            epoch: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            since_micros: AtomicU64::new(0),
            votes_from_micros: AtomicU64::new(0),
            round_trip_nanos: AtomicU64::new(0),
            twin: AtomicBool::new(false),
            wake: Arc::default(),
            steady: Mutex::default(),
            clock: Mutex::default(),
        };
        let state = RegistryState {
            states: vec![NodeState::Connecting; names.len()],
            versions: vec![None; names.len()],
            run_ids: vec![None; names.len()],
            markers: vec![MarkerState::Unknown; names.len()],
            stamps: vec![(0, 0); names.len()],
            logged: vec![BTreeSet::new(); names.len()],
        };
        Self {
            entries: names.iter().map(entry).collect(),
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            had_quorum: AtomicBool::new(false),
            latencies: Latencies::new(names.len()),
            measures: NodeMeasures::new(names, majority(names.len())),
        }
    }

    /// Returns whether a majority of the nodes could vote at any time since this worker started.
    pub(crate) fn has_had_quorum(&self) -> bool {
        self.had_quorum.load(Ordering::Acquire)
    }

    /// Returns the name of a node: its address, without secrets.
    pub(crate) fn name(&self, node: usize) -> Arc<str> {
        Arc::clone(&self.entries[node].name)
    }

    /// Returns the number of the node's present memory epoch.
    pub(crate) fn epoch(&self, node: usize) -> u64 {
        self.entries[node].epoch.load(Ordering::Acquire)
    }

    /// Returns the time on the node's clock from which the votes of its present memory epoch count.
    pub(crate) fn votes_from(&self, node: usize) -> NodeTime {
        NodeTime::from_micros(self.entries[node].votes_from_micros.load(Ordering::Acquire))
    }

    pub(crate) fn set_votes_from(&self, node: usize, from: NodeTime) {
        self.entries[node].votes_from_micros.store(from.as_micros(), Ordering::Release);
    }

    /// Returns the node's present memory epoch, for a vote.
    pub(crate) fn node_epoch(&self, node: usize) -> NodeEpoch {
        let session = self.entries[node].sessions.load(Ordering::Acquire);
        let (epoch, since, votes_from) = (self.epoch(node), self.since(node), self.votes_from(node));
        let incarnation = Incarnation::from_number(self.entries[node].incarnation.load(Ordering::Acquire));
        NodeEpoch { epoch, session, incarnation, since, votes_from }
    }

    /// Returns the time on the node's clock at which its present memory began.
    pub(crate) fn since(&self, node: usize) -> NodeTime {
        NodeTime::from_micros(self.entries[node].since_micros.load(Ordering::Acquire))
    }

    /// Sets the time on the node's clock at which its present memory began. [`NodeRegistry::begin_epoch`] must follow.
    pub(crate) fn set_since(&self, node: usize, since: NodeTime) {
        self.entries[node].since_micros.store(since.as_micros(), Ordering::Release);
    }

    /// Sets the id of the node's present memory.
    pub(crate) fn set_incarnation(&self, node: usize, incarnation: Incarnation) {
        self.entries[node].incarnation.store(incarnation.number(), Ordering::Release);
    }

    /// Begins a new memory epoch of the node, so that its earlier grants no longer count.
    pub(crate) fn begin_epoch(&self, node: usize) {
        self.entries[node].epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the name of another node with the same run id, if there is one. Then the two names belong to one
    /// server.
    pub(crate) fn twin(&self, node: usize) -> Option<Arc<str>> {
        if !self.entries[node].twin.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        let twin = twin_of(&state.run_ids, node)?;
        Some(Arc::clone(&self.entries[twin].name))
    }

    /// Records a handshake. Stores the node's run id and version, and finds nodes that share a run id.
    pub(crate) fn connected(&self, node: usize, run_id: &Arc<str>, version: &Arc<str>) {
        self.entries[node].sessions.fetch_add(1, Ordering::AcqRel);
        let mut state = self.state();
        state.run_ids[node] = Some(Arc::clone(run_id));
        state.versions[node] = Some(Arc::clone(version));
        for (other, entry) in self.entries.iter().enumerate() {
            entry.twin.store(twin_of(&state.run_ids, other).is_some(), Ordering::Release);
        }
        self.measure(&state);
        drop(state);
        self.notify_all();
    }

    /// Records how a node's marker compares with this worker's list and settings: `Ok(true)` if the marker
    /// agrees, `Ok(false)` if the node has no marker, or the reason why the marker differs.
    pub(crate) fn set_marker_state(&self, node: usize, marker: Result<bool, VoteRejection>) {
        let marker = match marker {
            Ok(true) => MarkerState::Agrees,
            Ok(false) => MarkerState::None,
            Err(why) => MarkerState::Differs(why),
        };
        let mut state = self.state();
        if state.markers[node] == marker {
            return;
        }
        state.markers[node] = marker;
        drop(state);
        self.notify_all();
    }

    /// Records the end of a connection to a node. The decision on first markers still counts the node as
    /// reached, and still counts a marker that differed. A marker that agreed no longer counts, since the node
    /// may get another marker while it is not connected.
    pub(crate) fn disconnected(&self, node: usize) {
        let marker = &mut self.state().markers[node];
        if *marker == MarkerState::Agrees {
            *marker = MarkerState::None;
        }
    }

    /// Decides whether this worker may write a marker to a node that has none, by the rules of
    /// [`trust`](super).
    pub(crate) fn first_mark(&self) -> FirstMark {
        let state = self.state();
        let needed = majority(self.entries.len());
        let agree = state.markers.iter().filter(|marker| **marker == MarkerState::Agrees).count();
        let differs = state.markers.iter().enumerate().find_map(|(node, marker)| match marker {
            MarkerState::Differs(why) => Some((node, why)),
            _ => None,
        });
        if let Some((node, why)) = differs.filter(|_| agree < needed) {
            let (by, why) = (Arc::clone(&self.entries[node].name), Arc::new(why.clone()));
            return FirstMark::Refused(VoteRejection::Contradicted { by, why });
        }
        match state.reached() {
            Reached::Enough => FirstMark::Allowed,
            Reached::NotYet => FirstMark::NotYet,
            Reached::TooFew { met, needed } => FirstMark::Refused(VoteRejection::TooFewMet { met, needed }),
        }
    }

    /// Returns whether this worker has reached enough nodes for a decision that rests on what they store.
    pub(crate) fn reached(&self) -> Reached {
        self.state().reached()
    }

    /// Merges the stamps that `node` returned by maximum into those that this worker has seen.
    pub(crate) fn learn_stamps(&self, node: usize, stamps: &BTreeMap<Arc<str>, u64>) {
        let mut state = self.state();
        for (entry, seen) in self.entries.iter().zip(&mut state.stamps) {
            if let Some(count) =
                stamps.get(&entry.name).filter(|count| (seen.0 + 1..=STAMP_MAX).contains(*count))
            {
                *seen = (*count, node);
            }
        }
    }

    /// Returns the largest stamp of the node that this worker has seen.
    pub(crate) fn stamp(&self, node: usize) -> u64 {
        self.state().stamps[node].0
    }

    /// Returns who has seen the largest stamp of the node, for a log.
    pub(crate) fn stamp_seen_by(&self, node: usize) -> Arc<str> {
        match self.state().stamps[node].1 {
            by if by == node => "this worker".into(),
            by => Arc::clone(&self.entries[by].name),
        }
    }

    /// Returns the largest stamp of each node that this worker has seen.
    pub(crate) fn known_stamps(&self) -> Arc<[(Arc<str>, u64)]> {
        let state = self.state();
        let names = self.entries.iter().map(|entry| Arc::clone(&entry.name));
        names.zip(&state.stamps).map(|(name, (count, _))| (name, *count)).collect()
    }

    pub(crate) fn set_state(&self, node: usize, new: NodeState) {
        let mut state = self.state();
        if state.states[node] == new {
            return;
        }
        let is_first_new =
            is_new(&new) && !state.states.iter().any(|state| is_new(state) || *state == NodeState::Trusted);
        log_state(&self.entries[node].name, &new, is_first_new, &mut state.logged[node]);
        self.latencies.set_votes(node, new == NodeState::Trusted);
        state.states[node] = new;
        let votes = state.states.iter().filter(|state| **state == NodeState::Trusted).count();
        if votes >= majority(self.entries.len()) {
            self.had_quorum.store(true, Ordering::Release);
        }
        self.measure(&state);
        drop(state);
        self.notify_all();
    }

    /// Returns the measured latency of the nodes.
    pub(crate) fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    pub(crate) fn set_round_trip(&self, node: usize, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.entries[node].round_trip_nanos.store(nanos, Ordering::Relaxed);
        self.measures.round_trip(node, time);
    }

    /// Records that the node's clock has not stepped between the times `from` and `to` of the boot clock.
    pub(crate) fn set_steady(&self, node: usize, from: BootTime, to: BootTime) {
        *self.entries[node].steady.lock().unwrap_or_else(PoisonError::into_inner) = (from, to);
    }

    /// Returns whether the clocks of a majority of the nodes have not stepped against the boot clock between
    /// `from` and `to`. If so, this worker's boot clock did not stand still in that time.
    pub(crate) fn majority_was_steady(&self, from: BootTime, to: BootTime) -> bool {
        let steady = |entry: &&NodeEntry| {
            let (since, until) = *entry.steady.lock().unwrap_or_else(PoisonError::into_inner);
            since <= from && to <= until
        };
        self.entries.iter().filter(steady).count() >= majority(self.entries.len())
    }

    /// Records a sample of the node's clock.
    pub(crate) fn add_clock_sample(&self, node: usize, sample: ClockOffset) {
        let mut clock = self.entries[node].clock.lock().unwrap_or_else(PoisonError::into_inner);
        let best = clock.map_or(sample, |known| known.refine(sample));
        *clock = Some(best);
        drop(clock);
        let now = sample.taken();
        self.measures.clock_offset(node, now, || {
            let quorum = self.majority_has_reached(now, 0.0)?;
            Some(i128::from(best.node_time_at_least(now).as_micros()) - i128::from(quorum.as_micros()))
        });
    }

    /// Returns the time that the clocks of a majority of the nodes have reached when the boot clock shows
    /// `now`. Returns `None` before a majority has replied. If two names in the node list belong to one server,
    /// neither counts.
    pub(crate) fn majority_has_reached(&self, now: BootTime, drift_rate: f64) -> Option<WallTime> {
        let counts = |entry: &&NodeEntry| !entry.twin.load(Ordering::Acquire);
        let samples = self.entries.iter().map(|entry| entry.sample().filter(|_| counts(&entry)));
        quorum_clock::majority_has_reached(now, drift_rate, samples)
    }

    /// Returns the time that the clocks of no majority of the nodes have passed when the boot clock shows `now`. Returns `None`
    /// before a majority has replied.
    pub(crate) fn no_majority_is_past(&self, now: BootTime) -> Option<WallTime> {
        quorum_clock::no_majority_is_past(now, self.entries.iter().map(NodeEntry::sample))
    }

    /// Returns the signal that wakes the driver of `node` when the state of another node has changed.
    pub(crate) fn wake(&self, node: usize) -> Arc<Notify> {
        Arc::clone(&self.entries[node].wake)
    }

    fn notify_all(&self) {
        self.changed.send_replace(());
        self.entries.iter().for_each(|entry| entry.wake.notify_one());
    }

    /// Returns a receiver that is notified when the state of any node changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        let state = self.state();
        let entries = self.entries.iter().enumerate();
        let status = entries.map(|(node, entry)| NodeStatus {
            name: Arc::clone(&entry.name),
            state: match Self::reachable_twin(&state, node) {
                Some(twin) => NodeState::Refused(VoteRejection::Twin(Arc::clone(&self.entries[twin].name))),
                None => state.states[node].clone(),
            },
            version: state.versions[node].clone(),
            round_trip: match entry.round_trip_nanos.load(Ordering::Relaxed) {
                0 => None,
                nanos => Some(Duration::from_nanos(nanos)),
            },
            round_trip_p99: self.latencies.high(node),
        });
        status.collect()
    }

    /// Returns the other node with the same run id, if `node` is not unreachable. Neither of the two nodes
    /// may vote.
    fn reachable_twin(state: &RegistryState, node: usize) -> Option<usize> {
        twin_of(&state.run_ids, node).filter(|_| !matches!(state.states[node], NodeState::Unreachable(_)))
    }

    fn measure(&self, state: &RegistryState) {
        self.measures.states(state.states.iter().enumerate().map(|(node, of_node)| NodeReport {
            up: !matches!(of_node, NodeState::Connecting | NodeState::Unreachable(_)),
            quarantined: matches!(of_node, NodeState::Quarantined { .. }),
            votes: *of_node == NodeState::Trusted && Self::reachable_twin(state, node).is_none(),
        }));
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn twin_of(run_ids: &[Option<Arc<str>>], node: usize) -> Option<usize> {
    let mine = run_ids[node].as_ref()?;
    (0..run_ids.len()).find(|&other| other != node && run_ids[other].as_ref() == Some(mine))
}
