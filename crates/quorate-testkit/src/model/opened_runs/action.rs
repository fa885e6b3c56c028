use super::{record::End, state::WORKERS};
use crate::model::Name;
use std::fmt;

/// A step of the model. Actors are numbered: workers, then leaders.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// A leader is elected.
    Elected(u8),
    /// A request of an actor runs at a node, and is answered.
    Asks(u8, Ask, Name),
    /// An actor decides on the answers of these nodes: a bit each.
    Decides(u8, u8, Choice),
    /// An actor goes on without any.
    Goes(u8, Choice),
    /// A leader that writes meets a later record at a node, and goes on from that one.
    Meets(u8, Name),
    /// An actor's lease on a slot is over by its own clock.
    Over(u8),
    /// A node's lease on the slot of this generation expires.
    Expires(u8, Name),
    /// A node forgets everything.
    Forgets(Name),
    /// A node comes back with the record alone.
    Returns(Name),
    /// The next horizon passes at a node: rows go.
    Horizon(Name),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A worker reads the ledger.
    Read,
    /// A leader seals the ledger.
    Seal,
    /// A leader writes its record.
    Write,
    /// A leader's first write of an *open* runs late.
    WriteLate,
    /// An actor acquires the claim.
    Acquire,
    /// An extension of its claim, or a late acquire.
    Extend,
    /// Counts the attempt.
    Count,
    /// Takes the count back.
    TakeBack,
    /// A worker records that it is done.
    Complete,
    /// A leader records that it ended the run unstarted.
    Void,
    /// A leader looks at the slot.
    Look,
    /// A leader looks whether the slot is free.
    LookFree,
    /// A leader prunes the tick.
    Prune,
}

/// A decision of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The decision that the answers imply.
    Follow,
    /// To open the first generation, or the next.
    Open,
    /// To run it itself.
    Direct,
    /// To end it.
    Close(End),
    /// Ends the handler.
    End,
    /// To give it up.
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
            Self::Meets(a, node) => write!(f, "{} goes on from what {node:?} has", who(a)),
            Self::Over(a) => write!(f, "{}'s lease is over", who(a)),
            Self::Expires(1, node) => write!(f, "{node:?}'s lease expires"),
            Self::Expires(generation, node) => write!(f, "{node:?}'s lease of {generation} expires"),
            Self::Forgets(node) => write!(f, "{node:?} forgets"),
            Self::Returns(node) => write!(f, "{node:?} returns with the record"),
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
