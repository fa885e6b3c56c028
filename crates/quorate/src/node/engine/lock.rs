//! Acquire, raise, extend, release, inspect.

use super::{Desk, Store, claim::Stands};
use crate::node::{FencingToken, NodeTime, Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> Desk<'_, S> {
    /// What to say to an acquire of what is done, held, or to be another's first.
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
            // Whoever it is reserved for goes before those who wait in line.
            let heir = owner.may_take(&Owner::from_node(&row.owner));
            return Ok((!heir).then(|| self.held(&row)));
        }
        self.first_in_line(resource, ticket)
    }

    /// Of what is free for it: see [`Desk::not_free`].
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
        // The counter first: a node that fails between the two has counted a grant that nobody got.
        self.count(resource, counter, keep)?;
        self.own(resource, owner, ttl)?;
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
            // Forgotten under a live lease: nobody can say what was counted here.
            None => Ok(Reply::Refused(Refusal::Superseded)),
            Some(count) if count > to => Ok(Reply::Refused(Refusal::Superseded)),
            Some(_) => {
                self.count(resource, to, keep)?;
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
        let mine = match self.live_lease(resource)? {
            Some(row) if *row.owner != *owner.as_str() => return Ok(self.held(&row)),
            Some(row) => row.until_nanos,
            None => 0,
        };
        if let Some(done) = self.live_claim(resource)?.done {
            return Ok(Reply::Done(done));
        }
        if mine == 0
            && let Some(queued) = self.first_in_line(resource, None)?
        {
            return Ok(queued); // Repair goes past nobody who waits.
        }
        let count = self.live_counter(resource)?.map_or(token, |count| count.max(token));
        self.count(resource, count, keep)?;
        if mine < self.after(ttl) {
            self.own(resource, owner, ttl)?;
        }
        Ok(Reply::Extended)
    }

    pub(super) fn release(&mut self, resource: &Resource, owner: &Owner) -> Result<Reply, S::Error> {
        let mine = self.live_lease(resource)?.is_some_and(|row| *row.owner == *owner.as_str());
        if mine {
            self.free(resource, owner)?;
        }
        Ok(Reply::Released(mine))
    }

    pub(super) fn inspect(&mut self, resource: &Resource) -> Result<Reply, S::Error> {
        let holder = self.live_lease(resource)?;
        let holder = holder.map(|row| (Owner::from_node(&row.owner), Some(self.remaining(&row))));
        let counter = self.live_counter(resource)?;
        let Stands { done, begun } = self.live_claim(resource)?;
        Ok(Reply::State { holder, counter, done, begun })
    }
}
