//! Requests on shared leases, which many readers hold at a time, without an exclusive holder.

use super::{LeaseRow, READERS_MAX, ReaderRow, RequestHandler, Store};
use crate::node::{FencingToken, Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> RequestHandler<'_, S> {
    pub(super) fn share(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        ticket: Option<&Owner>,
    ) -> Result<Reply, S::Error> {
        let stored = match self.live_lease(resource)? {
            Some(row) if !row.is_read() => return Ok(self.held(&row)),
            other => other,
        };
        if let Some(queued) = self.blocked_by_writer(resource, ticket)? {
            return Ok(queued);
        }
        self.add_reader(resource, stored, owner, ttl, Reply::Shared)
    }

    pub(super) fn extend_share(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Reply, S::Error> {
        let stored = match self.live_lease(resource)? {
            Some(row) if !row.is_read() => return Ok(self.held(&row)),
            other => other,
        };
        let reads = |row: &LeaseRow| self.live_readers(row).any(|reader| *reader.owner == *owner.as_str());
        if !stored.as_ref().is_some_and(reads)
            && let Some(queued) = self.blocked_by_writer(resource, None)?
        {
            return Ok(queued); // A reader whose lease ended does not overtake a waiting writer.
        }
        self.add_reader(resource, stored, owner, ttl, Reply::Extended)
    }

    pub(super) fn release_share(&mut self, resource: &Resource, owner: &Owner) -> Result<Reply, S::Error> {
        let Some(row) = self.live_lease(resource)?.filter(LeaseRow::is_read) else {
            return Ok(Reply::Released(false));
        };
        let mut readers: Vec<ReaderRow> = self.live_readers(&row).cloned().collect();
        let before = readers.len();
        readers.retain(|reader| *reader.owner != *owner.as_str());
        let was_present = readers.len() < before;
        if was_present && readers.is_empty() {
            self.free(resource, &Owner::from_node(Owner::READERS))?;
        } else {
            self.set_readers(resource, readers)?;
        }
        Ok(Reply::Released(was_present))
    }

    pub(super) fn downgrade(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        token: FencingToken,
        reader: &Owner,
        ttl: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {
                // If the counter is missing or larger than `token`, there may have been a later grant. The
                // lease must not be downgraded then.
                if self.live_counter(resource)?.is_none_or(|count| count > token) {
                    return Ok(Reply::Refused(Refusal::Superseded));
                }
                let reader = ReaderRow { owner: reader.as_str().into(), until_nanos: self.expiry(ttl) };
                self.set_readers(resource, vec![reader])?;
                self.record_release(resource, owner);
                Ok(Reply::Shared)
            }
            Some(row) => Ok(self.held(&row)),
            None => Ok(Reply::Refused(Refusal::NotOwner)),
        }
    }

    fn add_reader(
        &mut self,
        resource: &Resource,
        stored: Option<LeaseRow>,
        owner: &Owner,
        ttl: Duration,
        joined: Reply,
    ) -> Result<Reply, S::Error> {
        let mut readers: Vec<ReaderRow> =
            stored.iter().flat_map(|row| self.live_readers(row)).cloned().collect();
        let until_nanos = self.expiry(ttl);
        let crowded = readers.len() >= READERS_MAX;
        match readers.iter_mut().find(|reader| *reader.owner == *owner.as_str()) {
            Some(present) => present.until_nanos = present.until_nanos.max(until_nanos),
            None if crowded => return Ok(Reply::Refused(Refusal::Crowded { most: READERS_MAX as u32 })),
            None => readers.push(ReaderRow { owner: owner.as_str().into(), until_nanos }),
        }
        self.set_readers(resource, readers)?;
        Ok(joined)
    }

    /// Makes `readers` the holders of the resource until the last reader's lease ends.
    fn set_readers(&mut self, resource: &Resource, readers: Vec<ReaderRow>) -> Result<(), S::Error> {
        let last = readers.iter().map(|reader| reader.until_nanos).max();
        let row = last.map(|until_nanos| LeaseRow { owner: Owner::READERS.into(), until_nanos, readers });
        self.store.set_lease(resource, row)
    }

    fn live_readers<'r>(&self, row: &'r LeaseRow) -> impl Iterator<Item = &'r ReaderRow> {
        let now = self.clocks.lease_nanos;
        row.readers.iter().filter(move |reader| reader.until_nanos > now)
    }
}

impl LeaseRow {
    /// Returns whether readers hold the lease.
    pub fn is_read(&self) -> bool {
        &*self.owner == Owner::READERS
    }
}
