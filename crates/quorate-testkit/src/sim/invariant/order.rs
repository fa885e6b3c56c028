use super::{Event, Invariant};
use quorate::node::{Owner, Request, Resource, ResourceKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Whatever the clocks do, no token of a resource is given twice, and an attempt that reaches its first server
/// after somebody was granted the resource gets a larger token than he.
#[derive(Debug, Default)]
pub(super) struct Order {
    seen: BTreeSet<(Resource, u64)>,
    newest: BTreeMap<Resource, u64>,
    /// The newest token when an attempt reached its first server, while it may yet be granted.
    begun_after: BTreeMap<Owner, u64>,
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
            Event::Ran { request: Request::Acquire { resource, owner, .. }, .. } => {
                let newest = self.newest.get(resource).copied().unwrap_or_default();
                self.begun_after.entry(owner.clone()).or_insert(newest);
            }
            // A claim's counter dies with its record, and begins anew from the clock.
            Event::Granted(belief) if belief.resource.kind() == ResourceKind::Claim => {}
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
                let before = belief
                    .owner
                    .as_ref()
                    .and_then(|owner| self.begun_after.remove(owner))
                    .unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use quorate::node::{FencingToken, Reply};

    #[test]
    fn who_comes_after_a_grant_gets_more() {
        let mut order = Order::default();
        let begin = |invariant: &mut Order, owner: &Owner| {
            let request = Request::Acquire {
                resource: Resource::lock("x").unwrap(),
                owner: owner.clone(),
                ttl: Duration::from_secs(1),
                propose: FencingToken::new(1),
                tolerance: Duration::from_secs(1),
                keep: Duration::from_secs(9),
            };
            let reply = Reply::Granted { counter: FencingToken::new(1) };
            let ran = Event::Ran { node: "n1", request: &request, reply: &reply };
            invariant.see(Duration::ZERO, &ran).unwrap();
        };
        // The first lease begins before the second is granted, and is seen after it, ended: that is no wrong.
        let [early, second, late] = [(1, 4), (2, 7), (3, 6)].map(|(id, token)| belief(id, "a", token, false));
        begin(&mut order, early.owner.as_ref().unwrap());
        begin(&mut order, second.owner.as_ref().unwrap());
        assert!(order.see(Duration::ZERO, &Event::Granted(&second)).is_ok());
        assert!(order.see(Duration::ZERO, &Event::Granted(&early)).is_ok());
        begin(&mut order, late.owner.as_ref().unwrap());
        assert!(order.see(Duration::ZERO, &Event::Granted(&late)).is_err());
        assert!(order.see(Duration::ZERO, &Event::Granted(&second)).is_err(), "a second time");
    }
}
