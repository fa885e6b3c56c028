//! A change of the node set, while workers run.
//!
//! # What is not guaranteed
//!
//! During the change (`max_ttl`, and at least four times `max_clock_offset`) there is no leader and no lease. The
//! records on a node that leaves are gone, as if the node had lost its memory. A done record or a ledger record may be
//! unknown afterwards if only a bare majority stored it, and the node that leaves was one of them. A worker with the
//! new list may run *before* the change begins, and reach only new nodes. It cannot know that there is an old set. So
//! replace the node set first, then restart the workers.
//!
//! # Steps
//!
//! | step | written | state after it |
//! | --- | --- | --- |
//! | close the new nodes, then the old | markers that name both sets: no worker may use the nodes, whatever its list | once a majority of the old set is closed, no lease of the old set is granted or extended |
//! | wait | nothing | every lease of the old set has ended, and clocks have passed every token that it gave |
//! | open the new set | markers of the new set | workers with the new list elect |
//!
//! Nodes that leave stay closed: a worker with the old list always gets an error that names the list that replaced it. An
//! interrupted change is resumed by running it again: the closed markers hold the rest of the wait.
//!
//! The counters and records of a staying node stay valid, with one exception. If three of five nodes stay, for
//! example, those three are a majority of the new set, but some majorities of the old set include only one of them. In
//! general, the exception applies if staying nodes alone can be a majority of the new set, and that majority may have
//! no node in common with some majority of the old set. Then the memory of the staying nodes begins again, as after a
//! restart, so that no fencing token is repeated.

mod error;
mod part;
mod plan;
mod reach;
mod replacement;

pub use error::ReplaceError;
pub use part::{Found, NodePart, Part};
pub use reach::{NodeSet, Sight};
pub use replacement::{Progress, Replacement};
