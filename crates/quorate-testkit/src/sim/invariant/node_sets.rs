use super::{Event, Invariant};
use crate::sim::{Belief, Excuse};
use quorate::{internals::Marker, node::Resource};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Requires that a node set takes the place of another one safely:
///
/// * The old and the new set never grant at the same time, whatever the resource is. Once a worker with the new list
///   has had a grant, no worker with the old list has one.
/// * The first token of the new set is larger than every token of the old set, for each resource.
/// * When the command that replaces the set reports success, a majority of the new set's servers have its marker.
///
/// The invariants `exclusion`, `fencing` and `order` judge the grants of both sets together. A grant is not judged if its
/// worker's clock stood still. That a replacement which is run again completes is checked by the invariant `liveness`.
///
/// `admin::replace` documents that a worker with the new list may lead too early if it reaches only servers without a
/// marker. In the simulation such a worker starts only where every majority of its list has a server of the old set, or
/// once the command has closed the joining servers. A marker, like a lease, is lost with a server's data, and then a
/// bare majority of closed servers is none. So of all servers only one that joins forgets.
#[derive(Debug, Default)]
pub(super) struct NodeSets {
    old_tokens: BTreeMap<Resource, u64>,
    /// The worker that had the first grant of the new set.
    first: Option<Arc<str>>,
    new_grants: u64,
}

impl Invariant for NodeSets {
    fn name(&self) -> &'static str {
        "node-sets"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("grant of a new node set judged", self.new_grants)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Looked(beliefs) => both(beliefs),
            Event::Granted(belief) if belief.clock_stood => {
                Excuse::NodeSetsClock.excuses(self.is_out_of_order(belief));
                Ok(())
            }
            Event::Granted(belief) => self.grant(belief),
            Event::Replaced { markers, lost, nodes } => {
                let named = |marker: &&Option<Arc<str>>| {
                    let marker = marker.as_deref().and_then(|text| Marker::parse(text).ok());
                    marker.is_some_and(|marker| *marker.nodes == **nodes)
                };
                let open = markers.iter().filter(named).count();
                let is_majority = |servers: usize| servers > markers.len() / 2;
                if !is_majority(open) && !Excuse::NodeSetsForgot.excuses(is_majority(open + lost)) {
                    return Err(format!(
                        "the set was replaced, and {open} servers have the marker of {nodes}"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl NodeSets {
    fn grant(&mut self, belief: &Belief) -> Result<(), String> {
        let Belief { worker, resource, token, nodes, .. } = belief;
        if nodes.is_new {
            self.first.get_or_insert_with(|| Arc::clone(worker));
            self.new_grants += 1;
            return match self.old_tokens.get(resource) {
                Some(old) if old >= token => Err(format!(
                    "{worker} has {resource} of the new set under {token}, after {old} of the old"
                )),
                _ => Ok(()),
            };
        }
        if let Some(first) = &self.first {
            return Err(format!(
                "{worker} has {resource} of the old set, after a grant of the new to {first}"
            ));
        }
        let newest = self.old_tokens.entry(resource.clone()).or_default();
        *newest = (*newest).max(*token);
        Ok(())
    }

    /// Returns `true` if [`grant`](Self::grant) would find the grant wrong.
    fn is_out_of_order(&self, belief: &Belief) -> bool {
        if !belief.nodes.is_new {
            return self.first.is_some();
        }
        self.old_tokens.get(&belief.resource).is_some_and(|old| *old >= belief.token)
    }
}

fn both(beliefs: &[Belief]) -> Result<(), String> {
    let counts = |belief: &Belief| belief.valid && !belief.clock_stood;
    let held = |is_new| beliefs.iter().find(|belief| belief.nodes.is_new == is_new && counts(belief));
    match held(true).zip(held(false)) {
        Some((new, old)) => Err(format!(
            "{} holds {} of the new set, while {} holds {} of the old",
            new.worker, new.resource, old.worker, old.resource
        )),
        None => {
            let believed =
                |is_new| beliefs.iter().any(|belief| belief.nodes.is_new == is_new && belief.valid);
            Excuse::NodeSetsClock.excuses(believed(true) && believed(false));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use crate::sim::NodeList;
    use quorate::{
        internals::Incarnation,
        node::NodeTime,
        quorum::{QuorumConfig, SharedSettings},
    };

    fn of_the_new(belief: Belief) -> Belief {
        Belief { nodes: NodeList::new(true, 1..6), ..belief }
    }

    #[test]
    fn two_sets_never_grant_at_once() {
        let mut sets = NodeSets::default();
        let mut looks = |beliefs: &[_]| sets.see(Duration::ZERO, &Event::Looked(beliefs));
        let elsewhere = Resource::lock("y").unwrap();
        let new = Belief { resource: elsewhere, ..of_the_new(belief(2, "b", 2, true)) };
        assert!(looks(std::slice::from_ref(&new)).is_ok());
        assert!(looks(&[new.clone(), belief(1, "a", 1, false)]).is_ok());
        let stood = Belief { clock_stood: true, ..belief(1, "a", 1, true) };
        assert!(looks(&[new.clone(), stood]).is_ok());
        assert!(looks(&[new, belief(1, "a", 1, true)]).is_err());
    }

    #[test]
    fn the_new_set_grants_last_and_larger_tokens() {
        let mut sets = NodeSets::default();
        let mut grants = |belief: &_| sets.see(Duration::ZERO, &Event::Granted(belief));
        assert!(grants(&belief(1, "a", 7, true)).is_ok());
        assert!(grants(&of_the_new(belief(2, "b", 7, true))).is_err());
        assert!(grants(&of_the_new(belief(3, "b", 8, true))).is_ok());
        let stood = Belief { clock_stood: true, ..belief(4, "a", 9, true) };
        assert!(grants(&stood).is_ok(), "its clock stood still");
        assert!(grants(&belief(5, "a", 9, true)).is_err());
    }

    #[test]
    fn a_replaced_set_has_the_markers_of_the_new_one() {
        let marker = |nodes: &str| {
            let (at, settings) = (NodeTime::from_micros(7), SharedSettings::of(&QuorumConfig::default()));
            let [run_id, data, nodes] = ["r", "", nodes].map(Into::into);
            let incarnation = Incarnation::default();
            let marker = Marker { run_id, data, incarnation, nodes, settings, since: at, votes_from: at };
            Some(marker.to_text())
        };
        let mut sets = NodeSets::default();
        let mut replaced = |markers: &[_], lost| {
            sets.see(Duration::ZERO, &Event::Replaced { markers, lost, nodes: "b,c,d" })
        };
        assert!(replaced(&[marker("b,c,d"), marker("b,c,d"), None], 0).is_ok());
        let closed = marker("(a,b,c)->(b,c,d)");
        assert!(replaced(&[marker("b,c,d"), closed.clone(), None], 0).is_err());
        assert!(replaced(&[marker("b,c,d"), closed.clone(), None], 1).is_ok());
        assert!(replaced(&[closed.clone(), closed, None], 1).is_err());
    }
}
