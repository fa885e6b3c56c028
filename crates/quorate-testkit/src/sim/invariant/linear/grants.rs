use crate::{
    history::Moment,
    sim::{Belief, Event, Excuse},
};
use quorate::node::{Owner, Request, Resource, ResourceKind};
use rustc_hash::FxHashMap;
use std::{collections::BTreeMap, sync::Arc};

/// Follows the beliefs of workers about their grants of some kinds of resources.
#[derive(Debug)]
pub(super) struct Grants {
    kinds: &'static [ResourceKind],
    /// The moment at which each attempt reached its first server.
    attempts: FxHashMap<Owner, Moment>,
    /// For each resource and worker, the first such moment since the worker's last grant, or since it last found the
    /// message done. It is used for terms and claims, whose owner token is not accessible.
    since: FxHashMap<Resource, Vec<(Arc<str>, Moment)>>,
    /// The grants that their workers believe in, by number.
    believed: BTreeMap<u64, Believed>,
}

#[derive(Clone, Debug)]
struct Believed {
    worker: Arc<str>,
    resource: Resource,
    token: u64,
    /// The last moment at which the worker was known to believe in the grant.
    last: Moment,
}

/// A belief that began or ended between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) worker: Arc<str>,
    /// The name of the resource.
    pub(super) name: Arc<str>,
    pub(super) token: u64,
    pub(super) kind: ChangeKind,
    pub(super) from: Moment,
    pub(super) to: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Begins,
    GivenUp,
    Expires,
}

impl Grants {
    pub(super) fn of(kinds: &'static [ResourceKind]) -> Self {
        Self { kinds, attempts: FxHashMap::default(), since: FxHashMap::default(), believed: BTreeMap::new() }
    }

    /// Handles an event, and returns the beliefs that have changed.
    pub(super) fn see(&mut self, at: Moment, event: &Event<'_>) -> Vec<Change> {
        match event {
            Event::Ran { request: Request::Acquire { resource, owner, .. }, .. } if self.judges(resource) => {
                self.attempts.entry(owner.clone()).or_insert(at);
                self.begins(resource, owner.worker(), at);
                Vec::new()
            }
            Event::Granted(belief) if self.judges(&belief.resource) => self.granted(at, belief),
            Event::Looked(beliefs) => self.looked(at, beliefs),
            _ => Vec::new(),
        }
    }

    /// Returns the moment at which the attempt of a worker began that ends now without a grant.
    pub(super) fn ends_without_grant(&mut self, resource: &Resource, worker: &Arc<str>) -> Option<Moment> {
        let workers = self.since.get_mut(resource)?;
        let known = workers.iter().position(|(known, _)| known == worker)?;
        Some(workers.swap_remove(known).1)
    }

    /// Notes that an attempt of `worker` reaches a server, unless an earlier one is noted.
    fn begins(&mut self, resource: &Resource, worker: &str, at: Moment) {
        match self.since.get_mut(resource) {
            Some(workers) if workers.iter().any(|(known, _)| **known == *worker) => {}
            Some(workers) => workers.push((worker.into(), at)),
            None => drop(self.since.insert(resource.clone(), vec![(worker.into(), at)])),
        }
    }

    fn judges(&self, resource: &Resource) -> bool {
        self.kinds.contains(&resource.kind())
    }

    fn granted(&mut self, at: Moment, belief: &Belief) -> Vec<Change> {
        let Belief { worker, resource, token, .. } = belief;
        let since = self.ends_without_grant(resource, worker);
        let attempt = belief.owner.as_ref().and_then(|owner| self.attempts.get(owner).copied());
        if Excuse::HistoryEnded.excuses(!belief.valid)
            || Excuse::HistoryClock.excuses(belief.clock_stood)
            || Excuse::HistoryForced.excuses(belief.is_freed_by_force())
        {
            return Vec::new();
        }
        let (worker, resource, token) = (Arc::clone(worker), resource.clone(), *token);
        let believed = Believed { worker, resource, token, last: at };
        let change = believed.change(ChangeKind::Begins, attempt.or(since).unwrap_or(at), at);
        self.believed.insert(belief.lease, believed);
        vec![change]
    }

    fn looked(&mut self, at: Moment, beliefs: &[Belief]) -> Vec<Change> {
        let mut changes = Vec::new();
        self.believed.retain(|number, believed| {
            let kind = match beliefs.iter().find(|belief| belief.lease == *number) {
                Some(belief) if counts(belief) => {
                    believed.last = at;
                    return true;
                }
                Some(belief) => {
                    let is_forced = belief.is_freed_by_force() && !belief.clock_stood;
                    Excuse::HistoryForced.excuses(belief.valid && is_forced);
                    Excuse::HistoryClock.excuses(belief.valid && !is_forced);
                    ChangeKind::Expires
                }
                None => ChangeKind::GivenUp,
            };
            changes.push(believed.change(kind, believed.last, at));
            false
        });
        changes
    }
}

impl Believed {
    fn change(&self, kind: ChangeKind, from: Moment, to: Moment) -> Change {
        let (worker, token) = (Arc::clone(&self.worker), self.token);
        Change { worker, name: self.resource.to_string().into(), token, kind, from, to }
    }
}

fn counts(belief: &Belief) -> bool {
    belief.valid && !belief.clock_stood && !belief.is_freed_by_force()
}

#[cfg(test)]
mod tests {
    use super::{super::super::belief, *};
    use quorate::node::{FencingToken, Reply};
    use std::time::Duration;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn attempt(owner: &str) -> Request {
        Request::Acquire {
            resource: Resource::lock("x").unwrap(),
            owner: Owner::from_node(owner),
            ttl: Duration::from_secs(1),
            propose: FencingToken::new(1),
            tolerance: Duration::from_secs(1),
            keep: Duration::from_secs(1),
            ticket: None,
        }
    }

    #[test]
    fn a_belief_lasts_from_its_attempt_to_the_first_look_without_it() {
        let mut grants = Grants::of(&[ResourceKind::Lock]);
        let request = attempt("a:1");
        let reply = Reply::Granted { counter: FencingToken::new(5), begun: None };
        for moment in [1, 2] {
            assert_eq!(
                grants.see(at(moment), &Event::Ran { node: "n", request: &request, reply: &reply }),
                []
            );
        }
        let held = belief(1, "a", 5, true);
        let begun = grants.see(at(4), &Event::Granted(&held));
        assert_eq!((begun[0].kind, begun[0].from, begun[0].to), (ChangeKind::Begins, at(1), at(4)));
        assert_eq!(grants.see(at(5), &Event::Looked(std::slice::from_ref(&held))), []);
        let over = grants.see(at(9), &Event::Looked(&[belief(1, "a", 5, false)]));
        assert_eq!((over[0].kind, over[0].from, over[0].to), (ChangeKind::Expires, at(5), at(9)));
        assert_eq!(grants.see(at(10), &Event::Looked(&[])), []);
    }

    #[test]
    fn a_grant_that_no_other_invariant_judges_is_no_operation() {
        let mut grants = Grants::of(&[ResourceKind::Lock]);
        assert_eq!(grants.see(at(1), &Event::Granted(&belief(1, "a", 5, false))), []);
        let stood = Belief { clock_stood: true, ..belief(2, "a", 6, true) };
        assert_eq!(grants.see(at(2), &Event::Granted(&stood)), []);
        let claims = &mut Grants::of(&[ResourceKind::Claim]);
        assert_eq!(claims.see(at(3), &Event::Granted(&belief(3, "a", 7, true))), [], "another kind");
        grants.see(at(4), &Event::Granted(&belief(4, "a", 8, true)));
        let over =
            grants.see(at(5), &Event::Looked(&[Belief { clock_stood: true, ..belief(4, "a", 8, true) }]));
        assert_eq!(over[0].kind, ChangeKind::Expires);
        assert_eq!(grants.see(at(6), &Event::Looked(&[belief(4, "a", 8, true)])), [], "not judged again");
    }
}
