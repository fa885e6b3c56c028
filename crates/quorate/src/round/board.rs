use super::{Distrust, Recall, clock, majority, offset::ClockOffset};
use crate::{
    env::{BootTime, WallTime},
    node::{Cause, NodeTime},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// How one node stands with this worker.
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
        why: Distrust,
    },
    /// It is reachable and has no vote.
    Refused(Distrust),
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
pub(crate) struct Board {
    seats: Vec<Seat>,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Seat {
    name: Arc<str>,
    epoch: AtomicU64,
    /// How many handshakes there were.
    sessions: AtomicU64,
    since_micros: AtomicU64,
    votes_from_micros: AtomicU64,
    round_trip_nanos: AtomicU64,
    twin: AtomicBool,
    /// From when to when, by our clock, its clock is known to have kept step with ours.
    steady: Mutex<(BootTime, BootTime)>,
    /// What its replies have told of its clock. Outlives a connection.
    clock: Mutex<Option<ClockOffset>>,
}

#[derive(Debug)]
struct Table {
    states: Vec<NodeState>,
    versions: Vec<Option<Arc<str>>>,
    run_ids: Vec<Option<Arc<str>>>,
    /// What each node's marker, when it was last met, says of what this worker was told: nothing, if it had none.
    words: Vec<Option<Result<(), Distrust>>>,
}

impl Board {
    pub(crate) fn new(names: &[Arc<str>]) -> Self {
        let seat = |name: &Arc<str>| Seat {
            name: Arc::clone(name),
            epoch: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            since_micros: AtomicU64::new(0),
            votes_from_micros: AtomicU64::new(0),
            round_trip_nanos: AtomicU64::new(0),
            twin: AtomicBool::new(false),
            steady: Mutex::default(),
            clock: Mutex::default(),
        };
        let table = Table {
            states: vec![NodeState::Connecting; names.len()],
            versions: vec![None; names.len()],
            run_ids: vec![None; names.len()],
            words: vec![None; names.len()],
        };
        Self {
            seats: names.iter().map(seat).collect(),
            table: Mutex::new(table),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) fn name(&self, node: usize) -> &Arc<str> {
        &self.seats[node].name
    }

    /// Which memory of the node is the present one.
    pub(crate) fn epoch(&self, node: usize) -> u64 {
        self.seats[node].epoch.load(Ordering::Acquire)
    }

    /// From when the node's present memory votes, by its clock.
    pub(crate) fn votes_from(&self, node: usize) -> NodeTime {
        NodeTime::from_micros(self.seats[node].votes_from_micros.load(Ordering::Acquire))
    }

    pub(crate) fn set_votes_from(&self, node: usize, from: NodeTime) {
        self.seats[node].votes_from_micros.store(from.as_micros(), Ordering::Release);
    }

    /// What is known of the node's present memory, for a vote that it gives.
    pub(crate) fn recall(&self, node: usize) -> Recall {
        let session = self.seats[node].sessions.load(Ordering::Acquire);
        let (epoch, since, votes_from) = (self.epoch(node), self.since(node), self.votes_from(node));
        Recall { epoch, session, since, votes_from }
    }

    /// When the node's present memory began, by its clock.
    pub(crate) fn since(&self, node: usize) -> NodeTime {
        NodeTime::from_micros(self.seats[node].since_micros.load(Ordering::Acquire))
    }

    /// When the node's present memory began, by its clock. To be followed by [`Board::begin_epoch`].
    pub(crate) fn set_since(&self, node: usize, since: NodeTime) {
        self.seats[node].since_micros.store(since.as_micros(), Ordering::Release);
    }

    /// A new memory of the node: what it granted before no longer counts.
    pub(crate) fn begin_epoch(&self, node: usize) {
        self.seats[node].epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether another node of the list has the same run id, and which.
    pub(crate) fn twin(&self, node: usize) -> Option<Arc<str>> {
        if !self.seats[node].twin.load(Ordering::Acquire) {
            return None;
        }
        let table = self.table();
        let twin = twin_of(&table.run_ids, node)?;
        Some(Arc::clone(&self.seats[twin].name))
    }

    /// Notes a node's run id and looks again who is whose twin.
    pub(crate) fn met(&self, node: usize, run_id: &Arc<str>, version: &Arc<str>) {
        self.seats[node].sessions.fetch_add(1, Ordering::AcqRel);
        let mut table = self.table();
        table.run_ids[node] = Some(Arc::clone(run_id));
        table.versions[node] = Some(Arc::clone(version));
        for (other, seat) in self.seats.iter().enumerate() {
            seat.twin.store(twin_of(&table.run_ids, other).is_some(), Ordering::Release);
        }
        drop(table);
        self.changed.send_replace(());
    }

    /// Notes what a node's marker says of the node set and the `max_ttl` that this worker was told.
    pub(crate) fn heard(&self, node: usize, word: Option<Result<(), Distrust>>) {
        self.table().words[node] = word;
    }

    /// Why this worker may write no marker where there is none: a node says that it was told something wrong,
    /// and no more nodes agree with it than say so. Otherwise a worker with a wrong list would make nodes that
    /// forgot its own, and could lead by them while another leads by the rest.
    pub(crate) fn contradiction(&self) -> Option<Distrust> {
        let table = self.table();
        let against = table.words.iter().enumerate().filter_map(|(node, word)| match word {
            Some(Err(why)) => Some((node, why)),
            _ => None,
        });
        let agree = table.words.iter().filter(|word| matches!(word, Some(Ok(())))).count();
        if against.clone().count() < agree {
            return None;
        }
        let (node, why) = against.clone().next()?;
        Some(Distrust::Contradicted { by: Arc::clone(&self.seats[node].name), why: Arc::new(why.clone()) })
    }

    pub(crate) fn set_state(&self, node: usize, state: NodeState) {
        let mut table = self.table();
        if table.states[node] == state {
            return;
        }
        tell(&self.seats[node].name, &table.states[node], &state);
        table.states[node] = state;
        drop(table);
        self.changed.send_replace(());
    }

    pub(crate) fn set_round_trip(&self, node: usize, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.seats[node].round_trip_nanos.store(nanos, Ordering::Relaxed);
    }

    /// The node's clock has kept step with ours from `from` to `to`.
    pub(crate) fn set_steady(&self, node: usize, from: BootTime, to: BootTime) {
        *self.seats[node].steady.lock().unwrap_or_else(PoisonError::into_inner) = (from, to);
    }

    /// Whether a majority of the clocks have kept step with ours from `from` to `to`: then ours did not stand
    /// still, and theirs did not jump together.
    pub(crate) fn most_were_steady(&self, from: BootTime, to: BootTime) -> bool {
        let steady = |seat: &&Seat| {
            let (since, until) = *seat.steady.lock().unwrap_or_else(PoisonError::into_inner);
            since <= from && to <= until
        };
        self.seats.iter().filter(steady).count() >= majority(self.seats.len())
    }

    /// A reply has told of the node's clock.
    pub(crate) fn note_clock(&self, node: usize, sample: ClockOffset) {
        let mut clock = self.seats[node].clock.lock().unwrap_or_else(PoisonError::into_inner);
        *clock = Some(clock.map_or(sample, |known| known.refine(sample)));
    }

    /// What the clocks of a majority of the nodes have reached when ours shows `now`; `None` before a majority has
    /// been heard. Two names of one server are no two clocks.
    pub(crate) fn most_have_reached(&self, now: BootTime, drift_rate: f64) -> Option<WallTime> {
        let heard = self.seats.iter().map(|seat| {
            let clock = *seat.clock.lock().unwrap_or_else(PoisonError::into_inner);
            clock.filter(|_| !seat.twin.load(Ordering::Acquire))
        });
        clock::most_have_reached(now, drift_rate, heard)
    }

    /// A signal for every change of a state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        let table = self.table();
        let seats = self.seats.iter().enumerate();
        let status = seats.map(|(node, seat)| NodeStatus {
            name: Arc::clone(&seat.name),
            state: match twin_of(&table.run_ids, node) {
                Some(twin) if !matches!(table.states[node], NodeState::Unreachable(_)) => {
                    NodeState::Refused(Distrust::Twin(Arc::clone(&self.seats[twin].name)))
                }
                _ => table.states[node].clone(),
            },
            version: table.versions[node].clone(),
            round_trip: match seat.round_trip_nanos.load(Ordering::Relaxed) {
                0 => None,
                nanos => Some(Duration::from_nanos(nanos)),
            },
        });
        status.collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn twin_of(run_ids: &[Option<Arc<str>>], node: usize) -> Option<usize> {
    let mine = run_ids[node].as_ref()?;
    (0..run_ids.len()).find(|&other| other != node && run_ids[other].as_ref() == Some(mine))
}

/// One line a change, for whoever must find out at 3 a.m.
fn tell(name: &str, before: &NodeState, after: &NodeState) {
    match after {
        NodeState::Connecting => {}
        NodeState::Trusted => tracing::info!(node = name, "node votes"),
        NodeState::Quarantined { why, .. } => tracing::warn!(node = name, "node does not vote yet: {why}"),
        NodeState::Refused(why) => tracing::error!(node = name, "node has no vote: {why}"),
        // A node that stays away is told once, not at every attempt.
        NodeState::Unreachable(_) if matches!(before, NodeState::Unreachable(_)) => {}
        // We went away, not the node.
        NodeState::Unreachable(Cause::Stopped) => {}
        NodeState::Unreachable(cause) => tracing::warn!(node = name, "node is gone: {cause}"),
    }
}
