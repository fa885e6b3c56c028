//! Reads and controls jobs while they run, from any worker: status, history, pause, trigger, back-fill, cancel.
//!
//! # Not guaranteed
//!
//! A read takes no lock. A status of [`Jobs`] may be out of date. A run is shown as active if its start is
//! recorded and its end is not. A request needs a leader that reaches a majority while the request is valid. If
//! a call returns an error after its request reached a node, a leader may still carry the request out; the
//! error says until when. The runs of a request are never made twice.
//!
//! # Protocol
//!
//! A group has an *inbox*: a separate part of its ledger, which no leader seals. A caller writes its request to
//! a majority of the nodes there, under a random id. The leader reads the inbox every quarter of a second,
//! passes new requests to its scheduler, and writes the answer over the request, where the caller reads it. The
//! pure functions in `classify` decide what to do with each request.

mod audit;
mod classify;
mod error;
mod explain;
mod inbox;
mod jobs;
mod pending;
mod request;
mod status;
mod why;

pub use audit::AuditEntry;
pub use error::JobsError;
pub use explain::{Explanation, Reason};
pub(super) use inbox::serve_inbox;
pub use jobs::{Accepted, Jobs};
pub(super) use pending::IncomingRequest;
pub use request::{JobAction, JobRequest, JobResponse, RequestId};
pub use status::{JobStatus, RunStatus};
