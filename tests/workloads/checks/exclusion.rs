use super::{Check, HORIZON};
use crate::harness::{Entry, Event, Truth};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A check of the lease counts as just before a stop of the process if the stop came at most this much later.
/// If the lease was valid at such a check, the process still believed in its lease when it was stopped.
const FRESH: Duration = Duration::from_millis(150);

/// Checks that no two processes find their leases on one resource valid at the same time. Resources are locks,
/// elections and claims.
///
/// A process believes in its lease from the first to the last check that finds the lease valid. If the
/// director stops a process just after such a check, the belief lasts until the process continues or until the
/// validity ends, whichever is first. (If the process had run, it would have believed in its lease for that
/// time.)
#[derive(Debug, Default)]
pub(crate) struct Exclusion {
    open: BTreeMap<Arc<str>, BTreeMap<u64, Belief>>,
    settled: BTreeMap<Arc<str>, Vec<Span>>,
    /// The pairs of leases for which a violation was already reported.
    reported: BTreeSet<(Arc<str>, u64, u64)>,
}

#[derive(Clone, Debug)]
struct Belief {
    who: Who,
    from: BootTime,
    last: BootTime,
    until: BootTime,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    token: u64,
    who: Who,
    from: BootTime,
    to: BootTime,
}

impl Belief {
    fn span(&self, token: u64, truth: &Truth, now: BootTime) -> Span {
        let stop = (!self.ended).then(|| truth.stop_after(self.who, self.last, FRESH, now)).flatten();
        let to = stop.map_or(self.last, |resumed| self.last.max(resumed.min(self.until)));
        Span { token, who: self.who, from: self.from, to }
    }
}

impl Span {
    fn overlap(&self, other: &Self, resource: &str) -> Option<String> {
        let overlap = self.from.max(other.from).until(self.to.min(other.to));
        let text = |Self { token, who, from, to }: &Self| {
            format!("{who:?} with token {token} from {from:?} to {to:?}")
        };
        let violation = self.token != other.token && !overlap.is_zero();
        violation
            .then(|| format!("exclusion: {resource}: {overlap:?} in common: {}, {}", text(self), text(other)))
    }
}

impl Check for Exclusion {
    fn on_event(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::Acquired { resource, token, until, .. } => {
                let until = BootTime::from_nanos(*until);
                let belief = Belief { who, from: at, last: at, until, ended: false };
                self.open.entry(Arc::clone(resource)).or_default().insert(*token, belief);
            }
            Event::Valid { resource, token, until } => {
                if let Some(belief) = self.belief(resource, *token) {
                    belief.last = belief.last.max(at);
                    belief.until = BootTime::from_nanos(*until);
                }
            }
            Event::Releasing { resource, token } => {
                if let Some(belief) = self.belief(resource, *token) {
                    belief.last = belief.last.max(at);
                    belief.ended = true;
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        for (resource, open) in &mut self.open {
            let old = |belief: &Belief| belief.last + HORIZON < now && !truth.is_stopped(belief.who);
            let ripe: Vec<u64> = open.iter().filter(|(_, b)| old(b)).map(|(token, _)| *token).collect();
            if ripe.is_empty() {
                continue;
            }
            let settled = self.settled.entry(Arc::clone(resource)).or_default();
            for token in ripe {
                let Some(belief) = open.remove(&token) else { continue };
                let span = belief.span(token, truth, now);
                let others = open.iter().map(|(token, belief)| belief.span(*token, truth, now));
                for other in others.chain(settled.iter().copied()) {
                    let pair = (Arc::clone(resource), token.min(other.token), token.max(other.token));
                    if let Some(overlap) = span.overlap(&other, resource)
                        && self.reported.insert(pair)
                    {
                        found.push(overlap);
                    }
                }
                settled.push(span);
            }
        }
        self.open.retain(|_, open| !open.is_empty());
        self.settled.values_mut().for_each(|settled| settled.retain(|span| span.to + HORIZON * 4 > now));
        self.settled.retain(|_, settled| !settled.is_empty());
        found
    }

    fn held(&self) -> usize {
        self.open.values().map(BTreeMap::len).sum::<usize>()
            + self.settled.values().map(Vec::len).sum::<usize>()
    }
}

impl Exclusion {
    fn belief(&mut self, resource: &str, token: u64) -> Option<&mut Belief> {
        self.open.get_mut(resource)?.get_mut(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{acquired, at, judge, line, truth, valid, who},
        *,
    };

    fn releasing(ms: u64, token: u64) -> Entry {
        line(ms, Event::Releasing { resource: "x".into(), token })
    }

    fn found(truth: &Truth, lines: &[(usize, Entry)]) -> usize {
        judge(&mut Exclusion::default(), truth, lines).len()
    }

    #[test]
    fn one_holder_after_the_other_is_no_violation() {
        let first = [(0, acquired(1000, "x", 1, 3000)), (0, releasing(2000, 1))];
        let second = [(1, acquired(2100, "x", 2, 4000)), (1, valid(2500, "x", 2, 4500))];
        assert_eq!(found(&truth(), &[first, second].concat()), 0);
    }

    #[test]
    fn two_that_see_their_leases_valid_at_one_time_are_found() {
        let lines = [(0, acquired(1000, "x", 1, 3000)), (1, acquired(2100, "x", 2, 4000))];
        assert_eq!(found(&truth(), &lines), 0, "nothing is known of the first at 2100");
        let both = [(0, valid(2200, "x", 1, 4200)), (1, valid(2300, "x", 2, 4300))];
        assert_eq!(found(&truth(), &[lines, both].concat()), 1);
        let outer = [(0, acquired(1000, "x", 1, 3000)), (0, valid(3000, "x", 1, 5000))];
        let inner = [(1, acquired(1500, "x", 2, 3500)), (1, valid(1600, "x", 2, 3500))];
        assert_eq!(found(&truth(), &[outer, inner].concat()), 1);
    }

    #[test]
    fn a_stopped_process_believes_until_its_validity_ends() {
        let mut truth = truth();
        truth.stopped(who(0), at(1050));
        truth.resumed(who(0), at(9000));
        let next = |from| {
            let second = [(1, acquired(from, "x", 2, 9000)), (1, valid(from + 10, "x", 2, 9000))];
            [vec![(0, acquired(1000, "x", 1, 3000))], second.to_vec()].concat()
        };
        assert_eq!(found(&truth, &next(2900)), 1);
        assert_eq!(found(&truth, &next(3001)), 0);
        let ended = [next(2900), vec![(0, releasing(1040, 1))]].concat();
        assert_eq!(found(&truth, &ended), 0, "it was about to release the lease");
    }

    #[test]
    fn old_leases_are_forgotten() {
        let mut check = Exclusion::default();
        for n in 1..500 {
            check.on_event(who(0), &acquired(n * 1000, "x", n, n * 1000 + 10), &truth());
            assert!(check.settle(at(n * 1000), &truth()).is_empty());
        }
        assert!(check.held() < 100, "{}", check.held());
    }
}
