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
//! # Why in pages
//!
//! A ledger may hold tens of thousands of records, and a Redis server serves nobody else while a script runs. So it is
//! sealed, read and pruned a page at a time ([`PAGE_RECORDS`](crate::node::PAGE_RECORDS)); a short one comes whole, with
//! the seal itself. Why the pages of a *seal* tell what stood at one moment, the seal's:
//!
//! * From the first page on the node refuses every earlier term, and this leader writes nothing before its last page: so
//!   only a later term can change what is being told. Each further page is a seal with the same term again, which a node
//!   that a later term has sealed refuses, and the whole read ends as *superseded*.
//! * A node's way through its records tells each that is there from the first page to the last at least once (on Redis
//!   HSCAN, which promises just that, across any growing and shrinking of its table; elsewhere the order of the keys).
//!   One that is told twice is merged by its key.
//! * Where to go on is the server's own word. It means nothing after a restart, even of a server that remembers all
//!   (its table is shuffled anew), nor after FLUSHALL: so all pages must come on one session and under one memory,
//!   and a node that fails in between has not answered. Each page is a vote, which a server whose marker has gone
//!   refuses.
//!
//! A *read* that does not seal may mix moments. A *prune* sets the mark with its first step: from then on the node
//! refuses what is before it, whether its own record has gone yet or not.
//!
//! # Why a memory rule
//!
//! Records outlive quarantine, so a node answers only for what it can remember: for a record whose time is
//! before the node's memory began (plus `max_clock_offset`) it counts neither in the seal nor in the write.

mod error;
mod gather;
mod memory;
mod pages;
mod record;
mod tally;

pub use error::LedgerError;
pub use memory::Memory;
pub use record::{Answered, Ledger};
pub use tally::{WriteTally, WriteVerdict};
