use crate::node::Cause;
use std::{fmt, sync::Arc, time::Duration};

/// The role of a node in a change of the node set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The node is in both sets.
    Stays,
    /// The node is in the new set only.
    Joins,
    /// The node is in the old set only.
    Leaves,
}

/// The state in which a node was found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Found {
    /// The node's marker names the old set, so workers with the old list may use the node. A node whose
    /// marker cannot be read, or names another node set, is reported as `Old` too.
    Old,
    /// The node has no marker.
    Unmarked,
    /// The node is closed: no worker may use it. It may be opened after the given time.
    Closed(Duration),
    /// The node's marker names the new set: workers with the new list may use it.
    New,
}

/// The state of one node in a change of the node set.
#[derive(Clone, Debug)]
pub struct NodePart {
    /// The node's name.
    pub name: Arc<str>,
    /// The node's role: it stays, leaves or joins.
    pub part: Part,
    /// The state in which the node was found, or the reason why it could not be reached.
    pub found: Result<Found, Cause>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stays => "stays",
            Self::Joins => "joins",
            Self::Leaves => "leaves",
        })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old => f.write_str("in the old set"),
            Self::Unmarked => f.write_str("in no set"),
            Self::Closed(left) if left.is_zero() => f.write_str("closed"),
            Self::Closed(left) => write!(f, "closed, for {left:.1?} yet"),
            Self::New => f.write_str("in the new set"),
        }
    }
}
