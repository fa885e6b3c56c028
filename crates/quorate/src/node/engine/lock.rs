//! Requests on locks and claims: acquire, raise, extend, release and inspect.

use super::{RequestHandler, Store, claim::ClaimState};
use crate::node::{FencingToken, NodeTime, Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> RequestHandler<'_, S> {
    /// Returns the reply that refuses an acquire, if the claim is done, the resource is held, or another
    /// waiter is first in the queue. Returns `None` if `owner` may acquire.
    pub(super) fn not_free(
        &self,
        resource: &Resource,
        owner: &Owner,
        ticket: Option<&Owner>,
    ) -> Result<Option<Reply>, S::Error> {
        if let Some(done) = self.live_claim(resource)?.done {
            return Ok(Some(Reply::Done(done)));
        }
        if let Some(row) = self.live_lease(resource)? {
            // The resource may be reserved for the worker of `owner`. This worker may acquire it even before
            // the waiters in the queue.
            let is_reserved_for_owner = owner.may_take(&Owner::from_node(&row.owner));
            return Ok((!is_reserved_for_owner).then(|| self.held(&row)));
        }
        self.blocked_by_queue(resource, ticket)
    }

    /// Grants a resource to `owner`. The caller must have checked with [`RequestHandler::not_free`] that
    /// `owner` may acquire it.
    pub(super) fn acquire(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        propose: FencingToken,
        tolerance: Duration,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        let last = match self.live_counter(resource)? {
            Some(count) => count,
            None => {
                let apart = self.clocks.wall.distance(NodeTime::from_micros(propose.get()));
                if apart > tolerance {
                    return Ok(Reply::Refused(Refusal::Clock { apart }));
                }
                propose
            }
        };
        if last >= FencingToken::MAX {
            return Ok(Reply::Refused(Refusal::CounterFull));
        }
        let counter = FencingToken::new(last.get() + 1);
        // The counter is written before the owner. If the node fails between the two writes, it has counted a
        // grant that no worker received, which is harmless.
        self.set_counter(resource, counter, keep)?;
        self.set_owner(resource, owner, ttl)?;
        Ok(Reply::Granted { counter, begun: self.live_claim(resource)?.begun })
    }

    pub(super) fn raise(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        to: FencingToken,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {}
            _ => return Ok(Reply::Refused(Refusal::NotOwner)),
        }
        match self.live_counter(resource)? {
            // The counter was lost although the lease is live. So its last value is not known, and a later
            // grant cannot be excluded.
            None => Ok(Reply::Refused(Refusal::Superseded)),
            Some(count) if count > to => Ok(Reply::Refused(Refusal::Superseded)),
            Some(_) => {
                self.set_counter(resource, to, keep)?;
                Ok(Reply::Raised)
            }
        }
    }

    pub(super) fn extend(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        token: FencingToken,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        let current_end = match self.live_lease(resource)? {
            Some(row) if *row.owner != *owner.as_str() => return Ok(self.held(&row)),
            Some(row) => row.until_nanos,
            None => 0,
        };
        if let Some(done) = self.live_claim(resource)?.done {
            return Ok(Reply::Done(done));
        }
        if current_end == 0
            && let Some(queued) = self.blocked_by_queue(resource, None)?
        {
            return Ok(queued); // A free resource goes to the first waiter, not back to its former holder.
        }
        let counter = self.live_counter(resource)?;
        if let Some(counter) = counter.filter(|counter| current_end == 0 && *counter > token) {
            // Later grants have been counted. One of them may have been a whole lease that has ended since.
            return Ok(Reply::Refused(Refusal::LaterGrants { counter }));
        }
        let count = counter.map_or(token, |count| count.max(token));
        self.set_counter(resource, count, keep)?;
        if current_end < self.expiry(ttl) {
            self.set_owner(resource, owner, ttl)?;
        }
        Ok(Reply::Extended)
    }

    pub(super) fn release(&mut self, resource: &Resource, owner: &Owner) -> Result<Reply, S::Error> {
        let is_holder = self.live_lease(resource)?.is_some_and(|row| *row.owner == *owner.as_str());
        if is_holder {
            self.free(resource, owner)?;
        }
        Ok(Reply::Released(is_holder))
    }

    pub(super) fn inspect(&mut self, resource: &Resource) -> Result<Reply, S::Error> {
        let holder = self.live_lease(resource)?;
        let holder = holder.map(|row| (Owner::from_node(&row.owner), Some(self.remaining(&row))));
        let counter = self.live_counter(resource)?;
        let ClaimState { done, begun } = self.live_claim(resource)?;
        Ok(Reply::State { holder, counter, done, begun })
    }
}
