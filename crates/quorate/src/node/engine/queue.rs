//! The queue of a resource. Each waiter has a ticket, and the queue has one entry ([`PlaceRow`]) for each
//! ticket. The entries are ordered by the time at which the waiter began to wait, then by ticket. The order
//! in which the requests arrive does not count, so all nodes have the same first entry. A full queue keeps the entries
//! that come first.
//!
//! If the queue is not empty, a free resource is granted only to the waiter whose ticket is first. Readers
//! are granted together, up to the first waiter that needs exclusive access. Each entry expires unless its
//! waiter extends it. The queue expires with its last entry.

use super::{PlaceRow, QUEUE_MAX, QueueRow, RequestHandler, Store};
use crate::node::{NodeTime, Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> RequestHandler<'_, S> {
    /// Checks an acquire under `ticket` against the queue. Returns the refusal if another waiter is first in
    /// the queue, or `None` if the acquire may continue. Claims have no queue.
    pub(super) fn blocked_by_queue(
        &self,
        resource: &Resource,
        ticket: Option<&Owner>,
    ) -> Result<Option<Reply>, S::Error> {
        if resource.is_claim() {
            return Ok(None);
        }
        let places = self.live_places(resource)?;
        let first = places.first().filter(|place| !place.is(ticket));
        Ok(first.map(|_| self.queue_reply(&places)))
    }

    /// Checks a reader under `ticket` against the queue. Returns the refusal if a waiter that needs exclusive
    /// access is ahead of the reader in the queue, or `None` if the reader may continue.
    pub(super) fn blocked_by_writer(
        &self,
        resource: &Resource,
        ticket: Option<&Owner>,
    ) -> Result<Option<Reply>, S::Error> {
        let places = self.live_places(resource)?;
        let waits = places.iter().take_while(|place| !place.is(ticket)).any(|place| place.exclusive);
        Ok(waits.then(|| self.queue_reply(&places)))
    }

    pub(super) fn new_place(&self, at: u64, ticket: &Owner, ttl: Duration, exclusive: bool) -> PlaceRow {
        PlaceRow { at, ticket: ticket.as_str().into(), until_nanos: self.expiry(ttl), exclusive }
    }

    /// Adds the entry `place` to the queue. If its ticket is already in the queue, extends the existing
    /// entry. If the queue is full, the entry that comes last is left out.
    pub(super) fn queue(
        &mut self,
        resource: &Resource,
        mut place: PlaceRow,
        now: NodeTime,
        tolerance: Duration,
    ) -> Result<Reply, S::Error> {
        let ahead = self.clocks.wall.until(NodeTime::from_micros(place.at));
        let apart = self.clocks.wall.distance(now).max(ahead);
        if apart > tolerance {
            return Ok(Reply::Refused(Refusal::Clock { apart }));
        }
        let mut places = self.live_places(resource)?;
        if let Some(at) = places.iter().position(|other| other.ticket == place.ticket) {
            let stored = places.remove(at);
            place = PlaceRow { until_nanos: place.until_nanos.max(stored.until_nanos), ..stored };
        } else if places.len() >= QUEUE_MAX {
            // The entries that come first stay. So all nodes keep the same entries, in whichever order the waiters
            // arrive.
            let comes_first = |last: &PlaceRow| (place.at, &place.ticket) < (last.at, &last.ticket);
            if !places.last().is_some_and(comes_first) {
                return Ok(Reply::Refused(Refusal::Crowded { most: QUEUE_MAX as u32 }));
            }
            places.pop();
        }
        let before = places.partition_point(|other| (other.at, &other.ticket) < (place.at, &place.ticket));
        let ahead = places[..before].iter().filter(|other| other.exclusive || place.exclusive).count();
        places.insert(before, place);
        self.set_places(resource, places)?;
        Ok(Reply::Queued { ahead: ahead as u32 })
    }

    pub(super) fn leave_queue(&mut self, resource: &Resource, ticket: &Owner) -> Result<Reply, S::Error> {
        let mut places = self.live_places(resource)?;
        let before = places.len();
        places.retain(|place| !place.is(Some(ticket)));
        let was_present = places.len() < before;
        self.set_places(resource, places)?;
        Ok(Reply::Released(was_present))
    }

    fn live_places(&self, resource: &Resource) -> Result<Vec<PlaceRow>, S::Error> {
        let mut places = self.store.queue(resource)?.map(|row| row.places).unwrap_or_default();
        places.retain(|place| place.until_nanos > self.clocks.lease_nanos);
        Ok(places)
    }

    fn set_places(&mut self, resource: &Resource, places: Vec<PlaceRow>) -> Result<(), S::Error> {
        let last = places.iter().map(|place| place.until_nanos).max();
        self.store.set_queue(resource, last.map(|until_nanos| QueueRow { until_nanos, places }))
    }

    fn queue_reply(&self, places: &[PlaceRow]) -> Reply {
        let last = places.iter().map(|place| place.until_nanos).max().unwrap_or_default();
        let remaining = Duration::from_nanos(last.saturating_sub(self.clocks.lease_nanos));
        Reply::Held { owner: Owner::from_node(Owner::QUEUE), remaining: Some(remaining) }
    }
}

impl PlaceRow {
    fn is(&self, ticket: Option<&Owner>) -> bool {
        ticket.is_some_and(|ticket| *self.ticket == *ticket.as_str())
    }
}
