//! The steps of the model of fencing tokens. An *attempt* is one try of a worker to acquire the lease. An
//! attempt with a majority of grants *raises* counters: it asks nodes whose counter is smaller than its fencing
//! token to set the counter to this token.

use crate::model::Name;
use std::fmt;

/// A step of the model.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// The next attempt begins. Its worker's clock is wrong by the given number of steps.
    Begin(i8),
    /// An attempt's acquire runs on a node. If the flag is `true`, it may run again.
    Acquire(u8, Name, bool),
    /// An attempt's acquire runs on a node, and its reply arrives at once.
    AcquireAtOnce(u8, Name),
    /// An attempt's acquire runs on a node as plain commands. If the flag is `true`, the reply arrives at once.
    Commands(u8, Name, bool),
    /// An attempt's acquire runs on a node as plain commands, and finds the key of another attempt.
    Loses(u8, Name),
    /// A grant arrives. The last number selects the first or the second of the grants in flight.
    Granted(u8, Name, u8),
    /// A raise runs on a node and sets the node's counter to the attempt's token.
    Raise(u8, Name),
    /// A raise runs on a node, and its reply arrives at once.
    RaiseAtOnce(u8, Name),
    /// The reply to an attempt's raise arrives.
    Raised(u8, Name),
    /// A repair runs on a node: the extension of an attempt that has won sets the attempt's key again on a node
    /// that has lost it.
    Repair(u8, Name),
    /// Time advances.
    Step,
    /// A node forgets everything, including its counter.
    Forget(Name),
    /// A node saves its state.
    Save(Name),
    /// A node comes back with the saved state.
    Return(Name),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |attempt: u8| char::from(b'A' + attempt);
        match *self {
            Self::Begin(0) => write!(f, "begin"),
            Self::Begin(off) => write!(f, "begin({off:+})"),
            Self::Acquire(a, node, again) => {
                write!(f, "{} acquires {node:?}{}", who(a), if again { " (kept)" } else { "" })
            }
            Self::AcquireAtOnce(a, node) => write!(f, "{} acquires at {node:?}, which answers", who(a)),
            Self::Commands(a, node, heard) => {
                let heard = if heard { ", which answers" } else { "" };
                write!(f, "{} acquires by commands at {node:?}{heard}", who(a))
            }
            Self::Loses(a, node) => write!(f, "{} loses by commands at {node:?}", who(a)),
            Self::RaiseAtOnce(a, node) => write!(f, "{} raises at {node:?}, which answers", who(a)),
            Self::Granted(a, node, _) => write!(f, "{} receives the grant of {node:?}", who(a)),
            Self::Raise(a, node) => write!(f, "{} raises {node:?}", who(a)),
            Self::Raised(a, node) => write!(f, "{} receives the reply of {node:?} to its raise", who(a)),
            Self::Repair(a, node) => write!(f, "{} repairs {node:?}", who(a)),
            Self::Step => write!(f, "step"),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
            Self::Save(node) => write!(f, "{node:?} saves"),
            Self::Return(node) => write!(f, "{node:?} returns"),
        }
    }
}
