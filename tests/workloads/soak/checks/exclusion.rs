use super::{Check, HORIZON};
use crate::{
    journal::{Entry, Event},
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A look this shortly before a stop tells that the lease was valid when the process was stopped.
const FRESH: Duration = Duration::from_millis(150);

/// No two processes see a lease on one resource as valid at one time. Leases, terms and claims alike.
///
/// A process is known to have believed from the first time that it saw the lease valid to the last, and, where
/// it was stopped just after that, on to the end of the stop or of validity: it would have believed, had it run.
#[derive(Debug, Default)]
pub(crate) struct Exclusion {
    open: BTreeMap<Arc<str>, BTreeMap<u64, Belief>>,
    settled: BTreeMap<Arc<str>, Vec<Span>>,
    /// The pairs that have been told of.
    told: BTreeSet<(Arc<str>, u64, u64)>,
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
        let mut to = self.last;
        if !self.ended
            && let Some((_, over)) = truth.stop_after(self.who, self.last, FRESH, now)
        {
            to = to.max(over.min(self.until));
        }
        Span { token, who: self.who, from: self.from, to }
    }
}

impl Span {
    fn against(&self, other: &Self, res: &str) -> Option<String> {
        let overlap = self.from.max(other.from).until(self.to.min(other.to));
        (self.token != other.token && !overlap.is_zero()).then(|| {
            format!(
                "exclusion: {res}: {:?} (token {}) and {:?} (token {}) both believed for {overlap:?}: {:?}..{:?} \
                 and {:?}..{:?}",
                self.who, self.token, other.who, other.token, self.from, self.to, other.from, other.to
            )
        })
    }
}

impl Check for Exclusion {
    fn take(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::Held { res, token, until, .. } => {
                let until = BootTime::from_nanos(*until);
                let belief = Belief { who, from: at, last: at, until, ended: false };
                self.open.entry(Arc::clone(res)).or_default().insert(*token, belief);
            }
            Event::Look { res, token, until } => {
                if let Some(belief) = self.belief(res, *token) {
                    belief.last = belief.last.max(at);
                    belief.until = BootTime::from_nanos(*until);
                }
            }
            Event::Ending { res, token } => {
                if let Some(belief) = self.belief(res, *token) {
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
        for (res, open) in &mut self.open {
            let old = |belief: &Belief| belief.last + HORIZON < now && !truth.is_stopped(belief.who);
            let ripe: Vec<u64> = open.iter().filter(|(_, b)| old(b)).map(|(token, _)| *token).collect();
            if ripe.is_empty() {
                continue;
            }
            let settled = self.settled.entry(Arc::clone(res)).or_default();
            for token in ripe {
                let Some(belief) = open.remove(&token) else { continue };
                let span = belief.span(token, truth, now);
                let others = open.iter().map(|(token, belief)| belief.span(*token, truth, now));
                for other in others.chain(settled.iter().copied()) {
                    let pair = (Arc::clone(res), token.min(other.token), token.max(other.token));
                    if let Some(overlap) = span.against(&other, res)
                        && self.told.insert(pair)
                    {
                        found.push(overlap);
                    }
                }
                settled.push(span);
            }
        }
        self.open.retain(|_, open| !open.is_empty());
        for settled in self.settled.values_mut() {
            settled.retain(|span| span.to + HORIZON * 4 > now);
        }
        self.settled.retain(|_, settled| !settled.is_empty());
        found
    }

    fn watching(&self) -> usize {
        self.open.values().map(BTreeMap::len).sum::<usize>()
            + self.settled.values().map(Vec::len).sum::<usize>()
    }
}

impl Exclusion {
    fn belief(&mut self, res: &str, token: u64) -> Option<&mut Belief> {
        self.open.get_mut(res)?.get_mut(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, ending, held, judge, look, who},
        *,
    };

    fn found(truth: &Truth, lines: &[(usize, Entry)]) -> usize {
        judge(&mut Exclusion::default(), truth, lines).len()
    }

    #[test]
    fn one_after_the_other_is_as_it_should_be() {
        let lines = [
            (0, held(1000, 1, 3000)),
            (1, held(2100, 2, 4000)),
            (0, ending(2000, 1)),
            (1, look(2500, 2, 4500)),
        ];
        assert_eq!(found(&Truth::default(), &lines), 0);
    }

    #[test]
    fn two_that_look_at_one_time_and_see_it_valid_are_found() {
        let lines = [(0, held(1000, 1, 3000)), (1, held(2100, 2, 4000)), (0, look(2200, 1, 4200))];
        assert_eq!(found(&Truth::default(), &lines[..2]), 0, "nothing is known of the first at 2100");
        assert_eq!(found(&Truth::default(), &[lines.to_vec(), vec![(1, look(2300, 2, 4300))]].concat()), 1);
        let within = [(0, held(1000, 1, 3000)), (0, look(3000, 1, 5000)), (1, held(1500, 2, 3500))];
        let within = [within.to_vec(), vec![(1, look(1600, 2, 3500))]].concat();
        assert_eq!(found(&Truth::default(), &within), 1);
    }

    #[test]
    fn a_stopped_process_believes_until_its_validity_ends() {
        let mut truth = Truth::default();
        truth.stopped(who(0), at(1050));
        truth.went_on(who(0), at(9000));
        let next = |from| [(0, held(1000, 1, 3000)), (1, held(from, 2, 9000)), (1, look(from + 10, 2, 9000))];
        assert_eq!(found(&truth, &next(2900)), 1);
        assert_eq!(found(&truth, &next(3001)), 0);
        // Having said that it would end it, it does not count on it any more.
        let ended = [next(2900).to_vec(), vec![(0, ending(1040, 1))]].concat();
        assert_eq!(found(&truth, &ended), 0);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut check = Exclusion::default();
        for n in 1..500 {
            check.take(who(0), &held(n * 1000, n, n * 1000 + 10), &Truth::default());
            assert!(check.settle(at(n * 1000), &Truth::default()).is_empty());
        }
        assert!(check.watching() < 100, "{}", check.watching());
    }
}
