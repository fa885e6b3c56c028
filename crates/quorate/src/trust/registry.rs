use crate::{
    config::majority,
    env::{BootTime, WallTime},
    node::{Cause, NodeTime},
    trust::{NodeEpoch, QuarantineReason, VoteRejection, clock_offset::ClockOffset, quorum_clock},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The most causes that are logged of one node before it votes again.
const LOGGED_MAX: usize = 16;

/// The state of one node, as this worker sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeState {
    /// The first handshake is under way.
    Connecting,
    /// It votes.
    Trusted,
    /// It is reachable and will vote once our boot clock shows `until`.
    Quarantined {
        /// When.
        until: BootTime,
        /// Why not now.
        why: VoteRejection,
    },
    /// It is reachable and has no vote.
    Refused(VoteRejection),
    /// There is no connection.
    Unreachable(Cause),
}

/// What this worker knows of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// Its name: the address, without secrets.
    pub name: Arc<str>,
    /// How it stands.
    pub state: NodeState,
    /// The server's version, once a handshake has told.
    pub version: Option<Arc<str>>,
    /// The last round trip.
    pub round_trip: Option<Duration>,
}

/// What drivers write about their nodes and others read. No decision is taken here.
#[derive(Debug)]
pub(crate) struct NodeRegistry {
    entries: Vec<NodeEntry>,
    table: Mutex<RegistryState>,
    changed: watch::Sender<()>,
    /// Whether a majority has voted at one time.
    had_quorum: AtomicBool,
}

#[derive(Debug)]
struct NodeEntry {
    name: Arc<str>,
    epoch: AtomicU64,
    /// How many handshakes there were.
    sessions: AtomicU64,
    since_micros: AtomicU64,
    votes_from_micros: AtomicU64,
    round_trip_nanos: AtomicU64,
    twin: AtomicBool,
    /// Wakes the node's driver where the state of another node has changed. One for each driver, so that they wake in the
    /// order of the nodes: one seed of the simulation is one history.
    wake: Arc<Notify>,
    /// From when to when, by our clock, its clock is known to have kept step with ours.
    steady: Mutex<(BootTime, BootTime)>,
    /// What its replies have told of its clock. Outlives a connection.
    clock: Mutex<Option<ClockOffset>>,
}

#[derive(Debug)]
struct RegistryState {
    states: Vec<NodeState>,
    versions: Vec<Option<Arc<str>>>,
    run_ids: Vec<Option<Arc<str>>>,
    /// What each node's marker said of this worker's node list and shared settings when it was last met.
    words: Vec<MarkerState>,
    /// The lines that were logged of each node since it last voted: each is logged once.
    logged: Vec<BTreeSet<String>>,
}

/// What one node's marker says of this worker's node list and shared settings.
#[derive(Clone, Debug, PartialEq)]
enum MarkerState {
    /// The node has not been met.
    Unmet,
    /// It was met, and says neither.
    Met,
    /// It has them.
    Agrees,
    /// It has others.
    Refuses(VoteRejection),
}

/// Whether a worker may mark a node that has no marker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FirstMark {
    /// It may.
    Allowed,
    /// The first handshake with another node is under way.
    NotYet,
    /// It may not, as things are.
    Refused(VoteRejection),
}

impl NodeRegistry {
    pub(crate) fn new(names: &[Arc<str>]) -> Self {
        let entry = |name: &Arc<str>| NodeEntry {
            name: Arc::clone(name),
            epoch: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            since_micros: AtomicU64::new(0),
            votes_from_micros: AtomicU64::new(0),
            round_trip_nanos: AtomicU64::new(0),
            twin: AtomicBool::new(false),
            wake: Arc::default(),
            steady: Mutex::default(),
            clock: Mutex::default(),
        };
        let table = RegistryState {
            states: vec![NodeState::Connecting; names.len()],
            versions: vec![None; names.len()],
            run_ids: vec![None; names.len()],
            words: vec![MarkerState::Unmet; names.len()],
            logged: vec![BTreeSet::new(); names.len()],
        };
        Self {
            entries: names.iter().map(entry).collect(),
            table: Mutex::new(table),
            changed: watch::Sender::new(()),
            had_quorum: AtomicBool::new(false),
        }
    }

    /// Whether a majority has voted at one time since this worker started.
    pub(crate) fn has_had_quorum(&self) -> bool {
        self.had_quorum.load(Ordering::Acquire)
    }

    /// Returns the name of a node: its address, without secrets.
    pub(crate) fn name(&self, node: usize) -> Arc<str> {
        Arc::clone(&self.entries[node].name)
    }

    /// Which memory of the node is the present one.
    pub(crate) fn epoch(&self, node: usize) -> u64 {
        self.entries[node].epoch.load(Ordering::Acquire)
    }

    /// From when the node's present memory votes, by its clock.
    pub(crate) fn votes_from(&self, node: usize) -> NodeTime {
        NodeTime::from_micros(self.entries[node].votes_from_micros.load(Ordering::Acquire))
    }

    pub(crate) fn set_votes_from(&self, node: usize, from: NodeTime) {
        self.entries[node].votes_from_micros.store(from.as_micros(), Ordering::Release);
    }

    /// What is known of the node's present memory, for a vote that it gives.
    pub(crate) fn node_epoch(&self, node: usize) -> NodeEpoch {
        let session = self.entries[node].sessions.load(Ordering::Acquire);
        let (epoch, since, votes_from) = (self.epoch(node), self.since(node), self.votes_from(node));
        NodeEpoch { epoch, session, since, votes_from }
    }

    /// When the node's present memory began, by its clock.
    pub(crate) fn since(&self, node: usize) -> NodeTime {
        NodeTime::from_micros(self.entries[node].since_micros.load(Ordering::Acquire))
    }

    /// When the node's present memory began, by its clock. To be followed by [`NodeRegistry::begin_epoch`].
    pub(crate) fn set_since(&self, node: usize, since: NodeTime) {
        self.entries[node].since_micros.store(since.as_micros(), Ordering::Release);
    }

    /// A new memory of the node: what it granted before no longer counts.
    pub(crate) fn begin_epoch(&self, node: usize) {
        self.entries[node].epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether another node of the list has the same run id, and which.
    pub(crate) fn twin(&self, node: usize) -> Option<Arc<str>> {
        if !self.entries[node].twin.load(Ordering::Acquire) {
            return None;
        }
        let table = self.table();
        let twin = twin_of(&table.run_ids, node)?;
        Some(Arc::clone(&self.entries[twin].name))
    }

    /// Notes a node's run id and looks again who is whose twin.
    pub(crate) fn met(&self, node: usize, run_id: &Arc<str>, version: &Arc<str>) {
        self.entries[node].sessions.fetch_add(1, Ordering::AcqRel);
        let mut table = self.table();
        table.run_ids[node] = Some(Arc::clone(run_id));
        table.versions[node] = Some(Arc::clone(version));
        for (other, entry) in self.entries.iter().enumerate() {
            entry.twin.store(twin_of(&table.run_ids, other).is_some(), Ordering::Release);
        }
        drop(table);
        self.tell_all();
    }

    /// Notes what a node's marker says of this worker's node list and shared settings: whether it has one that agrees,
    /// or why it does not agree.
    pub(crate) fn heard(&self, node: usize, marker: Result<bool, VoteRejection>) {
        let word = match marker {
            Ok(true) => MarkerState::Agrees,
            Ok(false) => MarkerState::Met,
            Err(why) => MarkerState::Refuses(why),
        };
        let mut table = self.table();
        if table.words[node] == word {
            return;
        }
        table.words[node] = word;
        drop(table);
        self.tell_all();
    }

    /// The connection to a node is over. That it was met counts on, and that it refused this worker; that it agreed
    /// does not: its marker may be another by now.
    pub(crate) fn parted(&self, node: usize) {
        let word = &mut self.table().words[node];
        if *word == MarkerState::Agrees {
            *word = MarkerState::Met;
        }
    }

    /// Whether this worker may mark a node that has no marker: see [`round`](super).
    pub(crate) fn first_mark(&self) -> FirstMark {
        let table = self.table();
        let needed = majority(self.entries.len());
        let agree = table.words.iter().filter(|word| **word == MarkerState::Agrees).count();
        let refuses = table.words.iter().enumerate().find_map(|(node, word)| match word {
            MarkerState::Refuses(why) => Some((node, why)),
            _ => None,
        });
        if let Some((node, why)) = refuses.filter(|_| agree < needed) {
            let (by, why) = (Arc::clone(&self.entries[node].name), Arc::new(why.clone()));
            return FirstMark::Refused(VoteRejection::Contradicted { by, why });
        }
        let nodes = || table.words.iter().zip(&table.states);
        if nodes().any(|(word, state)| *word == MarkerState::Unmet && *state == NodeState::Connecting) {
            return FirstMark::NotYet;
        }
        // Two names of one server are one node.
        let met: BTreeSet<&Arc<str>> = table
            .words
            .iter()
            .zip(&table.run_ids)
            .filter(|(word, _)| **word != MarkerState::Unmet)
            .filter_map(|(_, run_id)| run_id.as_ref())
            .collect();
        match met.len() {
            met if met < needed => FirstMark::Refused(VoteRejection::TooFewMet { met, needed }),
            _ => FirstMark::Allowed,
        }
    }

    pub(crate) fn set_state(&self, node: usize, state: NodeState) {
        let mut table = self.table();
        if table.states[node] == state {
            return;
        }
        let is_first_new =
            is_new(&state) && !table.states.iter().any(|state| is_new(state) || *state == NodeState::Trusted);
        log(&self.entries[node].name, &state, is_first_new, &mut table.logged[node]);
        table.states[node] = state;
        let votes = table.states.iter().filter(|state| **state == NodeState::Trusted).count();
        if votes >= majority(self.entries.len()) {
            self.had_quorum.store(true, Ordering::Release);
        }
        drop(table);
        self.tell_all();
    }

    pub(crate) fn set_round_trip(&self, node: usize, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.entries[node].round_trip_nanos.store(nanos, Ordering::Relaxed);
    }

    /// The node's clock has kept step with ours from `from` to `to`.
    pub(crate) fn set_steady(&self, node: usize, from: BootTime, to: BootTime) {
        *self.entries[node].steady.lock().unwrap_or_else(PoisonError::into_inner) = (from, to);
    }

    /// Whether a majority of the clocks have kept step with ours from `from` to `to`: then ours did not stand
    /// still, and theirs did not jump together.
    pub(crate) fn most_were_steady(&self, from: BootTime, to: BootTime) -> bool {
        let steady = |entry: &&NodeEntry| {
            let (since, until) = *entry.steady.lock().unwrap_or_else(PoisonError::into_inner);
            since <= from && to <= until
        };
        self.entries.iter().filter(steady).count() >= majority(self.entries.len())
    }

    /// A reply has told of the node's clock.
    pub(crate) fn note_clock(&self, node: usize, sample: ClockOffset) {
        let mut clock = self.entries[node].clock.lock().unwrap_or_else(PoisonError::into_inner);
        *clock = Some(clock.map_or(sample, |known| known.refine(sample)));
    }

    /// What the clocks of a majority of the nodes have reached when ours shows `now`; `None` before a majority has
    /// been heard. Two names of one server are no two clocks.
    pub(crate) fn most_have_reached(&self, now: BootTime, drift_rate: f64) -> Option<WallTime> {
        let heard = self.entries.iter().map(|entry| {
            let clock = *entry.clock.lock().unwrap_or_else(PoisonError::into_inner);
            clock.filter(|_| !entry.twin.load(Ordering::Acquire))
        });
        quorum_clock::most_have_reached(now, drift_rate, heard)
    }

    /// Wakes the driver of `node` where the state of any node has changed.
    pub(crate) fn wake(&self, node: usize) -> Arc<Notify> {
        Arc::clone(&self.entries[node].wake)
    }

    fn tell_all(&self) {
        self.changed.send_replace(());
        self.entries.iter().for_each(|entry| entry.wake.notify_one());
    }

    /// A signal for every change of a state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        let table = self.table();
        let entries = self.entries.iter().enumerate();
        let status = entries.map(|(node, entry)| NodeStatus {
            name: Arc::clone(&entry.name),
            state: match twin_of(&table.run_ids, node) {
                Some(twin) if !matches!(table.states[node], NodeState::Unreachable(_)) => {
                    NodeState::Refused(VoteRejection::Twin(Arc::clone(&self.entries[twin].name)))
                }
                _ => table.states[node].clone(),
            },
            version: table.versions[node].clone(),
            round_trip: match entry.round_trip_nanos.load(Ordering::Relaxed) {
                0 => None,
                nanos => Some(Duration::from_nanos(nanos)),
            },
        });
        status.collect()
    }

    fn table(&self) -> MutexGuard<'_, RegistryState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn twin_of(run_ids: &[Option<Arc<str>>], node: usize) -> Option<usize> {
    let mine = run_ids[node].as_ref()?;
    (0..run_ids.len()).find(|&other| other != node && run_ids[other].as_ref() == Some(mine))
}

/// Returns whether the node is in quarantine because it has no marker yet.
fn is_new(state: &NodeState) -> bool {
    let NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } = state else {
        return false;
    };
    *reason == QuarantineReason::Unmarked
}

/// Logs the state of a node, unless it was logged since the node last voted: a node whose state changes back and forth is logged
/// once for each cause. The first new node of a set is a warning that says how to skip the wait, the others follow at INFO.
fn log(name: &str, state: &NodeState, is_first_new: bool, logged: &mut BTreeSet<String>) {
    let cause = match state {
        NodeState::Connecting | NodeState::Unreachable(Cause::Stopped) => return,
        NodeState::Trusted => {
            logged.clear();
            return tracing::info!(node = name, "node votes");
        }
        // The text has the remaining time in it.
        NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } => {
            format!("{reason:?}")
        }
        NodeState::Quarantined { why, .. } | NodeState::Refused(why) => why.to_string(),
        NodeState::Unreachable(cause) => cause.to_string(),
    };
    if logged.len() >= LOGGED_MAX || !logged.insert(cause) {
        return;
    }
    match state {
        NodeState::Quarantined { why: VoteRejection::Quarantined { remaining, .. }, .. } if is_first_new => {
            tracing::warn!(
                node = name,
                "new nodes do not vote for {remaining:.0?}, since a new node cannot be told from one that lost its memory; if \
                 no worker has used them before, skip this with `quorate nodes trust`, Quorum::trust_nodes, or (for \
                 development and tests) trust_new_nodes"
            );
        }
        NodeState::Quarantined { why, .. } if is_new(state) => {
            tracing::info!(node = name, "node does not vote yet: {why}");
        }
        NodeState::Quarantined { why, .. } => tracing::warn!(node = name, "node does not vote yet: {why}"),
        NodeState::Refused(why) => tracing::error!(node = name, "node has no vote: {why}"),
        NodeState::Unreachable(cause) => tracing::warn!(node = name, "node is unreachable: {cause}"),
        NodeState::Connecting | NodeState::Trusted => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_noted_once_until_the_node_votes() {
        let mut logged = BTreeSet::new();
        let away = NodeState::Unreachable(Cause::TimedOut);
        let waits = |seconds| NodeState::Quarantined {
            until: BootTime::default(),
            why: VoteRejection::Quarantined {
                reason: QuarantineReason::Unmarked,
                remaining: Duration::from_secs(seconds),
            },
        };
        log("a", &waits(30), true, &mut logged);
        log("a", &away, false, &mut logged);
        log("a", &waits(20), true, &mut logged);
        assert_eq!(logged.len(), 2, "the time that remains makes no other cause");
        log("a", &NodeState::Trusted, false, &mut logged);
        assert!(logged.is_empty());
        assert!(is_new(&waits(1)) && !is_new(&away));
    }
}
