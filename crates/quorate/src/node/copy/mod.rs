//! A node's copy of a led ledger: what the node decides about the requests of leaders and workers, without I/O and without
//! a clock. The engine and the Lua scripts carry the decisions out; the test-kit's model shows that each of them is needed.
//!
//! # The rule
//!
//! **A node that may have forgotten is down until a leader has copied everything to it.** A node's memory has an id, its
//! [`Incarnation`](super::Incarnation), which is new whenever the node may have forgotten. A copy is *complete* if a
//! leader has marked it in the node's present memory. The node itself refuses what an incomplete copy must not serve.
//!
//! # Names of the rules
//!
//! N1 to N5 are the rules of a node. `docs/design/ledger.md` has each with the shortest history in which it is needed.
//!
//! # Stored form
//!
//! A copy consists of records of one ledger. Beside the leader's records, whose keys begin with a letter, it has its
//! [`Header`] under the key `!`, and two records for each assignment: its [`Register`] under `@KEY`, and the end that the
//! worker has reported under `$KEY`. The term and the time of each are the [`Stamp`] of a write, or of an assignment.

mod entry;
mod header;
mod request;
mod rows;

pub use entry::{AssignmentId, Entry, MaybeRemoved, NoRegister, Register, Stamp};
pub use header::{Header, HeaderRefusal, Seal};
pub use request::{LeadAct, Put, WorkAct};
pub use rows::{
    HEADER_KEY, RegisterRow, end_key, end_row, is_key, register_key, run_of_end, run_of_register,
};
