use super::{Event, Invariant};
use crate::sim::Excuse;
use quorate::node::{Owner, Reply, Request, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Requires two things of a lease that its holder transfers
/// ([`Lease::transfer_to`](quorate::lease::Lease::transfer_to)):
///
/// - Once a server has run the request to reserve the lock for the successor, no request of the transferred
///   lease sets its key on this server again. The transfer ends the lease, so such a key would exclude the
///   successor.
/// - Each later token of the lock is larger than that of the transferred lease.
///
/// Four exceptions are permitted:
///
/// - A server that forgot its data has forgotten the request too. The quarantine, and not the transfer, protects
///   against its votes.
/// - A grant whose worker's boot clock stood still may have a smaller token, as for the invariant *fencing*, and so may one
///   that was released by force before its worker saw it.
/// - The transfer of a leadership is judged by the first rule only. The worker that leads does not learn the
///   result, and *fencing* judges the tokens of terms.
///
/// *Exclusion* judges that the transfer leaves no second holder, and *reservations* that the successor goes first.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    given: BTreeMap<String, BTreeSet<(Resource, Owner)>>,
    newest: BTreeMap<Resource, u64>,
    judged: u64,
}

impl Invariant for Transfers {
    fn name(&self) -> &'static str {
        "transfers"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("grant judged after a transfer", self.judged)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Forgot { node } => {
                self.given.remove(*node);
            }
            Event::Ran { node, request: Request::Reserve { resource, owner, .. }, .. } => {
                let given = self.given.entry((*node).to_owned()).or_default();
                given.insert((resource.clone(), owner.clone()));
            }
            Event::Ran {
                node,
                request: Request::Acquire { resource, owner, .. } | Request::Extend { resource, owner, .. },
                reply: Reply::Granted { .. } | Reply::Extended,
            } => {
                let Some(given) = self.given.get(*node) else { return Ok(()) };
                if given.contains(&(resource.clone(), owner.clone())) {
                    return Err(format!("{node} sets {resource} for {owner:?} after its transfer"));
                }
            }
            Event::Transferred { resource, token, .. } => {
                let newest = self.newest.entry((*resource).clone()).or_default();
                *newest = (*newest).max(*token);
            }
            Event::Granted(belief) => {
                let Some(before) = self.newest.get(&belief.resource) else { return Ok(()) };
                self.judged += u64::from(belief.valid && !belief.clock_stood);
                if belief.token <= *before
                    && !Excuse::TransfersClock.excuses(belief.clock_stood)
                    && !Excuse::TransfersForced.excuses(belief.is_freed_by_force())
                {
                    return Err(format!(
                        "{} got the token {} of {} after the transfer of {before}",
                        belief.worker, belief.token, belief.resource
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use crate::sim::Belief;
    use quorate::node::{FencingToken, Refusal};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nothing_extends_a_transferred_lease() {
        let mut transfers = Transfers::default();
        let (resource, owner) = (Resource::lock("x").unwrap(), Owner::from_node("a"));
        let (token, successor) = (FencingToken::new(1), Owner::reserve("b", 1, 2));
        let reserve =
            Request::Reserve { resource: resource.clone(), owner: owner.clone(), successor, ttl: SECOND };
        let extend = Request::Extend { resource, owner, ttl: SECOND, token, keep: SECOND };
        let mut ran = |node, request: &Request, reply: &Reply| {
            transfers.see(Duration::ZERO, &Event::Ran { node, request, reply })
        };
        assert!(ran("n1", &extend, &Reply::Extended).is_ok());
        assert!(ran("n1", &reserve, &Reply::Refused(Refusal::NotOwner)).is_ok());
        assert!(ran("n2", &extend, &Reply::Extended).is_ok(), "another server");
        assert!(ran("n1", &extend, &Reply::Refused(Refusal::Stale)).is_ok());
        assert!(ran("n1", &extend, &Reply::Extended).is_err());
        transfers.see(Duration::ZERO, &Event::Forgot { node: "n1" }).unwrap();
        let again = Event::Ran { node: "n1", request: &extend, reply: &Reply::Extended };
        assert!(transfers.see(Duration::ZERO, &again).is_ok());
    }

    #[test]
    fn the_successor_has_a_larger_token() {
        let mut transfers = Transfers::default();
        let resource = Resource::lock("x").unwrap();
        let given = Event::Transferred { worker: "a", resource: &resource, token: 7 };
        transfers.see(Duration::ZERO, &given).unwrap();
        let mut see = |belief: &_| transfers.see(Duration::ZERO, &Event::Granted(belief));
        assert!(see(&belief(8, "b", 8, true)).is_ok());
        let stood = Belief { clock_stood: true, ..belief(6, "b", 6, true) };
        assert!(see(&stood).is_ok(), "its clock stood still");
        assert!(see(&belief(7, "b", 7, true)).is_err());
        assert_eq!(transfers.judged(), [("grant judged after a transfer", 2)]);
    }
}
