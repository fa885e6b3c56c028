use super::{Check, HORIZON};
use crate::{
    journal::{Entry, Event},
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc};

/// Fencing tokens of one resource are unique, and grow in the order in which their leases were held.
#[derive(Debug, Default)]
pub(crate) struct Fencing {
    grants: BTreeMap<Arc<str>, BTreeMap<BootTime, (u64, Who)>>,
}

impl Check for Fencing {
    fn take(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let Event::Held { res, token, .. } = &entry.event else { return Vec::new() };
        let grants = self.grants.entry(Arc::clone(res)).or_default();
        let mut found = Vec::new();
        let tell = |what: &str, (other, whose): &(u64, Who)| {
            format!(
                "fencing: {res}: {who:?} has token {token} {what} {whose:?}'s {other}, held at {:?}",
                entry.at()
            )
        };
        let before = grants.range(..=entry.at()).next_back().map(|(_, grant)| grant);
        let after = grants.range(entry.at()..).next().map(|(_, grant)| grant);
        found.extend(before.filter(|(other, _)| other >= token).map(|grant| tell("after", grant)));
        found.extend(after.filter(|(other, _)| other <= token).map(|grant| tell("before", grant)));
        grants.insert(entry.at(), (*token, who));
        found
    }

    fn settle(&mut self, now: BootTime, _: &Truth) -> Vec<String> {
        // The last of a lock or a term stays, to be compared with the next; a claim's counter dies with it.
        self.grants.retain(|res, grants| {
            let last = grants.last_key_value().map(|(at, _)| *at).unwrap_or_default();
            grants.retain(|at, _| *at + HORIZON * 4 > now || *at == last);
            !res.starts_with("claim/") || last + HORIZON * 7 > now
        });
        Vec::new()
    }

    fn watching(&self) -> usize {
        self.grants.values().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, held, judge, who},
        *,
    };

    fn found(lines: &[(usize, Entry)]) -> usize {
        judge(&mut Fencing::default(), &Truth::default(), lines).len()
    }

    #[test]
    fn tokens_that_grow_are_good_in_whatever_order_they_are_told() {
        let lines = [(0, held(1000, 1, 0)), (1, held(3000, 7, 0)), (0, held(2000, 3, 0))];
        assert_eq!(found(&lines), 0);
    }

    #[test]
    fn a_token_given_twice_or_a_smaller_one_later_is_found() {
        assert_eq!(found(&[(0, held(1000, 5, 0)), (1, held(2000, 5, 0))]), 1);
        assert_eq!(found(&[(0, held(1000, 5, 0)), (1, held(2000, 4, 0))]), 1);
        assert_eq!(found(&[(1, held(2000, 4, 0)), (0, held(1000, 5, 0))]), 1);
    }

    #[test]
    fn the_last_token_is_remembered_however_old() {
        let mut check = Fencing::default();
        check.take(who(0), &held(1000, 5, 0), &Truth::default());
        check.settle(at(10_000_000), &Truth::default());
        assert_eq!(check.take(who(1), &held(10_000_001, 5, 0), &Truth::default()).len(), 1);
    }
}
