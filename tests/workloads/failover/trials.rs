use super::{CANDIDATES, kind::Kind};
use quorate::env::BootTime;
use quorate_testkit::sim::SeedRng;
use std::time::Duration;

/// The shortest time from the start of the last candidate, or from the end of a fault, to the next fault. The candidates
/// need it to connect again, and to find the leader.
const CALM: Duration = Duration::from_millis(1500);

/// The next action of a group's director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Cause this fault of this candidate, and report its time with [`Trials::on_fault`].
    Fault(Kind, usize),
    /// End the fault of this candidate.
    Heal(Kind, usize),
    /// The trial has no end. It is given up, and this is the reason. Its fault is healed next.
    GiveUp(String),
}

/// The state of a group between two events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// A candidate leads or will lead. The next fault is due at this time, if a candidate leads then.
    Calm { until: BootTime },
    /// A fault has been asked for, or was caused at `at`, of the candidate that led under `term`.
    Trial { kind: Kind, candidate: usize, term: u64, at: Option<BootTime> },
    /// The trial is over, and its fault must end.
    Over { kind: Kind, candidate: usize },
}

/// The trials of one group, as a state machine without I/O.
#[derive(Debug)]
pub(super) struct Trials {
    ttl: Duration,
    rng: SeedRng,
    /// The faults that are still to be caused.
    deck: Vec<Kind>,
    state: State,
    ready: [bool; CANDIDATES],
    /// The candidate with the largest term, and the term.
    leader: Option<(usize, u64)>,
    durations: Vec<(Kind, Duration)>,
}

impl Trials {
    /// Returns the trials of a group: `each` of each kind, in a random order.
    pub(super) fn new(ttl: Duration, each: usize, mut rng: SeedRng) -> Self {
        let mut deck: Vec<Kind> =
            Kind::ALL.into_iter().flat_map(|kind| std::iter::repeat_n(kind, each)).collect();
        for at in (1..deck.len()).rev() {
            deck.swap(at, rng.index(at + 1));
        }
        let state = State::Calm { until: BootTime::default() };
        Self { ttl, rng, deck, state, ready: [false; CANDIDATES], leader: None, durations: Vec::new() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.deck.is_empty() && matches!(self.state, State::Calm { .. })
    }

    /// Returns whether a fault was caused after which no candidate leads yet.
    pub(super) fn is_in_trial(&self) -> bool {
        matches!(self.state, State::Trial { .. })
    }

    /// Returns the time without a leader of each trial that counts.
    pub(super) fn durations(&self) -> &[(Kind, Duration)] {
        &self.durations
    }

    /// Notes that a candidate has started.
    pub(super) fn on_ready(&mut self, candidate: usize, at: BootTime) {
        self.ready[candidate] = true;
        if matches!(self.state, State::Calm { .. }) {
            self.calm(at);
        }
    }

    /// Notes that a candidate leads under `term` since `at`. Terms may be reported in another order.
    pub(super) fn on_leader(&mut self, candidate: usize, term: u64, at: BootTime) {
        if self.leader.is_some_and(|(_, known)| known >= term) {
            return;
        }
        self.leader = Some((candidate, term));
        match self.state {
            State::Trial { kind, candidate: failed, term: before, at: Some(failed_at) } if term > before => {
                // The leader may have lost its term by itself just before the fault. Then the trial is repeated.
                if failed != candidate && at > failed_at {
                    self.durations.push((kind, failed_at.until(at)));
                } else {
                    self.deck.push(kind);
                }
                self.state = State::Over { kind, candidate: failed };
            }
            State::Calm { .. } => self.calm(at),
            State::Trial { .. } | State::Over { .. } => {}
        }
    }

    /// Notes that the fault of the last [`Step::Fault`] was caused at `at`.
    pub(super) fn on_fault(&mut self, at: BootTime) {
        if let State::Trial { kind, candidate, at: caused, .. } = &mut self.state {
            *caused = Some(at);
            if matches!(kind, Kind::Killed | Kind::Terminated) {
                self.ready[*candidate] = false;
            }
        }
    }

    /// Returns the next action, if one is due.
    pub(super) fn step(&mut self, now: BootTime) -> Option<Step> {
        match self.state {
            State::Calm { until } => {
                let (candidate, term) = self.leader?;
                if now < until || self.ready.contains(&false) {
                    return None;
                }
                let kind = self.deck.pop()?;
                self.state = State::Trial { kind, candidate, term, at: None };
                Some(Step::Fault(kind, candidate))
            }
            State::Trial { kind, candidate, at: Some(at), .. }
                if at.until(now) > self.ttl * 5 + CALM * 20 =>
            {
                self.state = State::Over { kind, candidate };
                Some(Step::GiveUp(format!("no candidate leads {:.1?} after {kind}", at.until(now))))
            }
            State::Trial { .. } => None,
            State::Over { kind, candidate } => {
                self.calm(now);
                Some(Step::Heal(kind, candidate))
            }
        }
    }

    /// Draws the time of the next fault. Over a third of the TTL, which is the time between two renewals, each moment is as
    /// likely as every other.
    fn calm(&mut self, now: BootTime) {
        let spread = u64::try_from(self.ttl.as_millis() / 3).unwrap_or(u64::MAX);
        self.state = State::Calm { until: now + CALM + self.rng.millis(0..=spread) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    fn group() -> Trials {
        let mut group = Trials::new(Duration::from_secs(3), 1, SeedRng::new(1, "trials"));
        group.on_ready(0, at(10));
        group.on_leader(0, 5, at(20));
        assert_eq!(group.step(at(60_000)), None, "candidate 1 has not started");
        group.on_ready(1, at(30));
        group
    }

    fn fault(group: &mut Trials, now: u64) -> (Kind, usize) {
        match group.step(at(now)) {
            Some(Step::Fault(kind, candidate)) => {
                group.on_fault(at(now));
                (kind, candidate)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_trial_lasts_from_the_fault_to_the_next_leader() {
        let mut group = group();
        assert_eq!(group.step(at(1_000)), None, "too early");
        let (kind, candidate) = fault(&mut group, 10_000);
        assert_eq!(candidate, 0);
        assert!(group.is_in_trial() && group.step(at(10_001)).is_none());
        group.on_leader(1, 6, at(12_500));
        assert_eq!(group.durations(), [(kind, Duration::from_millis(2_500))]);
        assert_eq!(group.step(at(12_501)), Some(Step::Heal(kind, 0)));
        assert!(!group.is_in_trial() && !group.is_done(), "three trials are left");
    }

    #[test]
    fn a_term_that_ended_by_itself_before_the_fault_repeats_the_trial() {
        let mut group = group();
        let (kind, _) = fault(&mut group, 10_000);
        // The line arrives after the fault, and says that the other one led before it.
        group.on_leader(1, 6, at(9_999));
        assert_eq!(group.durations(), []);
        assert_eq!(group.step(at(10_002)), Some(Step::Heal(kind, 0)));
        assert_eq!(group.deck.len(), 4);
    }

    #[test]
    fn a_trial_without_an_end_is_given_up() {
        let mut group = group();
        fault(&mut group, 10_000);
        assert!(
            matches!(group.step(at(100_000)), Some(Step::GiveUp(why)) if why.contains("no candidate leads"))
        );
        assert!(matches!(group.step(at(100_001)), Some(Step::Heal(..))));
    }

    #[test]
    fn every_kind_has_its_trials() {
        let mut group = group();
        let (mut now, mut leader, mut term, mut kinds) = (10_000, 0, 5, Vec::new());
        while !group.is_done() {
            let (kind, candidate) = fault(&mut group, now);
            assert_eq!(candidate, leader);
            (leader, term) = (1 - leader, term + 1);
            group.on_leader(leader, term, at(now + 100));
            assert!(matches!(group.step(at(now + 101)), Some(Step::Heal(..))));
            group.on_ready(candidate, at(now + 200));
            kinds.push(kind);
            now += 20_000;
        }
        kinds.sort();
        assert_eq!(kinds, Kind::ALL);
    }
}
