//! Jobs operated while they run: seen, paused, triggered, made to catch up, cancelled, from any worker.
//!
//! # What is not guaranteed
//!
//! A look is no lock: what [`Jobs`] shows was true a moment ago, and *running* means started and not recorded as ended.
//! A request needs a leader that reaches a majority while it is valid. One that was posted to some node may be carried
//! out though whoever asked was told of an error: the error says until when. It is never carried out twice.
//!
//! # How
//!
//! Beside a group's ledger stands its *inbox*, which nobody seals. Whoever asks writes the request to a majority there,
//! under a random id. The leader looks every quarter of a second, hands what is new to its scheduler, and writes the
//! answer over the request, where whoever asked finds it. What is to be done with each request is decided by a pure
//! function, `triage`.

mod classify;
mod error;
mod inbox;
mod jobs;
mod pending;
mod request;
mod status;

pub use error::{JobsError, UnknownSchedule};
pub(super) use inbox::tend;
pub use jobs::{Accepted, Jobs};
pub(super) use pending::IncomingRequest;
pub use request::{JobAction, JobRequest, JobResponse, RequestId, RequestIdError};
pub use status::{JobStatus, RunStatus};

use crate::env::WallTime;

/// A time for people, in UTC.
fn when(at: WallTime) -> String {
    super::Zone::UTC.format(at)
}
