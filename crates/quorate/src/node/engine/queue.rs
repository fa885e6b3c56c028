//! The queue of a resource: places ordered by ticket, not by arrival, so that all nodes agree on the head.
//!
//! While a place stands, a free resource is granted to the head alone; readers may go in together, up to the first
//! who wants to be alone. A place ends by itself, and the queue with its last place.

use super::{Desk, PlaceRow, QUEUE_MAX, QueueRow, Store};
use crate::node::{NodeTime, Owner, Refusal, Reply, Resource};
use std::time::Duration;

impl<S: Store> Desk<'_, S> {
    /// What to say to an acquire under `ticket` where somebody comes first. Claims and what else is never
    /// waited for in a queue has none.
    pub(super) fn first_in_line(
        &self,
        resource: &Resource,
        ticket: Option<&Owner>,
    ) -> Result<Option<Reply>, S::Error> {
        if resource.is_claim() {
            return Ok(None);
        }
        let places = self.live_places(resource)?;
        let first = places.first().filter(|place| !place.is(ticket));
        Ok(first.map(|_| self.queued(&places)))
    }

    /// What to say to a reader under `ticket` where somebody who wants to be alone comes first.
    pub(super) fn writer_ahead(
        &self,
        resource: &Resource,
        ticket: Option<&Owner>,
    ) -> Result<Option<Reply>, S::Error> {
        let places = self.live_places(resource)?;
        let waits = places.iter().take_while(|place| !place.is(ticket)).any(|place| place.alone);
        Ok(waits.then(|| self.queued(&places)))
    }

    pub(super) fn place(&self, at: u64, ticket: &Owner, ttl: Duration, alone: bool) -> PlaceRow {
        PlaceRow { at, ticket: ticket.as_str().into(), until_nanos: self.after(ttl), alone }
    }

    /// Takes `place`, or holds on to the one that stands under its ticket.
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
            let standing = places.remove(at);
            place = PlaceRow { until_nanos: place.until_nanos.max(standing.until_nanos), ..standing };
        } else if places.len() >= QUEUE_MAX {
            return Ok(Reply::Refused(Refusal::Crowded { most: QUEUE_MAX as u32 }));
        }
        let before = places.partition_point(|other| (other.at, &other.ticket) < (place.at, &place.ticket));
        let ahead = places[..before].iter().filter(|other| other.alone || place.alone).count();
        places.insert(before, place);
        self.waits(resource, places)?;
        Ok(Reply::Queued { ahead: ahead as u32 })
    }

    pub(super) fn leave_queue(&mut self, resource: &Resource, ticket: &Owner) -> Result<Reply, S::Error> {
        let mut places = self.live_places(resource)?;
        let before = places.len();
        places.retain(|place| !place.is(Some(ticket)));
        let mine = places.len() < before;
        self.waits(resource, places)?;
        Ok(Reply::Released(mine))
    }

    fn live_places(&self, resource: &Resource) -> Result<Vec<PlaceRow>, S::Error> {
        let mut places = self.store.queue(resource)?.map(|row| row.places).unwrap_or_default();
        places.retain(|place| place.until_nanos > self.clocks.lease_nanos);
        Ok(places)
    }

    fn waits(&mut self, resource: &Resource, places: Vec<PlaceRow>) -> Result<(), S::Error> {
        let last = places.iter().map(|place| place.until_nanos).max();
        self.store.set_queue(resource, last.map(|until_nanos| QueueRow { until_nanos, places }))
    }

    fn queued(&self, places: &[PlaceRow]) -> Reply {
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
