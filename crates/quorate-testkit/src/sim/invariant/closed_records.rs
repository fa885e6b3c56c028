use super::{Event, MAJORITY};
use quorate::{
    internals::RunKey,
    node::{Reply, Request, copy::LeadAct},
};
use std::collections::{BTreeMap, BTreeSet};

/// The closed records of ticks.
pub(super) type ClosedRecords = CountedRecords<RunKey>;

/// The records that servers have received from leaders, each with a key `K`.
///
/// A leader counts a write once a majority of the servers that it has *marked* stores it. A server that is not marked by it
/// may have the record too, but its copy does not count for the next leader.
#[derive(Debug)]
pub(super) struct CountedRecords<K> {
    /// For each term, the servers that its leader has ever marked.
    marked: BTreeMap<u64, BTreeSet<String>>,
    /// For each record and term, the servers that ever received the record from the leader.
    received: BTreeMap<K, BTreeMap<u64, BTreeSet<String>>>,
}

impl<K> Default for CountedRecords<K> {
    fn default() -> Self {
        Self { marked: BTreeMap::new(), received: BTreeMap::new() }
    }
}

impl<K: Clone + Ord> CountedRecords<K> {
    /// Handles an event of the ledger `group`. If a server was marked, returns the records that count since.
    pub(super) fn see(&mut self, group: &str, event: &Event<'_>) -> Vec<K> {
        let Event::Ran {
            node,
            request: Request::Lead { ledger, seal, act: LeadAct::Mark { .. }, .. },
            reply: Reply::Written,
        } = event
        else {
            return Vec::new();
        };
        let term = seal.term.get();
        if **ledger != *group || !self.marked.entry(term).or_default().insert((*node).to_owned()) {
            return Vec::new();
        }
        let here = |by_term: &BTreeMap<u64, BTreeSet<String>>| {
            by_term.get(&term).is_some_and(|on| on.contains(*node))
        };
        let keys = self.received.iter().filter(|(_, by_term)| here(by_term)).map(|(key, _)| key);
        keys.filter(|key| self.counts(key, term)).cloned().collect()
    }

    /// Notes that a server has received a record from the leader of `term`. Returns whether a majority of the servers that
    /// this leader has marked has received it.
    pub(super) fn add(&mut self, key: &K, term: u64, node: &str) -> bool {
        let by_term = self.received.entry(key.clone()).or_default();
        by_term.entry(term).or_default().insert(node.to_owned());
        self.counts(key, term)
    }

    fn counts(&self, key: &K, term: u64) -> bool {
        let received = self.received.get(key).and_then(|by_term| by_term.get(&term));
        let marked = self.marked.get(&term);
        received
            .zip(marked)
            .is_some_and(|(received, marked)| received.intersection(marked).count() >= MAJORITY)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pool_log::made, *};
    use quorate::env::WallTime;

    fn mark(closed: &mut ClosedRecords, node: &str, term: u64) -> Vec<RunKey> {
        let request = made::mark("g", term);
        closed.see("g", &Event::Ran { node, request: &request, reply: &Reply::Written })
    }

    #[test]
    fn a_record_counts_on_a_majority_that_its_leader_has_marked() {
        let (mut closed, key) = (ClosedRecords::default(), RunKey::new("job", WallTime::from_micros(7)));
        ["a", "b", "c"].into_iter().for_each(|node| assert!(mark(&mut closed, node, 1).is_empty()));
        assert!(!closed.add(&key, 1, "a") && !closed.add(&key, 1, "b"));
        assert!(!closed.add(&key, 1, "d"), "it is not marked");
        assert!(!closed.add(&key, 2, "c"), "another leader");
        assert_eq!(mark(&mut closed, "d", 1), std::slice::from_ref(&key));
        assert!(mark(&mut closed, "d", 1).is_empty(), "again");
        assert!(closed.add(&key, 1, "e"));
    }
}
