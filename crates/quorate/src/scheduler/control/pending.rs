use crate::scheduler::{JobRequest, JobResponse};
use tokio::sync::oneshot;

/// A request that has reached the leader, and where its answer goes. (Where nobody waits for it any more, it is
/// carried out all the same.)
#[derive(Debug)]
pub(in crate::scheduler) struct IncomingRequest {
    pub(in crate::scheduler) request: JobRequest,
    pub(in crate::scheduler) reply: oneshot::Sender<JobResponse>,
}
