//! The administration of a node set: replacing it, and releasing a lock by force.

mod force;
mod replace;

pub use force::ForcedRelease;
pub use replace::{Found, NodePart, NodeSet, Part, Progress, ReplaceError, Replacement, Sight};
