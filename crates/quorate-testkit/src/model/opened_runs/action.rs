//! The steps of the model of opened runs. A leader *opens* a run in the ledger. A worker takes the run
//! through its *slot*, a claim of which at most one attempt is counted.

use super::{record::End, state::WORKERS};
use crate::model::Name;
use std::fmt;

/// A step of the model. Actors are numbered: the workers first, then the leaders.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// A leader is elected, and its term begins.
    Elected(u8),
    /// A request of an actor runs on a node, and its reply arrives.
    Asks(u8, Ask, Name),
    /// An actor makes this choice, based on the answers of a set of nodes. The second number is the set, with a
    /// bit for each node.
    Decides(u8, u8, Choice),
    /// An actor makes this choice without answers of nodes.
    Goes(u8, Choice),
    /// A leader takes the ledger over, and decides from the run's record.
    TakesOver(u8, Choice),
    /// A leader's record takes effect in the ledger.
    Writes(u8),
    /// A leader removes the run's record from the ledger.
    Prunes(u8),
    /// A worker reads the run's record in the ledger. If a leader is given, the worker reads the record that this
    /// leader writes, on the only node that the write has reached.
    Reads(u8, Option<u8>),
    /// An actor's lease on a slot is over by the actor's own clock.
    Over(u8),
    /// On a node, the lease on the slot of this generation expires.
    Expires(u8, Name),
    /// A node forgets everything.
    Forgets(Name),
    /// On a node, the horizon of the next slot passes, and the node removes the row of that slot.
    Horizon(Name),
}

/// A request of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// An actor acquires the claim of the slot.
    Acquire,
    /// An actor extends its claim. A delayed acquire has the same effect, so this step covers it too.
    Extend,
    /// An actor asks a node to count its attempt in the slot.
    Count,
    /// An actor takes its count back (only without [`Rule::Kept`](super::Rule::Kept)).
    TakeBack,
    /// A worker records that the run is done.
    Complete,
    /// A leader records in the slot that it has ended the run, and that the run has not started.
    Void,
    /// A leader reads the state of the slot.
    Look,
    /// A leader checks whether the slot is free, and nothing else.
    LookFree,
}

/// A decision of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The actor takes the next step that the protocol prescribes.
    Follow,
    /// The leader opens the first generation, or the one after a lost generation.
    Open,
    /// The leader executes the run itself.
    Direct,
    /// The leader ends the run with this end.
    Close(End),
    /// The handler ends.
    End,
    /// The worker gives up its attempt to take the run.
    GiveUp,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Elected(a) => write!(f, "{} is elected", who(a)),
            Self::Asks(a, ask, node) => write!(f, "{} asks {node:?}: {ask:?}", who(a)),
            Self::Decides(a, nodes, Choice::Follow) => write!(f, "{} decides by {}", who(a), names(nodes)),
            Self::Decides(a, nodes, choice) => {
                write!(f, "{} decides by {}: {choice:?}", who(a), names(nodes))
            }
            Self::Goes(a, choice) => write!(f, "{}: {choice:?}", who(a)),
            Self::TakesOver(a, choice) => write!(f, "{} takes the ledger over: {choice:?}", who(a)),
            Self::Writes(a) => write!(f, "{} writes its record", who(a)),
            Self::Prunes(a) => write!(f, "{} prunes the run", who(a)),
            Self::Reads(a, None) => write!(f, "{} reads the record", who(a)),
            Self::Reads(a, Some(leader)) => write!(f, "{} reads what {} writes", who(a), who(leader)),
            Self::Over(a) => write!(f, "{}'s lease is over", who(a)),
            Self::Expires(1, node) => write!(f, "{node:?}'s lease expires"),
            Self::Expires(generation, node) => write!(f, "{node:?}'s lease of {generation} expires"),
            Self::Forgets(node) => write!(f, "{node:?} forgets"),
            Self::Horizon(node) => write!(f, "{node:?} passes the horizon"),
        }
    }
}

fn who(actor: u8) -> String {
    match actor.checked_sub(WORKERS as u8) {
        None => format!("w{}", actor + 1),
        Some(leader) => format!("L{}", leader + 1),
    }
}

fn names(nodes: u8) -> String {
    (0..8).filter(|node| nodes >> node & 1 == 1).map(|node| char::from(b'x' + node)).collect()
}
