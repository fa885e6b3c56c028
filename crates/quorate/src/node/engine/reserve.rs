//! The request that replaces a lease by a reservation for another worker.

use super::{RequestHandler, Store};
use crate::node::{Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> RequestHandler<'_, S> {
    pub(super) fn reserve(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        reservation: &Owner,
        ttl: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {
                self.set_owner(resource, reservation, ttl)?;
                self.record_release(resource, owner);
                Ok(Reply::Reserved)
            }
            _ => Ok(Reply::Refused(Refusal::NotOwner)),
        }
    }
}
