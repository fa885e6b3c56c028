//! The ledger: small records of a group, stored by a majority of the nodes.
//!
//! * The *led ledger* has the rows of jobs and the records of runs. Only the leader of the group writes it, and copies all of
//!   it to every node: [`copies`].
//! * A *part*, such as the inbox or a job's history, is a [`Ledger`] that any client writes. No leader copies it.
//!
//! # What is not guaranteed
//!
//! The ledger is not a log, and has no transactions. A node that lost its memory lost its records of parts too. A read may
//! miss a record that is being written, and may mix records of different times.
//!
//! # Parts
//!
//! A write contains the record that the client read before. A node refuses the write if it stores another record (compare
//! and set). A record that is marked `last` is never replaced. A reader takes the records of all nodes that answer. A
//! *prune* first moves the low-water mark. From then on the node refuses writes of records before the mark, even if it has
//! not yet removed all older records.
//!
//! # Pages
//!
//! A ledger may have tens of thousands of records, and a Redis server serves no other client while a script
//! runs. So a ledger is sealed, read and pruned in pages of [`PAGE_RECORDS`](crate::node::PAGE_RECORDS)
//! records. A short ledger fits into the first page. All pages of a seal form one consistent snapshot, for
//! these reasons:
//!
//! * From the first page on, the node refuses every earlier term, and this leader writes nothing to the node before its
//!   last page. So only a later term could change a record. The request for each further page needs the leader's seal. If a
//!   later term has sealed the ledger meanwhile, the node refuses this request, and the whole read fails as *superseded*.
//! * A node returns each record that exists from the first page to the last at least once. A Redis server
//!   uses HSCAN, which guarantees this even if its table grows or shrinks; other nodes use the order of the
//!   keys. A record that is returned twice is merged by its key.
//! * A cursor, which marks the end of a page, belongs to one run of a server. A cursor is invalid after
//!   FLUSHALL. It is also invalid after a restart, even of a server that kept all data, because the table is
//!   then in another order. So all pages must come on one session and from one memory epoch. A node that
//!   fails in between counts as not having answered. Each page is a vote, and a server that has lost its
//!   marker gives none.

#[doc(hidden)]
pub mod copies;
pub(crate) mod entry_list;
mod error;
mod gather;
mod operations;
mod pages;
mod record;
mod tally;

pub(crate) use copies::{Adopted, FOUNDED, LedgerView, Registered, TermLedger, WAITING_FIX};
pub use copies::{Copied, CopyAtNode, CopyState, LedgerCopies, Waiting};
pub(crate) use entry_list::EntryList;
pub use error::LedgerError;
pub use operations::{Operation, OperationLog};
pub(crate) use record::WriteObserver;
pub use record::{Answered, Ledger};
