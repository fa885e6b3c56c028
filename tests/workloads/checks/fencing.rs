use super::{Check, HORIZON};
use crate::harness::{Entry, Event, Truth};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc};

/// Checks that the fencing tokens of each resource are unique, and grow in the order in which the leases were
/// acquired.
#[derive(Debug, Default)]
pub(crate) struct Fencing {
    grants: BTreeMap<Arc<str>, BTreeMap<BootTime, (u64, Who)>>,
}

impl Check for Fencing {
    fn on_event(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let Event::Acquired { resource, token, .. } = &entry.event else { return Vec::new() };
        let (at, grants) = (entry.at(), self.grants.entry(Arc::clone(resource)).or_default());
        let violation = |relation: &str, (other, holder): &(u64, Who)| {
            format!(
                "fencing: {resource}: {who:?} acquired token {token} at {at:?} {relation} {holder:?} token {other}"
            )
        };
        let before = grants.range(..=at).next_back().map(|(_, grant)| grant);
        let after = grants.range(at..).next().map(|(_, grant)| grant);
        let mut found = Vec::new();
        found.extend(before.filter(|(other, _)| other >= token).map(|grant| violation("after", grant)));
        found.extend(after.filter(|(other, _)| other <= token).map(|grant| violation("before", grant)));
        grants.insert(at, (*token, who));
        found
    }

    fn settle(&mut self, now: BootTime, _: &Truth) -> Vec<String> {
        // The last token of a lock or an election is kept, to be compared with the next one. The counter of a
        // claim ends together with the claim, so tokens of claims are not kept.
        self.grants.retain(|resource, grants| {
            let last = grants.last_key_value().map(|(at, _)| *at).unwrap_or_default();
            grants.retain(|at, _| *at + HORIZON * 4 > now || *at == last);
            !resource.starts_with("claim/") || last + HORIZON * 7 > now
        });
        Vec::new()
    }

    fn held(&self) -> usize {
        self.grants.values().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{acquired, at, judge, truth, who},
        *,
    };

    fn found(grants: &[(u64, u64)]) -> usize {
        let lines = grants.iter().enumerate().map(|(n, (ms, token))| (n % 2, acquired(*ms, "x", *token, 0)));
        judge(&mut Fencing::default(), &truth(), &lines.collect::<Vec<_>>()).len()
    }

    #[test]
    fn tokens_that_grow_are_no_violation_whatever_the_order_of_the_lines() {
        assert_eq!(found(&[(1000, 1), (3000, 7), (2000, 3)]), 0);
    }

    #[test]
    fn a_repeated_token_and_a_smaller_later_one_are_found() {
        assert_eq!(found(&[(1000, 5), (2000, 5)]), 1);
        assert_eq!(found(&[(1000, 5), (2000, 4)]), 1);
        assert_eq!(found(&[(2000, 4), (1000, 5)]), 1);
    }

    #[test]
    fn the_last_token_is_remembered_however_old() {
        let mut check = Fencing::default();
        check.on_event(who(0), &acquired(1000, "x", 5, 0), &truth());
        check.settle(at(10_000_000), &truth());
        assert_eq!(check.on_event(who(1), &acquired(10_000_001, "x", 5, 0), &truth()).len(), 1);
    }
}
