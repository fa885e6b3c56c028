//! Reads and controls jobs while they run, from any worker: status, history, pause, trigger, back-fill, cancel.
//!
//! # Not guaranteed
//!
//! A read takes no lock, so a status of [`Jobs`] may be out of date. A run is shown as active if its start is
//! recorded and its end is not. A request is carried out only if a leader reaches a majority of the nodes while
//! the request is valid. If a call returns an error after its request reached a node, a leader may still carry
//! the request out. The error contains the time until which this can happen. The runs of a request are never
//! executed twice because of a repeated request.
//!
//! # Protocol
//!
//! A group has an *inbox*, which is a separate part of its ledger. A caller writes its request there, to a
//! majority of the nodes, under a random id. The sender rings a bell for the leader, which reads the inbox, and passes
//! new requests to its scheduler. Then the leader writes the answer over the request, and the caller reads it.
//! The pure functions in `classify` decide how the leader handles each request.

mod audit;
mod classify;
mod error;
mod explain;
mod freeze;
mod inbox;
mod jobs;
mod overview;
mod pending;
mod status;
mod stored;
mod why;

pub use audit::AuditEntry;
pub(super) use audit::AuditLog;
pub use error::JobsError;
pub use explain::{Explanation, Reason};
pub(super) use inbox::serve_inbox;
pub use jobs::{Accepted, Jobs};
pub use overview::{GroupOverview, GroupWorker};
pub(super) use pending::IncomingRequest;
pub use status::{JobStatus, RunStatus};
pub use stored::StoredDefinition;
