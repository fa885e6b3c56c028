//! Reads and controls jobs while they run, from any worker: status, history, pause, trigger, back-fill, cancel.
//!
//! # Not guaranteed
//!
//! A read takes no lock. A status of [`Jobs`] may be out of date, and *running* means started and not recorded as ended.
//! A request needs a leader that reaches a majority while the request is valid. A request that reached a node may be
//! carried out although the caller got an error; the error says until when. It is never carried out twice.
//!
//! # Protocol
//!
//! Beside the ledger of a group there is its *inbox*, which no leader seals. A caller writes its request to a majority
//! there, under a random id. The leader reads the inbox every quarter of a second, passes new requests to its scheduler, and
//! writes the answer over the request, where the caller finds it. A pure function, in `classify`, decides what to do with
//! each request.

mod classify;
mod error;
mod inbox;
mod jobs;
mod pending;
mod request;
mod status;

pub use error::JobsError;
pub(super) use inbox::serve_inbox;
pub use jobs::{Accepted, Jobs};
pub(super) use pending::IncomingRequest;
pub use request::{JobAction, JobRequest, JobResponse, RequestId};
pub use status::{JobStatus, RunStatus};
