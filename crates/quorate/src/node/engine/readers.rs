//! Readers: many at a time, and nobody else.

use super::{Desk, LeaseRow, READERS_MAX, ReaderRow, Store};
use crate::node::{FencingToken, Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> Desk<'_, S> {
    pub(super) fn share(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        ticket: Option<&Owner>,
    ) -> Result<Reply, S::Error> {
        let standing = match self.live_lease(resource)? {
            Some(row) if !row.is_read() => return Ok(self.held(&row)),
            other => other,
        };
        if let Some(queued) = self.writer_ahead(resource, ticket)? {
            return Ok(queued);
        }
        self.join(resource, standing, owner, ttl, Reply::Shared)
    }

    pub(super) fn extend_share(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Reply, S::Error> {
        let standing = match self.live_lease(resource)? {
            Some(row) if !row.is_read() => return Ok(self.held(&row)),
            other => other,
        };
        let reads = |row: &LeaseRow| self.live_readers(row).any(|reader| *reader.owner == *owner.as_str());
        if !standing.as_ref().is_some_and(reads)
            && let Some(queued) = self.writer_ahead(resource, None)?
        {
            return Ok(queued); // Repair goes past nobody who waits.
        }
        self.join(resource, standing, owner, ttl, Reply::Extended)
    }

    pub(super) fn release_share(&mut self, resource: &Resource, owner: &Owner) -> Result<Reply, S::Error> {
        let Some(row) = self.live_lease(resource)?.filter(LeaseRow::is_read) else {
            return Ok(Reply::Released(false));
        };
        let mut readers: Vec<ReaderRow> = self.live_readers(&row).cloned().collect();
        let before = readers.len();
        readers.retain(|reader| *reader.owner != *owner.as_str());
        let mine = readers.len() < before;
        if mine && readers.is_empty() {
            self.free(resource, &Owner::from_node(Owner::READERS))?;
        } else {
            self.read_by(resource, readers)?;
        }
        Ok(Reply::Released(mine))
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
                // A forgotten count cannot tell either.
                if self.live_counter(resource)?.is_none_or(|count| count > token) {
                    return Ok(Reply::Refused(Refusal::Superseded));
                }
                let reader = ReaderRow { owner: reader.as_str().into(), until_nanos: self.after(ttl) };
                self.read_by(resource, vec![reader])?;
                self.tell(resource, owner);
                Ok(Reply::Shared)
            }
            Some(row) => Ok(self.held(&row)),
            None => Ok(Reply::Refused(Refusal::NotOwner)),
        }
    }

    fn join(
        &mut self,
        resource: &Resource,
        standing: Option<LeaseRow>,
        owner: &Owner,
        ttl: Duration,
        joined: Reply,
    ) -> Result<Reply, S::Error> {
        let mut readers: Vec<ReaderRow> =
            standing.iter().flat_map(|row| self.live_readers(row)).cloned().collect();
        let until_nanos = self.after(ttl);
        let crowded = readers.len() >= READERS_MAX;
        match readers.iter_mut().find(|reader| *reader.owner == *owner.as_str()) {
            Some(mine) => mine.until_nanos = mine.until_nanos.max(until_nanos),
            None if crowded => return Ok(Reply::Refused(Refusal::Crowded { most: READERS_MAX as u32 })),
            None => readers.push(ReaderRow { owner: owner.as_str().into(), until_nanos }),
        }
        self.read_by(resource, readers)?;
        Ok(joined)
    }

    /// The resource is these readers' until the last of them ends.
    fn read_by(&mut self, resource: &Resource, readers: Vec<ReaderRow>) -> Result<(), S::Error> {
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
    /// Whether readers hold it.
    pub fn is_read(&self) -> bool {
        &*self.owner == Owner::READERS
    }
}
