//! The source of the faults of a plan. A list of all kinds of faults, the *deck*, is shuffled by the seed. The deck is
//! used up before it is shuffled again, so every kind occurs.

use super::choice::{Action, Actions, Choice, Kind, Target};
use quorate_testkit::sim::SeedRng;
use std::time::Duration;

/// The faults of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    pub(crate) kinds: &'static [Kind],
    /// The indices of the kinds that are in the deck twice.
    pub(crate) twice: &'static [usize],
    /// The indices of the kinds that occur without any other fault at the same time.
    pub(crate) alone: &'static [usize],
}

/// A fault, with its kind and its actions. The time of each action counts from the beginning of the episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: &'static str,
    pub(crate) actions: Vec<(Duration, Action)>,
}

/// A number of faults, which may overlap, and the time without faults that follows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Episode {
    pub(crate) faults: Vec<Fault>,
    pub(crate) calm: Duration,
}

/// The source of the faults. It returns one episode after the other.
#[derive(Debug)]
pub(crate) struct Deck {
    rng: SeedRng,
    kinds: Kinds,
    cards: Vec<usize>,
    workers: usize,
    nodes: usize,
}

impl Deck {
    pub(crate) fn new(kinds: Kinds, seed: u64, workers: usize, nodes: usize) -> Self {
        Self { rng: SeedRng::new(seed, "faults"), kinds, cards: Vec::new(), workers, nodes }
    }

    pub(crate) fn episode(&mut self) -> Episode {
        let count = self.rng.number(1..=4);
        let mut faults = Vec::new();
        for _ in 0..count {
            let kind = self.draw();
            let (name, alone) = (self.kinds.kinds[kind].0, self.kinds.alone.contains(&kind));
            if alone && !faults.is_empty() {
                // The next episode begins with this kind.
                self.cards.push(kind);
                break;
            }
            faults.push(Fault { kind: name, actions: self.actions(kind) });
            if alone {
                break;
            }
        }
        // The time without faults is either long enough for a quarantine and for every limit of the liveness
        // check, or very short.
        let calm =
            if self.rng.chance(350) { self.rng.millis(11_500..=14_000) } else { self.rng.millis(500..=3000) };
        Episode { faults, calm }
    }

    fn draw(&mut self) -> usize {
        if self.cards.is_empty() {
            self.cards = (0..self.kinds.kinds.len()).chain(self.kinds.twice.iter().copied()).collect();
            for last in (1..self.cards.len()).rev() {
                let other = self.rng.index(last + 1);
                self.cards.swap(last, other);
            }
        }
        self.cards.pop().unwrap_or_default()
    }

    fn actions(&mut self, kind: usize) -> Actions {
        let at = self.rng.millis(0..=2000);
        let lasts = self.rng.millis_up_to(&[500, 2000, 5000]) + Duration::from_millis(50);
        let (workers, nodes) = (self.workers, self.nodes);
        let (worker, node) = (Target::Member(self.rng.index(workers)), self.rng.index(nodes));
        let choice = Choice { at, until: at + lasts, worker, workers, node, nodes, rng: &mut self.rng };
        self.kinds.kinds[kind].1(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::NodeFault, soak::SOAK, weather::WEATHER};
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_fixes_the_faults_and_a_deck_holds_every_kind() {
        for kinds in [SOAK, WEATHER] {
            let deal = |seed| {
                let mut deck = Deck::new(kinds, seed, 4, 5);
                (0..50).map(|_| deck.episode()).collect::<Vec<_>>()
            };
            assert_eq!(deal(1), deal(1));
            assert_ne!(deal(1), deal(2));
            let names: BTreeSet<&str> =
                deal(1).iter().flat_map(|episode| episode.faults.iter().map(|fault| fault.kind)).collect();
            assert_eq!(names.len(), kinds.kinds.len());
            let alone = |name| kinds.alone.iter().any(|kind| kinds.kinds[*kind].0 == name);
            for episode in deal(1) {
                assert!(episode.faults.len() == 1 || !episode.faults.iter().any(|fault| alone(fault.kind)));
            }
        }
    }

    #[test]
    fn every_fault_that_lasts_is_ended() {
        for kinds in [SOAK, WEATHER] {
            let mut deck = Deck::new(kinds, 3, 4, 5);
            for (kind, (name, _)) in kinds.kinds.iter().enumerate() {
                let actions = deck.actions(kind);
                for (at, action) in &actions {
                    let ends = ends_of(*action);
                    let ended = |(when, other): &(Duration, Action)| ends.contains(other) && when > at;
                    assert!(ends.is_empty() || actions.iter().any(ended), "{name}");
                }
            }
        }
    }

    /// Returns the actions of which each ends this one. Returns none if it needs no end.
    fn ends_of(action: Action) -> Vec<Action> {
        match action {
            Action::Node(node, fault) => {
                let ends = match fault {
                    NodeFault::Kill => vec![NodeFault::Restart, NodeFault::RestartEmpty],
                    NodeFault::Stop => vec![NodeFault::Resume],
                    NodeFault::Fill => vec![NodeFault::Empty],
                    NodeFault::SetClock(ms) if ms != 0 => vec![NodeFault::SetClock(0)],
                    NodeFault::Cut(_) | NodeFault::Slow(..) | NodeFault::CutReply(_) => vec![NodeFault::Heal],
                    _ => Vec::new(),
                };
                ends.into_iter().map(|end| Action::Node(node, end)).collect()
            }
            Action::Split(split) => vec![Action::Join(split)],
            Action::Kill(_) | Action::Terminate(_) => vec![Action::StartWorkers],
            Action::Stop(_) => vec![Action::ResumeWorkers],
            _ => Vec::new(),
        }
    }
}
