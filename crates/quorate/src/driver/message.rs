use crate::{
    env::BootTime,
    node::{BatchReply, Listen, Owner, Reply, Request},
    trust::{Marking, NodeEpoch},
    vote::ReplyTo,
};
use std::sync::Arc;

/// A message to a driver.
#[derive(Debug)]
pub(crate) enum DriverMessage {
    /// Send a request to the node.
    Request(PendingRequest),
    /// Subscribe to the releases of a resource, or end the subscription.
    Listen(Listen),
    /// A round found the node late. The driver probes it until it answers promptly again.
    Late,
}

/// A request to one node that has not been answered yet.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// The request to the node. `None` stands for an operator's request to end the node's quarantine, for which
    /// the driver writes a new marker. The first requests of an acquire are one for all nodes.
    pub(crate) request: Option<Arc<Request>>,
    /// The time at which the caller is answered *timed out*. A release is dropped then, since its key has
    /// expired.
    pub(crate) deadline: BootTime,
    /// The caller that waits for the vote. A release is sent even if no caller waits.
    pub(crate) reply: Option<ReplyTo>,
}

impl PendingRequest {
    /// Returns whether this is a release that may be sent again, even late. The release of one attempt's
    /// lease is such a release, because it frees nothing else. The release of all readers is not: sent late,
    /// it would also free the locks of later readers.
    pub(crate) fn is_release(&self) -> bool {
        let every_reader = |request: &Request| matches!(request, Request::Release { owner, .. } if owner.as_str() == Owner::READERS);
        self.request.as_deref().is_some_and(|request| request.is_release() && !every_reader(request))
    }
}

/// A batch that was sent and has not been answered.
#[derive(Debug)]
pub(crate) struct InFlightBatch {
    pub(crate) id: u64,
    pub(crate) sent: BootTime,
    /// The memory epoch of the node when the batch was sent. The votes of the batch belong to this epoch.
    pub(crate) memory: NodeEpoch,
    pub(crate) deadline: BootTime,
    /// The earliest deadline in the batch: the result of the last call of [`InFlightBatch::next_deadline`].
    pub(crate) due: BootTime,
    /// The callers' requests, in the order of the batch. `None` in place of a request whose caller has been
    /// answered. The list is empty if the driver itself sent the batch, to write a marker or to check that
    /// the node still stores the known marker.
    pub(crate) requests: Vec<Option<PendingRequest>>,
    /// The marker that the batch writes, if any.
    pub(crate) marking: Option<Marking>,
    /// The request about stamps with which the batch ends, if any.
    pub(crate) stamping: Option<Request>,
    /// The caller that waits until the marker of `marking` has ended the node's quarantine.
    pub(crate) trust_reply: Option<ReplyTo>,
}

impl InFlightBatch {
    /// Returns whether each reply can be an answer to its request. Requests whose callers have been answered are not
    /// checked.
    pub(crate) fn is_answered_by(&self, reply: &BatchReply) -> bool {
        let answers = |request: &Request, reply: &Reply| request.is_answered_by(reply);
        let stamping = self.stamping.as_ref().zip(reply.replies.last());
        let requests = self.requests.iter().map(|pending| pending.as_ref()?.request.as_deref());
        stamping.is_none_or(|(request, reply)| answers(request, reply))
            && requests
                .zip(&reply.replies)
                .all(|(request, reply)| request.is_none_or(|it| answers(it, reply)))
    }

    /// Returns the time at which the first of the callers, or the batch itself, times out.
    pub(crate) fn next_deadline(&self) -> BootTime {
        let waiting = self.requests.iter().flatten().filter(|pending| pending.reply.is_some());
        waiting.map(|pending| pending.deadline).min().unwrap_or(self.deadline).min(self.deadline)
    }
}
