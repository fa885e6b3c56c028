use crate::{
    driver::{OpenAttempt, RequestList},
    lease::{contact::AskPlan, inner::QuorumInner, params::LeaseParams},
    node::{FencingToken, Owner, Refusal, Reply, Request, Resource},
    sabotage::Sabotage,
    vote::{Answer, ReplyTo, RoundData, Tally, Vote},
};
use std::sync::Arc;

/// The attempt for one resource. If it is dropped before the renewer has adopted its lease, it queues releases.
/// Each node receives the release after the attempt's other requests.
pub(super) struct Attempt<D: RoundData> {
    pub(super) inner: Arc<QuorumInner>,
    pub(super) resource: Resource,
    pub(super) owner: Owner,
    pub(super) params: LeaseParams,
    pub(super) tally: Tally<D>,
    pub(super) plan: AskPlan,
    pub(super) step: Step,
    /// The number of times that the token was determined again. A reply to an earlier raise does not count.
    pub(super) raises: u32,
    /// The nodes that were asked again because commands could not acquire the claim there.
    pub(super) asked_again: Vec<usize>,
    /// While this guard exists, the drivers of a pool that is being closed still send the attempt's releases. It is
    /// dropped after the release has been queued.
    pub(super) _open: OpenAttempt,
}

/// The kind of request with which an attempt begins.
#[derive(Clone)]
pub(super) enum FirstRequest {
    /// Acquire a free resource. The ticket is the caller's, if the caller has joined the queue of the
    /// resource.
    Acquire(Option<Owner>),
    /// Replace the writer's lease with this owner token and fencing token by a reader's lease.
    Downgrade(Owner, FencingToken),
}

pub(super) enum Step {
    /// Waiting for votes on the first request, which acquires the resource or downgrades a lease.
    Acquiring,
    /// A majority granted. The nodes with a smaller counter have been asked to raise it to `token`. `waiting`
    /// of them have not answered yet.
    Raising { token: FencingToken, waiting: usize },
    /// The attempt is won, with this fencing token.
    Won(FencingToken),
    /// The attempt was lost, and its grants have been released.
    Lost,
    /// The renewer has adopted the lease.
    Adopted,
}

impl<D: RoundData> Drop for Attempt<D> {
    fn drop(&mut self) {
        if !self.inner.config().sabotaged(Sabotage::DropsSilently) {
            self.release();
        }
    }
}

impl<D: RoundData> Attempt<D> {
    /// Returns whether the attempt is neither won nor lost.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.step, Step::Acquiring | Step::Raising { .. })
    }

    /// Ends the attempt, unless it has ended, and releases its grants.
    pub(super) fn release(&mut self) {
        if !matches!(self.step, Step::Lost | Step::Adopted) {
            self.step = Step::Lost;
            let release = self.params.release(self.resource.clone(), self.owner.clone());
            self.inner.pool().free(release, |node| self.tally.may_hold(node), None);
        }
    }

    /// Returns whether the node must be asked again, because commands could not acquire the claim there, and notes that it is.
    /// It is asked again twice at most, and only by an open attempt: the release of one that has ended may be on its way.
    pub(super) fn is_asked_again(&mut self, vote: &Vote) -> bool {
        let is_not_new = matches!(vote.answer, Answer::Reply(Reply::Refused(Refusal::NotNew)));
        let times = self.asked_again.iter().filter(|node| **node == vote.node).count();
        if !is_not_new || !self.is_open() || times == 2 {
            return false;
        }
        self.asked_again.push(vote.node);
        true
    }

    /// Drops the raises that were sent. The token is determined again from the grants that count.
    pub(super) fn settle_again(&mut self) {
        self.step = Step::Acquiring;
        self.raises += 1;
    }

    /// Returns the first request of the attempt, which is the same for all nodes.
    pub(super) fn first_request(&self, opening: &FirstRequest, propose: FencingToken) -> RequestList {
        let params = self.params;
        let (resource, owner) = (self.resource.clone(), self.owner.clone());
        RequestList::from(match opening {
            FirstRequest::Acquire(ticket) => {
                let tolerance = self.inner.config().max_clock_offset;
                params.acquire(resource, owner, propose, tolerance, ticket.clone())
            }
            FirstRequest::Downgrade(from, token) => Request::Downgrade {
                resource,
                owner: from.clone(),
                token: *token,
                reader: owner,
                ttl: params.ttl,
            },
        })
    }

    /// Sends a request of the attempt to one node.
    pub(super) fn post(&self, node: usize, request: RequestList, reply: ReplyTo) {
        self.inner.pool().ask(node, request, reply);
    }
}
