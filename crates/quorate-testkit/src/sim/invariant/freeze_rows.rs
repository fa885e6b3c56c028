use super::{Event, MAJORITY, memories::Foundings};
use crate::sim::{Stored, worker::POOL};
use quorate::{env::WallTime, internals::GroupFreeze, scheduler::RequestId};
use std::collections::{BTreeMap, BTreeSet};

/// The requests that changed the row of the group's freeze, as far as servers have stored it.
///
/// The row lists the last requests that changed it. The effect of a request that a majority has stored is lost only if the
/// ledger is founded since.
#[derive(Debug, Default)]
pub(super) struct FreezeRows {
    /// For each request, the servers that have stored a row which the request changed.
    on: BTreeMap<RequestId, BTreeSet<String>>,
    /// The true time at which a majority had stored it.
    stored_at: BTreeMap<RequestId, WallTime>,
    foundings: Foundings,
}

impl FreezeRows {
    /// Handles an event at the true time `now`.
    pub(super) fn see(&mut self, now: WallTime, event: &Event<'_>) {
        self.foundings.see(now, POOL, event);
        let is_freeze = |stored: &Stored<'_>| stored.ledger == POOL && **stored.key == *GroupFreeze::KEY;
        for stored in event.stored().into_iter().filter(is_freeze) {
            let Ok(row) = GroupFreeze::parse(stored.value) else { continue };
            for id in row.requests {
                let on = self.on.entry(id).or_default();
                on.insert(stored.node.to_owned());
                if on.len() >= MAJORITY {
                    self.stored_at.entry(id).or_insert(now);
                }
            }
        }
    }

    /// Returns `true` if a majority of the servers has stored a row that the request changed.
    pub(super) fn was_stored(&self, id: RequestId) -> bool {
        self.stored_at.contains_key(&id)
    }

    /// Returns `true` if a majority of the servers has stored the effect of the request, and the ledger was founded since.
    pub(super) fn is_lost(&self, id: RequestId) -> bool {
        self.stored_at.get(&id).is_some_and(|at| self.foundings.any_since(*at))
    }

    /// Returns `true` if the effect of the request, whose answer came at the time `at`, is lost. A request that changed nothing
    /// has no row: what it found is lost if the ledger was founded since.
    pub(super) fn is_answer_lost(&self, id: RequestId, at: WallTime) -> bool {
        self.is_lost(id) || !self.was_stored(id) && self.is_founded_since(at)
    }

    /// Returns `true` if the ledger was founded after the time `at`.
    pub(super) fn is_founded_since(&self, at: WallTime) -> bool {
        self.foundings.any_since(at)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pool_log::made, *};
    use quorate::node::Reply;

    #[test]
    fn a_change_that_a_majority_has_stored_is_lost_only_if_the_ledger_is_founded() {
        let mut rows = FreezeRows::default();
        let put = |rows: &mut FreezeRows, now, node, id| {
            let row = GroupFreeze { requests: vec![made::id(id)], ..GroupFreeze::default() };
            let request = made::put(POOL, 1, GroupFreeze::KEY, row.to_value());
            rows.see(made::at(now), &Event::Ran { node, request: &request, reply: &Reply::Written });
        };
        let found = |rows: &mut FreezeRows, now, term| {
            rows.see(made::at(now), &Event::Founded { group: POOL, term });
        };
        found(&mut rows, 0, 1);
        ["n0", "n1"].iter().for_each(|node| put(&mut rows, 1_000, node, 1));
        assert!(!rows.was_stored(made::id(1)));
        put(&mut rows, 2_000, "n2", 1);
        assert!(rows.was_stored(made::id(1)) && !rows.is_lost(made::id(1)));
        rows.see(made::at(3_000), &Event::Founded { group: "another", term: 2 });
        assert!(!rows.is_lost(made::id(1)), "the ledger goes on");
        found(&mut rows, 4_000, 3);
        assert!(rows.is_lost(made::id(1)) && !rows.is_founded_since(made::at(5_000)));
        let is_lost = |rows: &FreezeRows, ms| rows.is_answer_lost(made::id(9), made::at(ms));
        assert!(is_lost(&rows, 3_500) && !is_lost(&rows, 4_500), "a request that changed nothing");
    }
}
