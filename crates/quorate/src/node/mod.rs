//! Nodes: the interface to one independent server, and the in-process implementations of it.
//!
//! A quorum sends its requests to several nodes. [`Node`] opens a [`Session`], and a session carries
//! [`Batch`]es of [`Request`]s to the server and returns a [`BatchReply`] for each. Everything that concerns
//! a majority of servers is built on top of this module.
//!
//! # Implementations
//!
//! * [`MemoryNode`] lives in this process.
//! * [`FileNode`] lives in a directory that processes of one host share.
//! * `quorate::redis::RedisNode` connects to a Redis server.
//!
//! All three pass one conformance suite. The first two, and the nodes of the simulation, share one
//! [`engine`].
//!
//! # What is not guaranteed
//!
//! A node decides only its own vote. A session cannot recall a request that it has sent. If the reply is
//! lost, the node may have executed the request, or may still execute it later. Two rules keep an abandoned
//! request from doing harm. After [`Batch::not_after`], the node refuses every request that could set a key.
//! A new session sends nothing before the last `not_after` of the old session has passed.

#[doc(hidden)]
pub mod copy;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
#[cfg(feature = "file-node")]
pub mod file;
mod incarnation;
mod ledger;
mod memory;
mod names;
mod push;
mod reply;
mod request;
mod stored_names;

#[cfg(feature = "file-node")]
pub use file::FileNode;
#[doc(hidden)]
pub use incarnation::Incarnation;
#[doc(hidden)]
pub use ledger::{Cursor, LedgerPage, LedgerState, PAGE_BYTES, PAGE_RECORDS, Record};
pub use memory::MemoryNode;
#[doc(hidden)]
pub use memory::{MemorySession, MemoryStore};
pub use names::{FencingToken, Owner, Resource};
#[doc(hidden)]
pub use names::{NodeTime, ResourceKind};
pub(crate) use names::{check as check_name, not_utf8};
#[doc(hidden)]
pub use push::{Listen, Push, PushSender, ReleasedLease};
#[doc(hidden)]
pub use reply::{AttemptCount, BatchReply, Cause, DataId, DoneRecord, Hello, Refusal, Reply};
#[doc(hidden)]
pub use request::{Batch, INVALID_REQUEST, Request, STAMP_MAX, StampStep};
#[doc(hidden)]
pub use stored_names::{NamesQuery, StoredNames};

use std::task::Context;

/// One server that sessions can be opened to.
pub trait Node: Send + Sync + 'static {
    /// The type of session that [`Node::open`] returns.
    #[doc(hidden)]
    type Session: Session;

    /// Returns the node's name in logs, errors and the marker: its address, without a password. All workers
    /// must use the same name for the same node.
    fn name(&self) -> &str;

    /// Returns whether the node's leases end by its wall clock. A step of that clock may then end a lease
    /// early, so the quorum looks for clock steps in the times of the node's replies. The default is `true`.
    #[doc(hidden)]
    fn ends_leases_by_wall_clock(&self) -> bool {
        true
    }

    /// Opens one connection and performs its handshake. The call has no time limit of its own: the caller
    /// sets one.
    ///
    /// # Errors
    /// The [`Cause`] of the failure. Its text contains no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection.
    #[doc(hidden)]
    fn open(
        &self,
        push_sender: PushSender,
    ) -> impl Future<Output = Result<(Self::Session, Hello), Cause>> + Send;
}

/// A connection to one node.
///
/// The server executes batches in the order of the `send` calls. A batch is sent even if its reply future is
/// never polled. The server may still execute it after the reply future, or the whole session, was dropped.
/// The server refuses every request that would set a key once its own clock is past [`Batch::not_after`].
#[doc(hidden)]
pub trait Session: Send + 'static {
    /// Sends `batch` at once, after all batches that were sent before. The call has no time limit of its own:
    /// the caller sets one.
    ///
    /// # Cancel safety
    /// Dropping the reply future loses the reply, not the batch.
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static;

    /// Continues the input and output of the session, on behalf of the task of the driver. The driver calls this
    /// function in each of its turns after all calls of [`Session::send`], and polls the reply futures afterwards. So
    /// requests and replies pass through no other task. A session must also work without these calls. The default
    /// implementation does nothing, for a session whose input and output need no polling.
    fn poll_io(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Subscribes to releases of one resource ([`Push::Released`]), or ends the subscription.
    ///
    /// The subscription is active when the server executes requests that were sent after [`Listen::Begin`].
    /// If such a request finds a lock held, the node pushes the later release of the lock. The push may be
    /// lost. The call never blocks, and repeating it has no further effect. The default implementation does
    /// nothing, for a node that cannot push.
    fn listen(&mut self, listen: Listen) {
        let _ = listen;
    }
}
