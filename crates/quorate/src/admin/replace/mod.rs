//! A replacement of the node set while workers run.
//!
//! # What is not guaranteed
//!
//! There is no leader and no lease during the change, which takes `max_ttl` or four times `max_clock_offset`,
//! whichever is longer. The records on a node that leaves are lost to the new set, as if the node had lost
//! its memory. So a done record or a ledger record that only a bare majority stored may be unknown
//! afterwards.
//!
//! A worker with the new list that runs *before* the change, and reaches only new nodes, cannot know that
//! there is an old set. It may then lead beside a worker with the old list. So replace the node set first,
//! then restart the workers.
//!
//! # Steps
//!
//! | step | written | state after it |
//! | --- | --- | --- |
//! | close the new nodes, then the old | markers that name both sets: no worker may use the nodes, whatever its list | once a majority of the old set is closed, no lease of the old set is granted or extended |
//! | wait | nothing | every lease of the old set has ended, and clocks have passed every token that the old set gave |
//! | open the new set | markers of the new set | workers with the new list elect |
//!
//! Nodes that leave stay closed. So a worker with the old list always gets an error that names the new list.
//! To resume an interrupted change, run it again: the markers of the closed nodes contain the end of the
//! wait.
//!
//! The counters and records of a staying node stay valid, except in one case: a majority of the new set may
//! consist of staying nodes only, and share no node with some majority of the old set. For example, five
//! nodes a to e shrink to a, b and c. Then a and b are a majority of the new set, and c, d and e are a
//! majority of the old set. In this case the memory of the staying nodes begins again, as after a restart, so
//! that no fencing token is repeated.

mod error;
mod part;
mod plan;
mod reach;
mod replacement;

pub use error::ReplaceError;
pub use part::{Found, NodePart, Part};
pub use reach::{NodeSet, NodeVisit};
pub use replacement::{Progress, Replacement};
