//! Models of the protocol's core, searched state by state.
//!
//! # What is not guaranteed
//!
//! A model is searched within stated bounds: three nodes, a few attempts, a few faults, a short time. The
//! search does not find an error that needs more of any of these. A search that stops at its limit of states
//! has explored every history up to some length, but not every longer one. Then [`Found::complete`] is false.
//!
//! A model is not the code: drivers, batches, queues, sockets and timers are left out. The documentation of
//! each model says what replaces them. The simulation ([`sim`](crate::sim)) runs the shipped code itself.
//!
//! # The models
//!
//! | model | question |
//! | --- | --- |
//! | [`fencing`] | are fencing tokens unique, and growing in the order of the grants, whatever the clocks do? |
//! | [`exclusion`] | do two workers ever believe in one lease at the same true time? |
//! | [`ledger`] | is a tick started twice, by leaders or by workers? does an older leader start a tick that a newer one found not started? |
//! | [`readwrite`] | does any agent ever believe in a lease beside a writer, or write while another agent's downgrade is in flight? |
//! | [`opened_runs`] | does a run that a leader opens start at most once in each generation, and never when its end says otherwise? |
//! | [`poison`] | is an id dead-lettered exactly when the permitted number of attempts have begun or left a count behind? |
//!
//! The shipped [`engine`](quorate::node::engine) runs each request, over a small store such as [`lease_store`].
//! (Only [`poison`] runs no requests: it calls the engine's rule for counts.) The shipped
//! [`Tally`](quorate::internals::Tally) counts votes, and the shipped [`verdict`](quorate::internals::verdict)
//! evaluates the answers of a ledger. So the models follow each change of this code. For spread ticks and
//! dead-letter counts, the models themselves define which actor sends which request at what time.
//! [`opened_runs`] models the scheduler. The scheduler's decisions, on packed records, are in `proposed.rs`,
//! whose tests compare them with the shipped decisions.
//!
//! Each model can leave one rule out. If a model had no counterexample without a rule, it would not test that
//! rule. So for each rule, the tests require a counterexample of the model without it.

pub mod exclusion;
pub mod fencing;
pub mod lease_store;
pub mod ledger;
mod ledger_store;
mod name;
pub mod opened_runs;
pub mod poison;
pub mod readwrite;
mod search;
mod store;

pub use name::Name;
pub use search::{Found, Limits, Searchable, search, search_until};

/// The number of nodes in every model.
pub const NODES: usize = 3;
