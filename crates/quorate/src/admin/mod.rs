//! The administration of a node set: replacing it, listing what its nodes store, and releasing a lock by force.

mod force;
mod replace;

pub use crate::node::{NamesQuery, StoredNames};
pub use force::ForcedRelease;
pub use replace::{Found, NodePart, NodeSet, NodeVisit, Part, Progress, ReplaceError, Replacement};

#[cfg(all(test, feature = "claims", feature = "file-node"))]
mod tests;
