//! The state of the model: nodes, leaders of rising terms, workers, and one run. Every field is small, because a search
//! keeps millions of states.

use super::{super::Name, LEADERS, WORKERS, WRITES};
use quorate::{
    ledger::copies::{Phase, Standing},
    node::copy::Register,
};

/// The record of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) enum Value {
    /// There is none.
    #[default]
    Absent,
    /// The run was skipped.
    Skipped,
    /// It is done.
    Done,
    /// It started, and its end is not known.
    Lost,
    /// After a founding: it may have started before.
    Unknown,
    /// A leader executes it.
    Direct(Generation),
    /// It is assigned to a worker.
    Assigned(Generation, u8),
}

/// One attempt at the run: the term of the leader that created it, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Generation {
    pub(super) term: u8,
    pub(super) number: u8,
}

impl Value {
    /// Returns the attempt that the record is, if it is one.
    pub(super) const fn generation(self) -> Option<Generation> {
        match self {
            Self::Direct(generation) | Self::Assigned(generation, _) => Some(generation),
            _ => None,
        }
    }

    pub(super) const fn is_assigned(self) -> bool {
        matches!(self, Self::Assigned(..))
    }
}

/// The end that a worker reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum End {
    Done,
    NotStarted,
}

/// The copy of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Node {
    /// The leader that sealed it, in its present memory. Zero for none, one for the last leader before the history.
    pub(super) seal: u8,
    /// Its mark: zero for none.
    pub(super) mark: u8,
    pub(super) value: Value,
    /// The stamp of the record. Zeros if there is none.
    pub(super) stamp: (u8, u8),
    /// Its register of the assignment.
    pub(super) register: Option<Register>,
    pub(super) end: Option<End>,
    /// True while it is in quarantine.
    pub(super) is_silent: bool,
}

/// The messages and facts between a node and one leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Line {
    pub(super) standing: Standing,
    /// True if the leader's requests are for the node's present memory.
    pub(super) is_current: bool,
    /// The node's answer to the seal: record, stamp and mark.
    pub(super) answer: (Value, (u8, u8), u8),
    /// The writes in flight, one bit for each.
    pub(super) writes: u8,
    /// The latest write that the node has stored, in its present memory.
    pub(super) stored: u8,
    /// True if the node stores the leader's latest record, and counts.
    pub(super) counts: bool,
    /// True if the node has voided the leader's present assignment.
    pub(super) voided: bool,
    pub(super) mark_sent: bool,
    pub(super) void_sent: bool,
    /// True if the node is asked to vouch for the join of another.
    pub(super) vouch_asked: bool,
}

/// The messages and facts between a node and one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Hand {
    /// True if the node has registered the worker's start.
    pub(super) registered: bool,
    pub(super) start_sent: bool,
    pub(super) end_sent: bool,
}

/// A node, and what lies between it and everyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Site {
    pub(super) node: Node,
    pub(super) lines: [Line; LEADERS],
    pub(super) hands: [Hand; WORKERS],
    pub(super) name: Name,
}

/// A handler that a leader runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Handler {
    #[default]
    None,
    Runs,
    Ended,
    /// It was stopped, since the leader's lease had ended.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Leader {
    pub(super) elected: bool,
    pub(super) phase: Phase,
    /// The number of the latest write.
    pub(super) seq: u8,
    /// The records of all writes.
    pub(super) values: [Value; WRITES],
    /// The stamp of the record that decided at the takeover.
    pub(super) seen: (u8, u8),
    pub(super) founded: bool,
    pub(super) handler: Handler,
    /// The stamp of the latest record that a majority stored.
    pub(super) committed: (u8, u8),
}

impl Leader {
    /// Returns the leader's record of the run.
    pub(super) const fn value(&self) -> Value {
        self.values[self.seq as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    Starting,
    Runs,
    Ended,
    GivenUp,
    /// It was stopped with its session.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Session {
    #[default]
    None,
    Alive,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Worker {
    pub(super) assignment: Value,
    /// The latest attempt that it tried.
    pub(super) last: Generation,
    pub(super) work: Work,
    pub(super) session: Session,
    /// The founding at the begin of its session.
    pub(super) founding: u8,
}

/// The past, by which the properties are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Judge {
    pub(super) losses: u8,
    pub(super) elected: u8,
    pub(super) skipped: bool,
    pub(super) lost: bool,
    pub(super) handler_ended: bool,
    pub(super) passed: bool,
    /// The leader that passed the run over without a record, plus one.
    pub(super) passer: u8,
    pub(super) starts: u8,
    /// The starts of each generation since the founding.
    pub(super) of_generation: [u8; 3],
    /// The term of the founding.
    pub(super) founded: u8,
    /// The starts after a founding of attempts from before it.
    pub(super) old_starts: u8,
    pub(super) broken: Option<Broken>,
}

/// A property that a history has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A later leader does not read a record that a majority had stored.
    NotRead,
    /// A deposed leader's record reaches a majority after a later takeover.
    DeposedCommits,
    /// A ledger is founded while the old one lives.
    FoundedBeside,
    /// A generation starts twice.
    GenerationTwice,
    /// A run starts that was skipped.
    SkippedStarts,
    /// A run is done, but no handler ended.
    DoneWithoutHandler,
    /// Under at-most-once, a run starts twice.
    TwoStarts,
    /// A run starts after it was recorded as lost.
    StartAfterLost,
    /// Two handlers run at once.
    TwoAtOnce,
    /// A run starts that a leader had passed over without a record.
    PassedStarts,
    /// The old ledger starts a run after a founding.
    OldStarts,
    /// A record comes back that an earlier leader had found absent.
    ComesBack,
}

/// The whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    pub(super) sites: [Site; N],
    pub(super) leaders: [Leader; LEADERS],
    pub(super) workers: [Worker; WORKERS],
    pub(super) judge: Judge,
}

impl<const N: usize> State<N> {
    /// Returns the number of handlers that run.
    pub(super) fn running(&self) -> usize {
        self.leaders.iter().filter(|leader| leader.handler == Handler::Runs).count()
            + self.workers.iter().filter(|worker| worker.work == Work::Runs).count()
    }
}
