use super::{
    node::Core,
    record::{End, GENERATIONS, Mark},
};
use crate::model::{NODES, Name};

/// Workers at most.
pub const WORKERS: usize = 3;
/// Leaders at most.
pub const LEADERS: usize = 3;
/// All of them.
pub(super) const ACTORS: usize = WORKERS + LEADERS;

/// The states of nodes, workers and leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) sites: [Site; NODES],
    pub(super) workers: [Worker; WORKERS],
    pub(super) leaders: [Leader; LEADERS],
    /// The number of memories that have been lost. It serves as the clock of memories.
    pub(super) epoch: u8,
    /// The number of them that came back with a record.
    pub(super) returned: u8,
    /// The actors whose leases are over by their own clocks, a bit each.
    pub(super) over: u8,
    /// The number of starts of each generation.
    pub(super) starts: [u8; GENERATIONS],
    /// Set if a handler has ended.
    pub(super) finished: bool,
    /// The end in the history.
    pub(super) history: Option<End>,
    /// A property that was broken on the way here.
    pub(super) broken: Option<Broken>,
}

/// The properties of steps.
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

/// One node, and the answers that each actor has from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Site {
    pub(super) core: Core,
    /// The lost memory after which its own began; 0 is before the tick.
    pub(super) since: u8,
    /// By actor: 0, or the answer to its present request. Its meaning depends on the request.
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
    /// Reads the ledger. Lines: the open record of a node that counts, and whether it is old enough.
    #[default]
    Reading,
    /// Acquires the claim. Lines: [`FREE`] or [`COUNTED`].
    Acquiring,
    /// Counts its attempt. Lines: [`OLD`] or [`YOUNG`].
    Counting,
    /// Takes its count back (without [`Rule::Kept`](super::Rule::Kept)).
    TakingBack,
    /// The handler runs.
    Running,
    /// Records that it is done.
    Completing,
    /// Did not get the claim.
    Off,
}

/// A grant of a slot without and with a count.
pub(super) const FREE: u8 = 1;
pub(super) const COUNTED: u8 = 2;
/// A count or a write at a node that is old enough, and at one that is not.
pub(super) const OLD: u8 = 1;
pub(super) const YOUNG: u8 = 2;

/// A leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Leader {
    pub(super) phase: LeaderPhase,
    /// The memory that its writes need: the beginning of its term.
    pub(super) at: u8,
    /// Set if a majority of the nodes in its seal was older than the tick.
    pub(super) remembering: bool,
    /// The record that it writes or has written.
    pub(super) target: Mark,
    /// The record that it overwrites.
    pub(super) seen: Mark,
    /// An *open* of its own, and the record that this overwrites: the request may run late.
    pub(super) opened: [Mark; 2],
    /// The slot that it has taken, in which it records *void*.
    pub(super) voids: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum LeaderPhase {
    /// Is not elected yet.
    #[default]
    Waiting,
    /// Seals. Lines: the record that was found, and the node's memory.
    Sealing,
    /// Writes `target`. Lines: [`OLD`] or [`YOUNG`].
    Writing,
    /// Has opened the run. Lines: [`FREE`], of a slot past its horizon.
    Watching,
    /// Acquires the claim to end the run. Lines: [`FREE`] or [`COUNTED`].
    Claiming,
    /// Counts, to own the slot. Lines: [`OLD`] or [`YOUNG`].
    Voiding,
    /// Holds the claim of an orphaned run, and raises the count. Lines: [`OLD`].
    Filling,
    /// Runs the handler itself.
    Running,
    /// Has entered the end in the history, or found the run pruned.
    Ended,
}

/// One node's answer to a seal or a read, packed into a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) mark: Mark,
    pub(super) older: bool,
    pub(super) pruned: bool,
}

impl Found {
    pub(super) fn line(self) -> u8 {
        1 + (self.mark.code() << 2 | u8::from(self.older) << 1 | u8::from(self.pruned))
    }

    pub(super) fn of_line(line: u8) -> Option<Self> {
        let bits = line.checked_sub(1)?;
        Some(Self { mark: Mark::of_code(bits >> 2), older: bits & 2 != 0, pruned: bits & 1 != 0 })
    }
}

impl State {
    /// A new phase of an actor: answers to earlier requests no longer count.
    pub(super) fn clear(&mut self, actor: usize) {
        self.sites.iter_mut().for_each(|site| site.lines[actor] = 0);
    }

    pub(super) fn is_over(&self, actor: usize) -> bool {
        self.over >> actor & 1 == 1
    }

    pub(super) fn started(&self) -> bool {
        self.starts.iter().any(|starts| *starts > 0)
    }

    pub(super) fn breaks(&mut self, property: Broken) {
        self.broken.get_or_insert(property);
    }
}
