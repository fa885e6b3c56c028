//! The administration of a node set: replacing it, listing what its nodes store, and releasing a lock by force.

mod force;
mod names;
mod replace;

pub use force::ForcedRelease;
pub use names::{NamesQuery, StoredNames};
pub use replace::{Found, NodePart, NodeSet, Part, Progress, ReplaceError, Replacement, Sight};
