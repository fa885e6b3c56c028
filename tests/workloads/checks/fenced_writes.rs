use super::{Check, HORIZON};
use crate::harness::{Entry, Event, Truth};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc};

/// Checks the writes of lock holders to the stores that the locks protect. The tokens of the accepted writes must not
/// decrease, in the order in which the store accepted them. A write must be accepted if the lease of its writer was still
/// valid after the reply: a refusal shows that another worker has held the lock since.
#[derive(Debug, Default)]
pub(crate) struct FencedWrites {
    /// The tokens of the elements, and the times of their writes.
    tokens: BTreeMap<u64, (u64, BootTime)>,
    /// The accepted writes that are not judged yet: the lock, the element, and the element before it.
    accepted: Vec<(Arc<str>, u64, u64, BootTime)>,
    counts: (usize, usize),
}

impl FencedWrites {
    /// Returns the numbers of accepted and refused writes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.counts
    }
}

impl Check for FencedWrites {
    fn on_event(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::Writing { token, element, .. } => {
                self.tokens.insert(*element, (*token, at));
                Vec::new()
            }
            Event::Written { resource, element, before, accepted: true, .. } => {
                self.counts.0 += 1;
                self.accepted.push((Arc::clone(resource), *element, *before, at));
                Vec::new()
            }
            Event::Written { resource, token, accepted: false, valid, .. } => {
                self.counts.1 += 1;
                let text = || {
                    format!(
                        "fenced writes: {resource}: {who:?} was refused with token {token} at {at:?}, while its lease was valid"
                    )
                };
                valid.then(text).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn settle(&mut self, now: BootTime, _: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        // The beginning of the write before may arrive later than the end of this one.
        for (resource, element, before, at) in
            self.accepted.extract_if(.., |(_, _, _, at)| *at + HORIZON < now)
        {
            let (token, earlier) = (self.tokens.get(&element), self.tokens.get(&before));
            if let (Some((token, _)), Some((earlier, _))) = (token, earlier)
                && earlier > token
            {
                found.push(format!(
                    "fenced writes: {resource}: the write of {element} at {at:?} was accepted with token {token}, after token \
                     {earlier}"
                ));
            }
        }
        self.tokens.retain(|_, (_, at)| *at + HORIZON * 4 > now);
        found
    }

    fn held(&self) -> usize {
        self.tokens.len() + self.accepted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{judge, line, truth},
        *,
    };

    fn write(
        ms: u64,
        token: u64,
        element: u64,
        before: u64,
        (accepted, valid): (bool, bool),
    ) -> [(usize, Entry); 2] {
        let resource: Arc<str> = "lock-0".into();
        let writing = Event::Writing { resource: Arc::clone(&resource), token, element };
        let requested = ms * 1_000_000;
        let written = Event::Written { resource, token, element, requested, before, accepted, valid };
        [(0, line(ms, writing)), (0, line(ms + 1, written))]
    }

    fn found(lines: &[[(usize, Entry); 2]]) -> usize {
        judge(&mut FencedWrites::default(), &truth(), &lines.concat()).len()
    }

    #[test]
    fn a_refusal_is_found_while_the_lease_is_valid_and_so_is_a_token_that_decreases() {
        let first = write(100, 1, 10, 0, (true, true));
        let second = write(200, 2, 20, 10, (true, true));
        let late = |valid| write(300, 1, 30, 0, (false, valid));
        assert_eq!(found(&[first.clone(), second.clone(), late(false)]), 0);
        assert_eq!(found(&[first.clone(), second.clone(), late(true)]), 1);
        assert_eq!(found(&[first.clone(), second.clone(), write(300, 1, 30, 20, (true, false))]), 1);
        assert_eq!(found(&[second, first]), 0, "in any order");
    }
}
