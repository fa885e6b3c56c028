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

pub mod engine;
pub mod file;
mod memory;
mod names;
mod reply;
mod request;

pub use file::FileNode;
pub use memory::{MemoryNode, MemorySession, MemoryStore};
pub(crate) use names::check as check_name;
pub use names::{FencingToken, NameError, NodeTime, Owner, Resource, ResourceKind};
pub use reply::{BatchReply, Cause, DoneRecord, Hello, LedgerState, Record, Refusal, Reply};
pub use request::{Batch, Request};

use tokio::sync::mpsc;

/// What a session tells unasked. May be lost, so nothing may depend on it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Push {
    /// The connection is gone, although nothing was being asked.
    Closed,
}

/// Where a session leaves its [`Push`]es. Never blocks.
#[derive(Clone, Debug)]
pub struct Nudge(mpsc::UnboundedSender<Push>);

impl Nudge {
    /// A nudge and the receiving end of it.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<Push>) {
        let (tx, rx) = mpsc::unbounded_channel();
        (Self(tx), rx)
    }

    /// Leaves `push`; lost without harm if the driver has gone on to another session.
    pub fn push(&self, push: Push) {
        let _ = self.0.send(push);
    }
}

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
pub trait Session: Send + 'static {
    /// Sends `batch` at once, behind everything sent before. The caller sets the deadline.
    ///
    /// # Cancel safety
    /// Dropping the reply future loses the reply, not the batch.
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static;
}
