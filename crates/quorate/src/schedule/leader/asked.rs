use crate::schedule::{Answer, Request};
use tokio::sync::oneshot;

/// A request that has reached the leader, and where its answer goes. (Where nobody waits for it any more, it is
/// carried out all the same.)
#[derive(Debug)]
pub(in crate::schedule) struct Asked {
    pub(in crate::schedule) request: Request,
    pub(in crate::schedule) reply: oneshot::Sender<Answer>,
}
