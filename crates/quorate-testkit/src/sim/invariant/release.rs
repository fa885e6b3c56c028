use super::{Event, Invariant};
use crate::sim::Excuse;
use quorate::node::{Owner, Reply, Request, Resource, ResourceKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{collections::BTreeMap, time::Duration};

/// Requires that once a server has run the release of an attempt, no delayed request of that attempt sets the
/// key on this server again, for a writer or for a reader. Such a key would block other workers until its TTL ends. (Resign requests are not
/// judged. They are no attempts: a resign request is stored under the owner token of the holder that it
/// addresses, and may be sent again.) The release by an operator does not end the attempt: its holder may set the key
/// again on a server whose counter was not raised, and *finality* judges that it does not hold the lock again.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// For each server, the resources that each attempt has released there. A run has thousands of attempts.
    released: BTreeMap<String, Attempts>,
    /// The attempts that an operator has released by force.
    forced: FxHashSet<Owner>,
}

/// Only looked up by owner, so the order does not matter.
type Attempts = FxHashMap<Owner, Vec<Resource>>;

impl Invariant for Release {
    fn name(&self) -> &'static str {
        "release"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Forgot { node } => {
                self.released.remove(*node);
            }
            Event::Ran {
                node,
                request: Request::Release { resource, owner } | Request::ReleaseShare { resource, owner },
                ..
            } => {
                let of_node = match self.released.get_mut(*node) {
                    Some(of_node) => of_node,
                    None => self.released.entry((*node).to_owned()).or_default(),
                };
                let released = of_node.entry(owner.clone()).or_default();
                if !released.contains(resource) {
                    released.push(resource.clone());
                }
            }
            Event::Forces { owner } => {
                self.forced.insert((*owner).clone());
            }
            Event::Ran { node, request, reply: Reply::Granted { .. } | Reply::Extended | Reply::Shared } => {
                let (Request::Acquire { resource, owner, .. }
                | Request::Extend { resource, owner, .. }
                | Request::Share { resource, owner, .. }
                | Request::ExtendShare { resource, owner, .. }
                | Request::Downgrade { resource, reader: owner, .. }) = request
                else {
                    return Ok(());
                };
                let released = self.released.get(*node).and_then(|of_node| of_node.get(owner));
                let is_request = resource.kind() == ResourceKind::ResignRequest;
                if released.is_some_and(|released| released.contains(resource))
                    && !Excuse::ReleaseResign.excuses(is_request)
                    && !Excuse::ReleaseForced.excuses(self.forced.contains(owner))
                {
                    return Err(format!("{node} sets {resource} for {owner:?} after its release"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::node::FencingToken;

    #[test]
    fn nothing_is_set_after_its_release() {
        let mut invariant = Release::default();
        let (resource, owner) = (Resource::lock("x").unwrap(), Owner::from_node("a"));
        let release = Request::Release { resource: resource.clone(), owner: owner.clone() };
        let second = Duration::from_secs(1);
        let token = FencingToken::new(1);
        let extend = Request::Extend { resource, owner, ttl: second, token, keep: second };
        let mut ran = |node, request: &Request, reply: &Reply| {
            invariant.see(Duration::ZERO, &Event::Ran { node, request, reply })
        };
        assert!(ran("n1", &extend, &Reply::Extended).is_ok());
        assert!(ran("n1", &release, &Reply::Released(true)).is_ok());
        assert!(ran("n2", &extend, &Reply::Extended).is_ok(), "another server");
        assert!(ran("n1", &extend, &Reply::Refused(quorate::node::Refusal::Stale)).is_ok());
        assert!(ran("n1", &extend, &Reply::Extended).is_err());
        let Request::Extend { owner, .. } = &extend else { panic!("{extend:?}") };
        invariant.see(Duration::ZERO, &Event::Forces { owner }).unwrap();
        let ran = Event::Ran { node: "n1", request: &extend, reply: &Reply::Extended };
        assert!(invariant.see(Duration::ZERO, &ran).is_ok(), "an operator released it");
        invariant.see(Duration::ZERO, &Event::Forgot { node: "n1" }).unwrap();
        let again = invariant
            .see(Duration::ZERO, &Event::Ran { node: "n1", request: &extend, reply: &Reply::Extended });
        assert!(again.is_ok(), "a server that forgot the release forgot the attempt");
    }
}
