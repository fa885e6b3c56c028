use super::{Plan, simulate_untraced, sweep::invariant_of};
use std::ops::Range;

/// A check that one safety mechanism is needed. Under a plan all invariants must hold, and under the same plan
/// without the mechanism an invariant must break.
///
/// Both plans run with the *same* seed. A violation proves that the mechanism is needed only if the same
/// history with the mechanism has no violation.
#[derive(Clone, Debug)]
pub struct SabotageCheck<'a> {
    /// The plan with every mechanism.
    pub sound: &'a Plan,
    /// The plan without the mechanism.
    pub sabotaged: &'a Plan,
    /// The name of the invariant that must break. To count only certain messages of this invariant, add `: `
    /// and a part of the message after the name.
    pub breaks: &'a str,
}

/// The proof that a mechanism is needed: a seed that breaks the invariant without the mechanism, and breaks
/// no invariant with the mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The seed.
    pub seed: u64,
    /// The violation and its time.
    pub violation: String,
}

/// The reason why a check did not prove that a mechanism is needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDifference {
    /// No seed breaks the invariant without the mechanism.
    #[error("{breaks} holds in all {seeds} seeds although the mechanism is left out")]
    NeverBreaks {
        /// The invariant.
        breaks: String,
        /// The number of seeds that were run.
        seeds: u64,
    },
    /// The first seed that breaks the invariant without the mechanism also breaks an invariant with it.
    #[error(
        "seed {seed} breaks {breaks} without the mechanism, but it does not hold with the mechanism either: {sound}"
    )]
    NotSound {
        /// The seed.
        seed: u64,
        /// The invariant that breaks without the mechanism.
        breaks: String,
        /// The violation with the mechanism.
        sound: String,
    },
}

impl SabotageCheck<'_> {
    /// Runs the sabotaged plan until a seed breaks the invariant, then runs the sound plan on that one seed.
    ///
    /// # Errors
    /// [`NoDifference::NeverBreaks`] if no seed breaks the invariant. [`NoDifference::NotSound`] if the first
    /// seed that breaks the invariant also breaks an invariant under the sound plan.
    pub fn find(&self, seeds: Range<u64>) -> Result<Difference, NoDifference> {
        let count = seeds.end.saturating_sub(seeds.start);
        let found = seeds.into_iter().find_map(|seed| Some((seed, self.broken(seed)?)));
        let breaks = self.breaks.to_owned();
        let Some((seed, violation)) = found else {
            return Err(NoDifference::NeverBreaks { breaks, seeds: count });
        };
        match simulate_untraced(seed, self.sound).violations.into_iter().next() {
            None => Ok(Difference { seed, violation }),
            Some(sound) => Err(NoDifference::NotSound { seed, breaks, sound }),
        }
    }

    /// Returns the violation, if the sabotaged plan breaks the invariant under this seed.
    pub fn broken(&self, seed: u64) -> Option<String> {
        let (invariant, how) = self.breaks.split_once(": ").unwrap_or((self.breaks, ""));
        let counts = |violation: &String| invariant_of(violation) == invariant && violation.contains(how);
        simulate_untraced(seed, self.sabotaged).violations.into_iter().find(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::NodeFault;
    use std::time::Duration;

    fn short(node_fault: Option<NodeFault>) -> Plan {
        Plan { node_fault, length: Duration::from_secs(3), ..Plan::default() }
    }

    #[test]
    fn a_seed_counts_only_if_it_holds_without_the_sabotage() {
        let (sound, generous) = (short(None), short(Some(NodeFault::Generous)));
        let sabotage_check = |sound, sabotaged| SabotageCheck { sound, sabotaged, breaks: "exclusion" };
        let found = sabotage_check(&sound, &generous).find(1..40).unwrap();
        assert!(found.violation.contains(": exclusion: "), "{found:?}");
        let unsound = sabotage_check(&generous, &generous).find(found.seed..40).unwrap_err();
        let NoDifference::NotSound { seed, .. } = &unsound else { panic!("{unsound}") };
        assert_eq!(*seed, found.seed);
        assert!(unsound.to_string().contains("does not hold with the mechanism either: at "), "{unsound}");
        let never = sabotage_check(&sound, &sound).find(1..3).unwrap_err();
        assert_eq!(never.to_string(), "exclusion holds in all 2 seeds although the mechanism is left out");
    }
}
