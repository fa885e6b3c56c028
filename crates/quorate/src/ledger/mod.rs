//! The ledger: small records of a group, stored by a majority of the nodes.
//!
//! # What is not guaranteed
//!
//! The ledger is not a log, and has no transactions. A node that lost its memory lost its records too. Such a
//! node reports the beginning of its new memory ([`Memory`]), and its answer does not count for earlier
//! records. A read without a seal may miss a record that a leader is writing.
//!
//! # Seals
//!
//! A leader's term is a unique number, and later terms are larger. A new leader first *seals* the ledger with
//! its term at a majority. From then on, a sealed node refuses records of older terms. A node's answer to the
//! seal contains the records that the node stores. Only after the seal does the leader write.
//!
//! Suppose that an older leader writes a record to a majority. This majority and the sealed majority share a
//! node. If the write reached that node before the seal, the new leader has read the record. If it came after
//! the seal, the node refused it. If the new leader only read the ledger, without a seal, two leaders could
//! start one tick.
//!
//! A write contains the record that its leader read before. A node refuses the write if it stores another
//! record (compare and set). A record that is marked `last` is never replaced.
//!
//! # Pages
//!
//! A ledger may have tens of thousands of records, and a Redis server serves no other client while a script
//! runs. So the ledger is sealed, read and pruned in pages of [`PAGE_RECORDS`](crate::node::PAGE_RECORDS)
//! records. A short ledger fits into the first page. All pages of a seal form one consistent snapshot, for
//! these reasons:
//!
//! * From the first page on, the node refuses every earlier term, and this leader writes nothing before its
//!   last page. So only a later term could change a record. The request for each further page is a seal with
//!   the same term. If a later term has sealed the node meanwhile, the node refuses this request, and the
//!   whole read fails as *superseded*.
//! * A node returns each record that exists from the first page to the last at least once. A Redis server
//!   uses HSCAN, which guarantees this even if its table grows or shrinks; other nodes use the order of the
//!   keys. A record that is returned twice is merged by its key.
//! * A cursor, which marks the end of a page, belongs to one run of a server. A cursor is invalid after
//!   FLUSHALL. It is also invalid after a restart, even of a server that kept all data, because the table is
//!   then in another order. So all pages must come on one session and from one memory epoch. A node that
//!   fails in between counts as not having answered. Each page is a vote, and a server that has lost its
//!   marker gives none.
//!
//! A *read* without a seal may mix records of different times. A *prune* first moves the low-water mark. From
//! then on the node refuses writes of records before the mark, even if it has not yet removed all older
//! records.
//!
//! # The memory rule
//!
//! Records live longer than a quarantine, so a node's answer counts only for records that the node can
//! remember. A node can remember a record if the record's time is at least `max_clock_offset` after the
//! beginning of the node's memory. For an earlier record the node's answer does not count, neither in the
//! seal nor in the write.

#[doc(hidden)]
pub mod copies;
mod error;
mod gather;
mod memory;
mod operations;
mod pages;
mod record;
mod tally;

pub use error::LedgerError;
pub use memory::Memory;
pub use operations::{Operation, OperationLog};
pub(crate) use operations::{prune_below, time_below};
pub use record::{Answered, Ledger};
pub(crate) use record::{FOR_ANY_MEMORY, WriteObserver};
pub use tally::{WriteTally, WriteVerdict};
