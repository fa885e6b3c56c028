//! Models of the protocol's core, searched state by state.
//!
//! # What is not guaranteed
//!
//! A model is searched within stated bounds: three nodes, a few attempts, a few faults, a short time. What
//! needs more of any of them to go wrong is not found. A search that is cut off by its number of states has
//! seen every history up to some length and no longer ones; [`Found::complete`] says which it was. And a model is not the
//! code: drivers, batches, queues, sockets and timers are left out, and what stands in for them is said at
//! the head of each model. The simulation runs the shipped code itself.
//!
//! # The models
//!
//! | model | what is asked |
//! | --- | --- |
//! | [`fencing`] | are fencing tokens unique, and growing in the order of the grants, whatever time does? |
//! | [`exclusion`] | do two workers ever believe in one lease at the same true time? |
//! | [`ledger`] | is a tick started twice, on the leader or spread over workers? by an older leader than one that found it not started? |
//! | [`readwrite`] | does anyone ever believe in a lease beside a writer, or write between a writer and its downgrade? |
//! | [`opened_runs`] | does a run that a leader opens start at most once in each generation, and never when its end says otherwise? |
//! | [`poison`] | is an id given up after as many attempts as were to be, and not before, but for counts left behind? |
//!
//! What a node does with a request is the shipped [`engine`](quorate::node::engine) over a small store
//! ([`shelf`]); what votes mean is the shipped [`Tally`](quorate::internals::Tally); what a ledger's answers mean is the
//! shipped [`verdict`](quorate::schedule::verdict). So the models do not drift from the code. Of spread ticks and
//! poisoned counts who asks whom when is written out. [`opened_runs`] is the model of a scheduler that is still to be
//! built: what the shipped code does not decide yet stands in its `proposed.rs`.
//!
//! Each model can be told to leave one rule out. A rule whose absence changes nothing would be a
//! rule that the model does not look at: the tests ask for a counterexample to each.

pub mod exclusion;
pub mod fencing;
mod grants;
pub mod ledger;
mod name;
pub mod opened_runs;
pub mod poison;
pub mod readwrite;
mod search;
pub mod shelf;

pub use name::Name;
pub use search::{Found, Limits, Searchable, search, search_until};

/// Nodes in every model.
pub const NODES: usize = 3;
