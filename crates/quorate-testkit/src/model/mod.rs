//! Models of the protocol's core, searched state by state.
//!
//! # What is not guaranteed
//!
//! A model is searched within stated bounds: three nodes, a few attempts, a few faults, a short time. The
//! search does not find an error that needs more of any of these. A search that stops at its limit of states
//! has explored every history up to some length, but not every longer history. In that case
//! [`Found::complete`] is false.
//!
//! A model is not the code: drivers, batches, queues, sockets and timers are left out. The documentation of
//! each model says what replaces them. The simulation ([`sim`](crate::sim)) runs the shipped code itself.
//!
//! # The models
//!
//! | model | question |
//! | --- | --- |
//! | [`fencing`] | are fencing tokens unique, and growing in the order of the grants, whatever the clocks do? |
//! | [`exclusion`] | can two agents believe in the same lease at the same true time? (An agent *believes* in a lease while the lease is valid by the agent's own clock.) |
//! | [`copies`] | is a record that a majority stored ever missed, and does a run start once, whichever nodes forget? |
//! | [`readwrite`] | can an agent believe in a lease while another agent believes in a writer's lease, or write while another agent's downgrade is in flight? |
//! | [`poison`] | is an id dead-lettered exactly when the permitted number of attempts have begun, or were counted without beginning? |
//!
//! The shipped [`engine`](quorate::node::engine) runs each request, over a small store such as [`lease_store`].
//! (Only [`poison`] runs no requests: it calls the engine's rule for counts.) The shipped
//! [`Tally`](quorate::internals::Tally) counts votes. So the models follow each change of this code. For runs that
//! workers start, and for dead-letter counts, the models themselves define which actor sends which request at
//! what time.
//!
//! Each model can leave out one of its rules. The tests require that the model then has a counterexample. A
//! model that holds without a rule would not test that rule.

pub mod copies;
pub mod exclusion;
pub mod fencing;
pub mod lease_store;
mod name;
pub mod poison;
pub mod readwrite;
mod search;
mod store;

pub use name::Name;
pub use search::{Found, Limits, Searchable, search, search_until};

/// The number of nodes in every model.
pub const NODES: usize = 3;
