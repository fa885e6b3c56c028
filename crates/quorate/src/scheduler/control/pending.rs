use crate::scheduler::store::{JobRequest, JobResponse};
use tokio::sync::oneshot;

/// A request that has reached the leader, with the channel for the answer. If the receiver of the answer is
/// dropped, the request is still carried out.
#[derive(Debug)]
pub(in crate::scheduler) struct IncomingRequest {
    pub(in crate::scheduler) request: JobRequest,
    pub(in crate::scheduler) reply: oneshot::Sender<JobResponse>,
}
