//! The seam: below it one server, above it the quorum.
//!
//! # What is not guaranteed
//!
//! A node decides nothing but its own vote. A request whose reply was lost may have run, or may run later:
//! a session is only a road, and what has left on it cannot be called back. What keeps an abandoned request
//! from doing harm is its [`Batch::not_after`], which the node itself enforces, and the rule that a new
//! session sends nothing before the old one's last `not_after` has passed.
//!
//! # The kinds of node
//!
//! [`MemoryNode`] lives in this process, [`FileNode`] in a directory that processes of one host share, and
//! `quorate_redis::RedisNode` on a Redis server. All three pass one conformance suite, and the first two
//! (and the simulation's nodes) share one [`engine`].

#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod file;
mod ledger;
mod memory;
mod names;
mod push;
mod reply;
mod request;

pub use file::FileNode;
#[doc(hidden)]
pub use ledger::{Cursor, LedgerPage, LedgerState, PAGE_BYTES, PAGE_RECORDS, Record};
pub use memory::MemoryNode;
#[doc(hidden)]
pub use memory::{MemorySession, MemoryStore};
pub(crate) use names::check as check_name;
pub use names::{FencingToken, NameError, Owner, Resource};
#[doc(hidden)]
pub use names::{NodeTime, ResourceKind};
#[doc(hidden)]
pub use push::{Freed, Listen, Nudge, Push};
#[doc(hidden)]
pub use reply::{BatchReply, Begun, Hello, Reply};
pub use reply::{Cause, DoneRecord, Refusal};
#[doc(hidden)]
pub use request::{Batch, Request, UNFIT};

/// One server that can be asked for a session.
pub trait Node: Send + Sync + 'static {
    /// What [`Node::open`] gives.
    type Session: Session;

    /// What the node is called in logs, errors and the marker: its address, never a password. Two workers
    /// that mean one node must call it by one name.
    fn name(&self) -> &str;

    /// Whether its leases end by its wall clock, so that a step of it may end them early. Then its replies'
    /// times are watched. Default true.
    fn ends_leases_by_wall_clock(&self) -> bool {
        true
    }

    /// One connection and its handshake. The caller sets the deadline.
    ///
    /// # Errors
    /// The [`Cause`] for which there is no session. Its text holds no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection.
    fn open(&self, nudge: Nudge) -> impl Future<Output = Result<(Self::Session, Hello), Cause>> + Send;
}

/// A connection to one node.
///
/// Contract: batches run on the server in the order of the `send` calls, and leave even if the reply future
/// is never polled. A sent batch may still run after its reply future, or the whole session, was dropped;
/// what would set a key is refused by the server once its own clock is past [`Batch::not_after`].
#[doc(hidden)]
pub trait Session: Send + 'static {
    /// Sends `batch` at once, behind everything sent before. The caller sets the deadline.
    ///
    /// # Cancel safety
    /// Dropping the reply future loses the reply, not the batch.
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static;

    /// Asks to be told of releases of one resource ([`Push::Released`]), or to be told no more. What is sent
    /// after [`Listen::Begin`] finds the node listening: a key that was still held then is told of when it is
    /// freed, unless the push is lost. Never blocks; to say either twice is to say it once.
    ///
    /// A node that cannot push does nothing, which is the default.
    fn listen(&mut self, listen: Listen) {
        let _ = listen;
    }
}
