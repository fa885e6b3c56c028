use crate::scheduler::control::request::{JobRequest, JobResponse};
use tokio::sync::oneshot;

/// A request that has reached the leader, with the channel for its answer. If the receiver is dropped, the request is
/// carried out nevertheless.
#[derive(Debug)]
pub(in crate::scheduler) struct IncomingRequest {
    pub(in crate::scheduler) request: JobRequest,
    pub(in crate::scheduler) reply: oneshot::Sender<JobResponse>,
}
