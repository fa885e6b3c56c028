//! The ledger: small records of a group, stored by a majority of the nodes.
//!
//! # What is not guaranteed
//!
//! The ledger is not a log, and has no transactions. A node that lost its memory lost its records too, and reports since
//! when it remembers ([`Memory`]): an answer of such a node does not count for earlier records. A read without a seal may
//! miss a record that a leader is writing.
//!
//! # Seals
//!
//! Terms are unique and grow, so they serve as ballots. A new leader first *seals* the ledger with its term at a
//! majority. From then on, a sealed node refuses records of older terms. A node's answer to the seal contains the
//! records that the node stores. Only then does the leader write. Suppose that an older leader writes a record to a
//! majority. One of those nodes was also sealed. If the write came before the seal, the new leader has read the
//! record; if it came after the seal, the node refused it. With a plain read in place of the seal, two leaders could
//! start one tick.
//!
//! A write names the record that its leader read, and is refused if another record is stored (compare and set). A record
//! that is `last` is final.
//!
//! # Pages
//!
//! A ledger may have tens of thousands of records, and a Redis server serves no other client while a script runs. So the
//! ledger is sealed, read and pruned in pages ([`PAGE_RECORDS`](crate::node::PAGE_RECORDS)). A short ledger fits into the
//! first page. All pages read after a seal form one consistent snapshot, for these reasons:
//!
//! * From the first page on the node refuses every earlier term, and this leader writes nothing before its last page. Only a
//!   later term could change a record. Each further page is a seal with the same term again, which a node that a later
//!   term has sealed refuses; the whole read then fails as *superseded*.
//! * A node's iteration returns each record that exists from the first page to the last at least once. On Redis this is
//!   HSCAN, which guarantees it even if its table grows or shrinks; other nodes use the order of the keys. A record that
//!   is returned twice is merged by its key.
//! * A cursor belongs to the server. It is invalid after FLUSHALL. It is also invalid after a restart, even of a
//!   server that remembers everything, because the server's table is then in another order. So all pages must come on
//!   one session and under one memory. A node that fails in between has not answered. Each page is a vote, which a
//!   server without its marker refuses.
//!
//! A *read* without a seal may mix records of different times. A *prune* moves the low-water mark in its first step:
//! from then on the node refuses records before the mark, even if it has not removed its own old records yet.
//!
//! # The memory rule
//!
//! Records live longer than a quarantine, so a node's answer counts only for what the node can remember. The node's
//! answer about a record does not count, neither in the seal nor in the write, if the record's time is before the
//! beginning of the node's memory (plus `max_clock_offset`).

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
