//! What happened, in numbers.

use super::{
    faults::Kind,
    journal::{Entry, Event},
    settings::TERM,
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, time::Duration};

/// Counters and measurements.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) locks: usize,
    pub(crate) terms: usize,
    pub(crate) claims: usize,
    pub(crate) lost: usize,
    pub(crate) lines: usize,
    pub(crate) stalls: usize,
    pub(crate) faults: BTreeMap<Kind, usize>,
    /// From a leader's crash to the next leader, where a majority of nodes could vote all the time.
    pub(crate) after_crash: Spread,
    /// The same from a leader's SIGTERM.
    pub(crate) after_term: Spread,
    /// From the last look of a leader at its valid term to the next leader, whatever happened.
    pub(crate) leaderless: Spread,
    /// From the word to stop to the end of validity.
    pub(crate) told_before: Spread,
    /// From SIGTERM to the end of the process.
    pub(crate) to_end: Spread,
    /// The largest resident set of any worker, in KiB.
    pub(crate) memory: u64,
    /// The most that the checks watched at once.
    pub(crate) watched: usize,
    leader: Option<(Who, u64)>,
    led_until: BootTime,
    ended: Option<(BootTime, bool)>,
    until: BTreeMap<(String, u64), BootTime>,
}

impl Figures {
    /// Who leads, as far as is known.
    pub(crate) fn leader(&self) -> Option<Who> {
        self.leader.map(|(who, _)| who)
    }

    /// The leader has been killed, or told to end.
    pub(crate) fn leader_ends(&mut self, at: BootTime, crash: bool) {
        self.ended = Some((at, crash));
    }

    /// A line has come.
    pub(crate) fn take(&mut self, who: Who, entry: &Entry, truth: &Truth) {
        self.lines += 1;
        let at = entry.at();
        match &entry.event {
            Event::Held { res, token, until, .. } => {
                self.until.insert((res.to_string(), *token), BootTime::from_nanos(*until));
                match &**res {
                    TERM => self.elected(who, *token, at, truth),
                    res if res.starts_with("claim/") => self.claims += 1,
                    _ => self.locks += 1,
                }
            }
            Event::Look { res, token, until } => {
                self.until.insert((res.to_string(), *token), BootTime::from_nanos(*until));
                if &**res == TERM {
                    self.led_until = self.led_until.max(at);
                }
            }
            Event::Told { res, token } => {
                if let Some(until) = self.until.get(&(res.to_string(), *token)) {
                    self.told_before.add(at.until(*until));
                }
            }
            Event::Ending { res, token } | Event::Over { res, token } => {
                self.lost += usize::from(matches!(entry.event, Event::Over { .. }));
                self.until.remove(&(res.to_string(), *token));
                if self.leader == Some((who, *token)) {
                    self.leader = None;
                }
            }
            Event::Stalled { .. } => self.stalls += 1,
            _ => {}
        }
    }

    /// Forgets leases of processes that could not say that they ended.
    pub(crate) fn prune(&mut self, now: BootTime) {
        self.until.retain(|_, until| *until + Duration::from_secs(30) > now);
    }

    fn elected(&mut self, who: Who, term: u64, at: BootTime, truth: &Truth) {
        self.terms += 1;
        self.leader = Some((who, term));
        if self.led_until > BootTime::default() {
            self.leaderless.add(self.led_until.until(at));
        }
        self.led_until = self.led_until.max(at);
        let majority = truth.usable_since();
        if let Some((ended, crash)) = self.ended.take_if(|(ended, _)| *ended < at)
            && majority.is_some_and(|since| since <= ended)
        {
            let spread = if crash { &mut self.after_crash } else { &mut self.after_term };
            spread.add(ended.until(at));
        }
    }
}

/// Times, to be told by their quantiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread(Vec<Duration>);

impl Spread {
    /// What is kept at most: a soak of days keeps its memory.
    const MOST: usize = 100_000;

    pub(crate) fn add(&mut self, time: Duration) {
        if self.0.len() < Self::MOST {
            self.0.push(time);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The least, the median, the 99th percentile and the largest, in milliseconds; `None` of nothing.
    pub(crate) fn quantiles(&self) -> Option<[f64; 4]> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: usize| sorted.get((sorted.len() * share).div_ceil(100).max(1) - 1);
        let ms = |time: &Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
        Some([ms(sorted.first()?), ms(at(50)?), ms(at(99)?), ms(sorted.last()?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantiles(), None);
        (1..=100).rev().for_each(|n| spread.add(Duration::from_millis(n)));
        assert_eq!((spread.quantiles(), spread.len()), (Some([1.0, 50.0, 99.0, 100.0]), 100));
    }

    #[test]
    fn a_gap_counts_from_the_crash_if_a_majority_was_there() {
        let at = |ms: u64| BootTime::from_nanos(ms * 1_000_000);
        let who = |member| Who { member, run: 1 };
        let held = |ms: u64, token| Entry {
            at: ms * 1_000_000,
            event: Event::Held { res: TERM.into(), token, asked: 0, until: 0 },
        };
        let mut truth = Truth::default();
        truth.count(at(500), 5, 4);
        let mut figures = Figures::default();
        figures.take(who(0), &held(1000, 1), &truth);
        assert_eq!(figures.leader(), Some(who(0)));
        figures.leader_ends(at(2000), true);
        figures.take(who(1), &held(4000, 2), &truth);
        assert_eq!(figures.after_crash.quantiles(), Some([2000.0; 4]));
        assert_eq!(figures.leaderless.quantiles(), Some([3000.0; 4]));
        figures.leader_ends(at(5000), true);
        truth.count(at(5500), 2, 4);
        truth.count(at(6000), 3, 4);
        figures.take(who(0), &held(7000, 3), &truth);
        assert_eq!(figures.after_crash.len(), 1, "a majority was away meanwhile");
    }
}
