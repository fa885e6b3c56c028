use crate::{
    env::BootTime,
    node::{BatchReply, Listen, Owner, Request},
    trust::{Marking, NodeEpoch},
    vote::ReplyTo,
};

/// What a driver finds in its mailbox.
#[derive(Debug)]
pub(crate) enum DriverMessage {
    /// Something for its node to do.
    PendingRequest(PendingRequest),
    /// What its node is to tell of, or no longer.
    Listen(Listen),
}

/// Something for a node to do.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) operation: Operation,
    /// When the answer is of no more use; for a release, when its key has ended anyway.
    pub(crate) deadline: BootTime,
    /// Who waits. A release goes on without its waiter.
    pub(crate) reply: Option<ReplyTo>,
}

impl PendingRequest {
    /// Whether it is a release that may go again, and late: it frees one attempt's lease and nobody's after it.
    pub(crate) fn is_release(&self) -> bool {
        let every_reader = |request: &Request| matches!(request, Request::Release { owner, .. } if owner.as_str() == Owner::READERS);
        matches!(&self.operation, Operation::Ask(request) if request.is_release() && !every_reader(request))
    }
}

/// What a post asks for.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A request to the node.
    Ask(Request),
    /// End the node's quarantine in its marker.
    Admit,
}

/// A batch under way.
#[derive(Debug)]
pub(crate) struct InFlightBatch {
    pub(crate) id: u64,
    pub(crate) sent: BootTime,
    /// The memory of the node that was asked.
    pub(crate) memory: NodeEpoch,
    pub(crate) deadline: BootTime,
    /// As [`InFlightBatch::next_deadline`] said last: nothing of it is due before.
    pub(crate) due: BootTime,
    pub(crate) contents: BatchContents,
}

/// What a batch carries.
#[derive(Debug)]
pub(crate) enum BatchContents {
    /// In the order of the batch; an entry that has been answered is `None`.
    Requests(Vec<Option<PendingRequest>>),
    /// A look whether our marker still stands.
    Probe,
    /// A marker on its way, and what holds once it stands.
    Marker { marking: Marking, admits: Option<ReplyTo> },
}

impl InFlightBatch {
    /// Whether each reply can be one to what was asked. What has been answered for already is not looked at.
    pub(crate) fn fits(&self, reply: &BatchReply) -> bool {
        let BatchContents::Requests(requests) = &self.contents else { return true };
        requests.iter().zip(&reply.replies).all(|(pending, reply)| {
            match pending.as_ref().map(|pending| &pending.operation) {
                Some(Operation::Ask(request)) => request.is_answered_by(reply),
                _ => true,
            }
        })
    }

    /// When the first of its waiters, or the flight itself, is answered *timed out*.
    pub(crate) fn next_deadline(&self) -> BootTime {
        match &self.contents {
            BatchContents::Requests(requests) => {
                let waiting = requests.iter().flatten().filter(|pending| pending.reply.is_some());
                waiting.map(|pending| pending.deadline).min().unwrap_or(self.deadline).min(self.deadline)
            }
            BatchContents::Probe | BatchContents::Marker { .. } => self.deadline,
        }
    }
}
