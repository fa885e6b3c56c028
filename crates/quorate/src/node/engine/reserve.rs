//! A lease in other hands.

use super::{Desk, Store};
use crate::node::{Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> Desk<'_, S> {
    pub(super) fn reserve(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        heir: &Owner,
        ttl: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {
                self.own(resource, heir, ttl)?;
                self.tell(resource, owner);
                Ok(Reply::Reserved)
            }
            _ => Ok(Reply::Refused(Refusal::NotOwner)),
        }
    }
}
