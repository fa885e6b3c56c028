//! The steps of the model of exclusion. An *attempt* is one try of a worker to acquire the lease on three
//! nodes.

use crate::model::Name;
use std::fmt;

/// A step of the model.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// An attempt begins and sends its acquires.
    Begin(u8),
    /// An attempt begins and sends its acquires to all nodes but this one.
    BeginFirst(u8, Name),
    /// An attempt sends its acquire to the node that it did not ask at first.
    AskRest(u8),
    /// A holder sends its extension to the node that its acquire did not ask.
    Spread(u8),
    /// An attempt gives up and sends its releases.
    GiveUp(u8),
    /// A holder sends its extensions.
    Extend(u8),
    /// A lease ends and its holder sends its releases.
    Release(u8),
    /// An acquire runs on a node. If the flag is `true`, it may run again.
    Acquires(u8, Name, bool),
    /// An extension runs on a node. If the flag is `true`, it may run again.
    Extends(u8, Name, bool),
    /// An acquire or an extension runs on a node, and its reply arrives at once. If the flag is `true`, the
    /// request may run again.
    AtOnce(u8, Name, bool),
    /// A release runs on a node.
    Releases(u8, Name),
    /// The reply to an acquire or an extension arrives.
    Receives(u8, Name),
    /// A node forgets everything.
    Forget(Name),
    /// Time advances by a step.
    Step,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |attempt: u8| ["A", "B", "A'"][usize::from(attempt)];
        let kept = |again: bool| if again { " (kept)" } else { "" };
        match *self {
            Self::Begin(a) => write!(f, "{} begins", who(a)),
            Self::BeginFirst(a, node) => write!(f, "{} begins without {node:?}", who(a)),
            Self::AskRest(a) => write!(f, "{} asks the rest", who(a)),
            Self::Spread(a) => write!(f, "{} spreads", who(a)),
            Self::GiveUp(a) => write!(f, "{} gives up", who(a)),
            Self::Extend(a) => write!(f, "{} extends", who(a)),
            Self::Release(a) => write!(f, "{} releases", who(a)),
            Self::Acquires(a, node, again) => write!(f, "{node:?} runs {}'s acquire{}", who(a), kept(again)),
            Self::Extends(a, node, again) => write!(f, "{node:?} runs {}'s extension{}", who(a), kept(again)),
            Self::AtOnce(a, node, again) => write!(f, "{node:?} serves {}{}", who(a), kept(again)),
            Self::Releases(a, node) => write!(f, "{node:?} runs {}'s release", who(a)),
            Self::Receives(a, node) => write!(f, "{} receives the reply of {node:?}", who(a)),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
            Self::Step => write!(f, "step"),
        }
    }
}
