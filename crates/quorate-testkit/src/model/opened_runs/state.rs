//! The state of the model of opened runs. The *open* record of a generation contains `at`: a node counts for
//! the generation only if its memory began before `at`.

use super::{
    node::Core,
    record::{End, GENERATIONS, Stage},
};
use crate::model::{NODES, Name};

/// The maximum number of workers.
pub const WORKERS: usize = 3;
/// The maximum number of leaders.
pub const LEADERS: usize = 3;
/// The maximum number of actors: workers and leaders.
pub(super) const ACTORS: usize = WORKERS + LEADERS;

/// The states of the ledger, of nodes, workers and leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) ledger: Ledger,
    pub(super) sites: [Site; NODES],
    pub(super) workers: [Worker; WORKERS],
    pub(super) leaders: [Leader; LEADERS],
    /// The number of memory losses so far. The model uses this number as the time at which a memory begins.
    pub(super) epoch: u8,
    /// The actors whose leases are over by their own clocks, each as a bit.
    pub(super) over: u8,
    /// For each generation, the number of its starts so far.
    pub(super) starts: [u8; GENERATIONS],
    /// True if a handler has ended.
    pub(super) finished: bool,
    /// The end of the run in the history, if it has been entered.
    pub(super) history: Option<End>,
    /// The property that a step has broken, if any.
    pub(super) broken: Option<Broken>,
}

/// The properties that a single step can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    Once,
    Skipped,
    Done,
    Agreed,
    Closed,
    Alone,
    Ended,
}

/// The ledger, whose safety the model [`copies`](crate::model::copies) shows: one record of the run, which only the
/// leader of the latest term writes, and which stays although nodes forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Ledger {
    /// The term that took the ledger over last.
    pub(super) term: u8,
    pub(super) record: Option<Stage>,
    /// True if the run was pruned.
    pub(super) pruned: bool,
}

/// One node's slots, and its answers to each actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Site {
    pub(super) core: Core,
    /// The value of [`State::epoch`] when the node's memory began; 0 if it began before the tick.
    pub(super) since: u8,
    /// For each actor, the node's answer to the actor's present request, or 0 if there is none. The meaning
    /// of the number depends on the actor's phase: see [`WorkerPhase`] and [`LeaderPhase`].
    pub(super) lines: [u8; ACTORS],
    pub(super) name: Name,
}

/// A worker, which makes one attempt on one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Worker {
    pub(super) phase: WorkerPhase,
    pub(super) generation: u8,
    pub(super) at: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum WorkerPhase {
    /// The worker reads the ledger.
    #[default]
    Reading,
    /// The worker acquires the claim. An answer is [`FREE`] or [`COUNTED`].
    Acquiring,
    /// The worker counts its attempt. An answer is [`OLD`] or [`YOUNG`].
    Counting,
    /// The worker takes its count back (only without [`Rule::Kept`](super::Rule::Kept)).
    TakingBack,
    /// The worker's handler runs.
    Running,
    /// The worker records that the run is done.
    Completing,
    /// The worker was refused the claim, or has given up.
    Off,
}

/// The two answers of a node that granted the claim of a slot: either no attempt has been counted there, or one
/// has.
pub(super) const FREE: u8 = 1;
pub(super) const COUNTED: u8 = 2;
/// The two answers of a node that accepted a count: either the node's memory is old enough for the
/// answer to count, or it is too young.
pub(super) const OLD: u8 = 1;
pub(super) const YOUNG: u8 = 2;

/// The bits of a node's answer to a leader that watches a slot: the claim is free; it is free after the slot's horizon;
/// the node's memory is too young for the generation; the claim is free and no attempt is counted (only without
/// [`Rule::VoidByClaim`](super::Rule::VoidByClaim)).
pub(super) const IS_FREE: u8 = 1;
pub(super) const IS_LATE: u8 = 2;
pub(super) const FORGOT: u8 = 4;
pub(super) const IS_UNTAKEN: u8 = 8;

/// A leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Leader {
    pub(super) phase: LeaderPhase,
    /// The value of [`State::epoch`] when the leader's term began.
    pub(super) began: u8,
    /// The record that the leader writes or has written, or has found.
    pub(super) target: Option<Stage>,
    /// The generation whose slot the leader owns, and in which it records *void*. It is 0 if there is none.
    pub(super) voids: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum LeaderPhase {
    /// The leader is not elected yet.
    #[default]
    Waiting,
    /// The leader is elected, and takes the ledger over.
    Elected,
    /// The leader writes `target`.
    Writing,
    /// `target` is in the ledger: the leader starts the run itself, or enters its end in the history.
    Written,
    /// The leader has opened the run and watches its slot. An answer has a bit for each fact that the node shows, such
    /// as [`IS_FREE`].
    Watching,
    /// The leader acquires the claim to end the run. An answer is [`FREE`] or [`COUNTED`].
    Claiming,
    /// The leader asks the nodes to count its attempt, so that it owns the slot. An answer is [`OLD`] or
    /// [`YOUNG`].
    Voiding,
    /// The leader holds the claim and will treat the generation as lost. Before that, it makes sure that a
    /// majority stores a count. The only answer is [`OLD`].
    Filling,
    /// The leader runs the handler itself.
    Running,
    /// The leader is done: it has entered the end in the history, or found the run pruned.
    Ended,
}

impl State {
    /// Clears the answers for an actor that begins a new phase, because answers to its earlier requests no
    /// longer count.
    pub(super) fn clear(&mut self, actor: usize) {
        self.sites.iter_mut().for_each(|site| site.lines[actor] = 0);
    }

    pub(super) fn is_over(&self, actor: usize) -> bool {
        self.over >> actor & 1 == 1
    }

    pub(super) fn started(&self) -> bool {
        self.starts.iter().any(|starts| *starts > 0)
    }

    /// Returns `true` if a leader that takes the ledger over now finds the run as skipped, although it has started.
    pub(super) fn finds_skipped(&self) -> bool {
        self.started() && self.ledger.record == Some(Stage::Closed(End::Skipped))
    }

    /// Returns `true` if a leader that takes the ledger over now does not find the end in the history.
    pub(super) fn finds_other_end(&self) -> bool {
        let found = self.ledger.record.and_then(Stage::end);
        self.history.is_some() && !self.ledger.pruned && found != self.history
    }

    pub(super) fn breaks(&mut self, property: Broken) {
        self.broken.get_or_insert(property);
    }
}
