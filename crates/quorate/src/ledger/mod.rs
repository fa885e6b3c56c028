//! The ledger: small records of a group, kept by a majority of nodes.
//!
//! # What is not guaranteed
//!
//! A record is no log and no transaction. A node that lost its memory lost its records too, and says from
//! when on it remembers: whoever counts answers must leave out nodes that cannot know ([`Memory`]). A reader
//! that does not seal may miss what a leader is just writing.
//!
//! # Why a seal
//!
//! Terms are unique and grow, so they serve as ballots. A new leader first *seals* the ledger with its term
//! at a majority: from then on a node refuses records of older terms, and its answer says what stands there.
//! Only then does it write. An older leader whose record reached a majority met a node of the seal: either it
//! came first, and the new leader has seen the record, or it was refused. With a plain read in place of the
//! seal, two leaders can start one tick.
//!
//! A write names the record that its leader saw, and is refused where another stands (compare and set).
//! A record that is `last` is final.
//!
//! # Why a memory rule
//!
//! Records outlive quarantine, so a node answers only for what it can remember: for a record whose time is
//! before the node's memory began (plus `max_clock_offset`) it counts neither in the seal nor in the write.

mod error;
mod memory;
mod record;

pub use error::LedgerError;
pub use memory::Memory;
pub use record::{Answered, Ledger};
