//! Which worker should lead the first group, in some seeds.

use super::{Duties, SeedRng, WORKERS};
use quorate::election::Election;
use std::time::Duration;

/// The number of seeds in a thousand in which some workers of the first group are preferred, or never lead.
const RANKED_SEEDS: u64 = 120;
/// The time for which a preferred worker must have been healthy before it asks for the lead.
const TAKES_OVER_AFTER: Duration = Duration::from_millis(1_000);

/// The rank of a worker among the candidates of the first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in super::super) enum Rank {
    #[default]
    Usual,
    Preferred,
    NeverLeads,
}

impl Rank {
    /// Draws the ranks of the workers that campaign in the first group. At least one of them may lead.
    pub(super) fn draw(seed: u64, all: &mut [Duties; WORKERS]) {
        // A random stream of its own keeps this draw from changing the other duties.
        let mut rng = SeedRng::new(seed, "ranks");
        let mut candidates = all.iter_mut().filter(|duties| duties.jobs);
        let (Some(first), Some(second)) = (candidates.next(), candidates.next()) else { return };
        if rng.chance(RANKED_SEEDS) {
            first.rank = if rng.chance(500) { Self::Preferred } else { Self::Usual };
            second.rank = Self::NeverLeads;
        }
    }

    pub(super) fn apply(self, election: Election) -> Election {
        match self {
            Self::Usual => election,
            Self::Preferred => election.priority(10).take_over_after(TAKES_OVER_AFTER),
            Self::NeverLeads => election.never_lead(),
        }
    }
}
