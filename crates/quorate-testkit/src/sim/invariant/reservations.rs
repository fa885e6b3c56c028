use super::{Event, Invariant, MAJORITY};
use crate::sim::{Belief, Excuse};
use quorate::node::{Reply, Request, Resource};
use std::{collections::BTreeMap, time::Duration};

/// The largest amount by which a server's clock may shorten a reservation of a second, compared with true time:
/// the largest step of the clock in that time, and the drift.
const SHORTER: Duration = Duration::from_millis(105);

/// Requires that no worker acquires a lock while a majority of the servers reserves it for another worker
/// ([`Lease::transfer_to`](quorate::lease::Lease::transfer_to): only the successor can acquire the lock during
/// the reservation). No worker acquires it for reading, not even the successor.
///
/// Four exceptions are permitted:
///
/// - A reservation ends by the server's clock. It is judged for its length less [`SHORTER`]. In the plan
///   `far-steps`, where servers' clocks step further, this invariant is not judged.
/// - A server that forgot its data does not count. Nor does a server that has granted the lock to the successor:
///   the reservation ends with the grant, even if the successor does not win a majority.
/// - A transfer that fails to reach a majority reserves nothing.
/// - A grant whose worker's boot clock stood still is not judged: the worker may have acquired it before the
///   reservation.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    made: BTreeMap<Resource, BTreeMap<String, Reservation>>,
    taken: u64,
    judged: u64,
}

/// The reservation of a lock on one server.
#[derive(Debug)]
struct Reservation {
    successor: String,
    /// The excuse why the server no longer counts, if it does not.
    gone: Option<Excuse>,
    /// The true time until which the reservation is judged.
    until: Duration,
}

impl Invariant for Reservations {
    fn name(&self) -> &'static str {
        "reservations"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("reservation taken", self.taken), ("grant judged beside reservations", self.judged)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Forgot { node } => {
                let made = self.made.values_mut().filter_map(|made| made.get_mut(*node));
                made.for_each(|reservation| reservation.gone = Some(Excuse::ReservationsForgotten));
                Ok(())
            }
            Event::Ran {
                node,
                request: Request::Reserve { resource, successor, ttl, .. },
                reply: Reply::Reserved,
            } => {
                let successor = successor.reserved_for().unwrap_or_default().to_owned();
                let reservation =
                    Reservation { successor, gone: None, until: now + ttl.saturating_sub(SHORTER) };
                let made = self.made.entry(resource.clone()).or_default();
                made.insert((*node).to_owned(), reservation);
                Ok(())
            }
            Event::Ran {
                node,
                request: Request::Acquire { resource, owner, .. },
                reply: Reply::Granted { .. },
            } => {
                let made = self.made.get_mut(resource).and_then(|made| made.get_mut(*node));
                if let Some(reservation) = made.filter(|made| made.gone.is_none())
                    && reservation.successor == owner.worker()
                {
                    reservation.gone = Some(Excuse::ReservationsTaken);
                    self.taken += 1;
                }
                Ok(())
            }
            Event::Granted(belief) | Event::Read { belief, .. } => self.judge(now, belief),
            _ => Ok(()),
        }
    }
}

impl Reservations {
    fn judge(&mut self, now: Duration, belief: &Belief) -> Result<(), String> {
        let Belief { worker, resource, reads, .. } = belief;
        let Some(made) = self.made.get_mut(resource) else { return Ok(()) };
        made.retain(|_, reservation| now < reservation.until);
        let is_judged = belief.valid && !belief.clock_stood;
        let is_made = made.values().any(|reservation| reservation.gone.is_none());
        self.judged += u64::from(is_judged && is_made);
        let others = made.values().filter(|reservation| *reads || reservation.successor != **worker);
        let (gone, stored): (Vec<_>, Vec<_>) = others.partition(|reservation| reservation.gone.is_some());
        if stored.len() >= MAJORITY && !Excuse::ReservationsClock.excuses(belief.clock_stood) {
            let others: Vec<&str> = stored.iter().map(|reservation| reservation.successor.as_str()).collect();
            return Err(format!("{worker} acquired {resource}, which servers reserve for {others:?}"));
        }
        if is_judged && stored.len() < MAJORITY && stored.len() + gone.len() >= MAJORITY {
            gone.iter().filter_map(|reservation| reservation.gone).for_each(Excuse::count);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use quorate::node::{FencingToken, Owner};

    const SECOND: Duration = Duration::from_secs(1);
    const NODES: [&str; 3] = ["n1", "n2", "n3"];

    fn reserved() -> Reservations {
        let mut reservations = Reservations::default();
        for node in NODES {
            let (resource, owner) = (Resource::lock("x").unwrap(), Owner::from_node("a"));
            let successor = Owner::reserve("b", 1, 2);
            let request = Request::Reserve { resource, owner, successor, ttl: SECOND };
            let ran = Event::Ran { node, request: &request, reply: &Reply::Reserved };
            reservations.see(Duration::ZERO, &ran).unwrap();
        }
        reservations
    }

    #[test]
    fn only_the_successor_acquires_a_reserved_lock() {
        let see = |ms, belief: &Belief| reserved().see(Duration::from_millis(ms), &Event::Granted(belief));
        let (successor, other) = (belief(2, "b", 2, true), belief(3, "c", 3, true));
        assert!(see(100, &successor).is_ok());
        assert!(see(100, &other).is_err());
        assert!(see(900, &other).is_ok(), "a server's clock may have ended the reservation");
        assert!(see(100, &Belief { clock_stood: true, ..other }).is_ok());
        let reader = Belief { reads: true, ..successor };
        let read = Event::Read { belief: &reader, downgraded: None };
        assert!(reserved().see(Duration::from_millis(100), &read).is_err());
    }

    #[test]
    fn a_server_that_forgot_or_granted_to_the_successor_reserves_nothing() {
        let other = belief(3, "c", 3, true);
        let mut reservations = reserved();
        reservations.see(Duration::ZERO, &Event::Forgot { node: "n1" }).unwrap();
        assert!(reservations.see(Duration::ZERO, &Event::Granted(&other)).is_ok());
        let mut reservations = reserved();
        let request = Request::Acquire {
            resource: Resource::lock("x").unwrap(),
            owner: Owner::sign("b", 3, 4),
            ttl: SECOND,
            propose: FencingToken::new(1),
            tolerance: SECOND,
            keep: SECOND,
            ticket: None,
        };
        let reply = Reply::Granted { counter: FencingToken::new(2), begun: None };
        let ran = Event::Ran { node: "n2", request: &request, reply: &reply };
        reservations.see(Duration::ZERO, &ran).unwrap();
        assert!(reservations.see(Duration::ZERO, &Event::Granted(&other)).is_ok());
        let judged = reservations.judged();
        assert_eq!(judged, [("reservation taken", 1), ("grant judged beside reservations", 1)]);
    }
}
