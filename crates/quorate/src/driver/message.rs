use crate::{
    env::BootTime,
    node::{BatchReply, Listen, Owner, Reply, Request},
    trust::{Marking, NodeEpoch},
    vote::ReplyTo,
};
use std::{mem, ops::Deref, sync::Arc, time::Duration};

/// The requests of one message to a node, in their order: a single one, or the extensions of several leases. The nodes
/// that are asked the same share them.
#[derive(Clone, Debug)]
pub(crate) struct RequestList(Arc<[Request]>);

impl From<Request> for RequestList {
    fn from(request: Request) -> Self {
        Self(Arc::new([request]))
    }
}

impl From<Vec<Request>> for RequestList {
    fn from(requests: Vec<Request>) -> Self {
        Self(requests.into())
    }
}

impl Deref for RequestList {
    type Target = [Request];

    fn deref(&self) -> &[Request] {
        &self.0
    }
}

impl RequestList {
    /// Adapts the requests, which are sent `late`: that much after the time for which they were made.
    pub(crate) fn sent_later(&mut self, late: Duration) {
        Arc::make_mut(&mut self.0).iter_mut().for_each(|request| request.sent_later(late));
    }
}

/// A message to a driver.
#[derive(Debug)]
pub(crate) enum DriverMessage {
    /// Send requests to the node.
    Request(PendingRequest),
    /// Subscribe to the releases of a resource, or end the subscription.
    Listen(Listen),
    /// A round found the node late. The driver probes it until it answers promptly again.
    Late,
}

/// Requests to one node, of one message, that have not been answered yet.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// The requests to the node. `None` stands for an operator's request to end the node's quarantine, for which
    /// the driver writes a new marker.
    pub(crate) requests: Option<RequestList>,
    /// The time at which the caller is answered *timed out*. A release is dropped then, since its key has
    /// expired.
    pub(crate) deadline: BootTime,
    /// The caller that waits for the votes. A release is sent even if no caller waits.
    pub(crate) reply: Option<ReplyTo>,
}

impl PendingRequest {
    /// Returns the number of the requests. An operator's request counts as one.
    pub(crate) fn count(&self) -> u64 {
        self.requests.as_ref().map_or(1, |requests| requests.len() as u64)
    }

    /// Returns whether this is a release that may be sent again, even late. The release of one attempt's
    /// lease is such a release, because it frees nothing else. The release of all readers is not: sent late,
    /// it would also free the locks of later readers.
    pub(crate) fn is_release(&self) -> bool {
        let every_reader = |request: &Request| matches!(request, Request::Release { owner, .. } if owner.as_str() == Owner::READERS);
        let is_release = |request: &Request| request.is_release() && !every_reader(request);
        self.requests.as_ref().is_some_and(|requests| requests.iter().all(is_release))
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
    /// The callers' messages, in the order of the batch. The list is empty if the driver itself sent the batch, to
    /// write a marker or to check that the node still stores the known marker.
    pub(crate) messages: Vec<SentRequests>,
    /// The marker that the batch writes, if any.
    pub(crate) marking: Option<Marking>,
    /// The request about stamps with which the batch ends, if any.
    pub(crate) stamping: Option<Request>,
    /// The caller that waits until the marker of `marking` has ended the node's quarantine.
    pub(crate) trust_reply: Option<ReplyTo>,
}

/// The requests of one message, in a batch that was sent.
#[derive(Debug)]
pub(crate) struct SentRequests {
    /// The number of the requests.
    pub(crate) count: usize,
    /// `None` once the caller has been answered.
    pub(crate) pending: Option<PendingRequest>,
}

impl InFlightBatch {
    /// Returns the number of the callers' requests.
    pub(crate) fn requests(&self) -> usize {
        self.messages.iter().map(|message| message.count).sum()
    }

    /// Takes the messages whose callers have not been answered.
    pub(crate) fn take_pending(&mut self) -> impl Iterator<Item = PendingRequest> + use<> {
        mem::take(&mut self.messages).into_iter().filter_map(|message| message.pending)
    }

    /// Returns whether each reply can be an answer to its request. Requests whose callers have been answered are not
    /// checked.
    pub(crate) fn is_answered_by(&self, reply: &BatchReply) -> bool {
        let answers = |(request, reply): (&Request, &Reply)| request.is_answered_by(reply);
        let mut replies = &reply.replies[..];
        let mut is_answered = |message: &SentRequests| {
            let (own, rest) = replies.split_at(message.count.min(replies.len()));
            replies = rest;
            let requests = message.pending.as_ref().and_then(|pending| pending.requests.as_deref());
            requests.unwrap_or_default().iter().zip(own).all(answers)
        };
        self.stamping.as_ref().zip(reply.replies.last()).is_none_or(answers)
            && self.messages.iter().all(&mut is_answered)
    }

    /// Returns the time at which the first of the callers, or the batch itself, times out.
    pub(crate) fn next_deadline(&self) -> BootTime {
        let pending = self.messages.iter().filter_map(|message| message.pending.as_ref());
        let waiting = pending.filter(|pending| pending.reply.is_some());
        waiting.map(|pending| pending.deadline).min().unwrap_or(self.deadline).min(self.deadline)
    }
}
