use super::{Event, Invariant};
use crate::sim::{Belief, Excuse};
use quorate::node::{Owner, Reply, Request, Resource, ResourceKind};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Requires two things, however wrong the clocks are. No token of a resource is granted twice. If an attempt
/// reaches its first server after a worker received a grant of the resource, the attempt gets a larger token
/// than that worker.
///
/// The owner token of a term is not accessible. For a term, the invariant therefore looks at all attempts of
/// the term's worker for which a server granted the term's token, or raised a counter to that token. The
/// earliest of these attempts counts.
///
/// Claims are judged only by the invariant *fencing*. The counter of a claim is removed together with the
/// claim's record, and a later grant of the claim starts a new counter.
#[derive(Debug, Default)]
pub(super) struct Order {
    seen: BTreeSet<(Resource, u64)>,
    newest: BTreeMap<Resource, u64>,
    /// For each attempt, the newest token of the resource when the attempt reached its first server.
    begun_after: FxHashMap<Owner, u64>,
    /// For each resource and token, the owners that got the token from a server, either by a grant or because
    /// the server raised its counter to the token.
    given: BTreeMap<(Resource, u64), BTreeSet<Owner>>,
}

impl Invariant for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Ran { request: Request::Acquire { resource, owner, .. }, reply, .. } => {
                let newest = self.newest.get(resource).copied().unwrap_or_default();
                self.begun_after.entry(owner.clone()).or_insert(newest);
                if let Reply::Granted { counter, .. } = reply {
                    self.give(resource, counter.get(), owner);
                }
            }
            Event::Ran {
                request: Request::Raise { resource, owner, to, .. }, reply: Reply::Raised, ..
            } => {
                self.give(resource, to.get(), owner);
            }
            Event::Granted(belief) if belief.resource.kind() == ResourceKind::Claim => {
                Excuse::OrderClaim.count();
            }
            Event::Granted(belief) => {
                let (resource, token) = (&belief.resource, belief.token);
                if !self.seen.insert((resource.clone(), token)) {
                    return Err(format!(
                        "{} got the token {token} of {resource} a second time",
                        belief.worker
                    ));
                }
                let newest = self.newest.entry(resource.clone()).or_default();
                *newest = token.max(*newest);
                let before = self.begun_after(belief).ok_or_else(|| {
                    format!("{} got the token {token} of {resource}, which no server gave it", belief.worker)
                })?;
                if token < before {
                    return Err(format!(
                        "{} got the token {token} of {resource}, and had begun after {before} was given",
                        belief.worker
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Order {
    fn give(&mut self, resource: &Resource, token: u64, owner: &Owner) {
        if resource.kind() == ResourceKind::Election {
            self.given.entry((resource.clone(), token)).or_default().insert(owner.clone());
        }
    }

    /// Returns the newest token that had been granted when the attempt of this grant reached its first
    /// server.
    fn begun_after(&mut self, belief: &Belief) -> Option<u64> {
        if let Some(owner) = &belief.owner {
            return self.begun_after.remove(owner);
        }
        let given = self.given.remove(&(belief.resource.clone(), belief.token))?;
        let ours = given.iter().filter(|owner| owner.worker() == &*belief.worker);
        ours.filter_map(|owner| self.begun_after.get(owner).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use quorate::node::FencingToken;

    #[test]
    fn a_later_attempt_gets_a_larger_token() {
        let mut order = Order::default();
        let begin = |invariant: &mut Order, owner: &Owner| {
            let request = Request::Acquire {
                resource: Resource::lock("x").unwrap(),
                owner: owner.clone(),
                ttl: Duration::from_secs(1),
                propose: FencingToken::new(1),
                tolerance: Duration::from_secs(1),
                keep: Duration::from_secs(9),
                ticket: None,
            };
            let reply = Reply::Granted { counter: FencingToken::new(1), begun: None };
            let ran = Event::Ran { node: "n1", request: &request, reply: &reply };
            invariant.see(Duration::ZERO, &ran).unwrap();
        };
        // The first attempt begins before the second is granted, but its worker sees its own grant only
        // afterwards, when the lease has already ended. This order is no violation.
        let [early, second, late] = [(1, 4), (2, 7), (3, 6)].map(|(id, token)| belief(id, "a", token, false));
        begin(&mut order, early.owner.as_ref().unwrap());
        begin(&mut order, second.owner.as_ref().unwrap());
        assert!(order.see(Duration::ZERO, &Event::Granted(&second)).is_ok());
        assert!(order.see(Duration::ZERO, &Event::Granted(&early)).is_ok());
        begin(&mut order, late.owner.as_ref().unwrap());
        assert!(order.see(Duration::ZERO, &Event::Granted(&late)).is_err());
        assert!(order.see(Duration::ZERO, &Event::Granted(&second)).is_err(), "a second time");
    }

    #[test]
    fn a_term_is_ordered_by_its_earliest_attempt() {
        let mut order = Order::default();
        let group = Resource::election("g").unwrap();
        let given = |order: &mut Order, attempt: u64, token: u64| {
            let request = Request::Acquire {
                resource: group.clone(),
                owner: Owner::sign("a", attempt, 0),
                ttl: Duration::from_secs(1),
                propose: FencingToken::new(1),
                tolerance: Duration::from_secs(1),
                keep: Duration::from_secs(9),
                ticket: None,
            };
            let reply = Reply::Granted { counter: FencingToken::new(token), begun: None };
            order.see(Duration::ZERO, &Event::Ran { node: "n1", request: &request, reply: &reply }).unwrap();
        };
        let term = |token| Belief {
            resource: Resource::election("g").unwrap(),
            owner: None,
            ..belief(token, "a", token, true)
        };
        let see = |order: &mut Order, token| order.see(Duration::ZERO, &Event::Granted(&term(token)));
        given(&mut order, 1, 5);
        given(&mut order, 2, 7);
        assert!(see(&mut order, 7).is_ok());
        assert!(see(&mut order, 5).is_ok(), "both had begun before either was granted");
        given(&mut order, 3, 6);
        assert!(see(&mut order, 6).is_err(), "it began after 7");
        assert!(see(&mut order, 9).is_err(), "no server gave it");
        given(&mut order, 4, 8);
        let other = Belief { worker: "b".into(), ..term(8) };
        assert!(order.see(Duration::ZERO, &Event::Granted(&other)).is_err(), "it was given to another");
    }
}
