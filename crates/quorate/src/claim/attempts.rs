//! When an attempt on a claim may begin, and when its id is given up: pure, and shared with the model of it
//! (`quorate-testkit`, `model::poison`).
//!
//! # What is not guaranteed
//!
//! A node that forgets forgets its counts: then more attempts than the limit may begin. An attempt that won a majority but
//! never began counts where it could not be taken back: its worker died before it knew that a majority has it, lost the
//! claim, had no word yet that a node counts it, or did not reach that node again. So an id may be given up after fewer handlers than the limit, but not after fewer
//! attempts that were won. Whether another's payload stands is not known where too few nodes answer
//! ([`Payload::Unknown`]).
//!
//! # The rule
//!
//! A grant tells how many attempts its node has counted. Who has a majority of grants takes the largest of these: at the
//! limit the id is given up. Below it, one more is written wherever the claimer is still the owner and fewer have been
//! counted ([`counts_more`](crate::node::engine::counts_more)); the handler begins once a majority has it. (Counted with the grant itself, attempts would count that nobody
//! won. Not refusing where as many are counted, one count would stand for two attempts: the majority that counts need
//! not be the one that granted.)
//!
//! An attempt that is known not to begin is taken back ahead of its claim's release, where a node has said that it counts it,
//! it still is the owner, and exactly its count stands. (Elsewhere the same count may be another's, who begins.) What a majority
//! counts and is given back is taken back on every node: of two that race to count as many, one more than the limit may begin
//! then. A node that counts none forgets the payload as well. A payload keeps others away
//! once a majority knows it, as it does of each attempt that began: what a minority knows is of one that never did.

use std::sync::Arc;

/// What a majority of grants means for the attempt that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The handler may begin once a majority has counted that this is attempt so and so.
    Begins(u32),
    /// As many as may begin have begun: the id is given up.
    GivenUp(u32),
}

/// Whose turn it is where the granting nodes have counted so many attempts, of which `limit` may begin.
pub fn turn(counted: impl IntoIterator<Item = u32>, limit: Option<u32>) -> Turn {
    let most = counted.into_iter().max().unwrap_or_default();
    match limit {
        Some(limit) if most >= limit => Turn::GivenUp(most),
        _ => Turn::Begins(most.saturating_add(1)),
    }
}

/// What the nodes know of another payload than the one that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No attempt with another one can have begun.
    Free,
    /// A majority knows this one.
    Other(Arc<str>),
    /// Those that have not answered decide.
    Unknown,
}

/// What it means that those of `nodes` that have answered know of these payloads, or of none.
pub fn payload_of(given: &Arc<str>, known: &[Option<Arc<str>>], nodes: usize) -> Payload {
    let majority = crate::config::majority(nodes);
    let unheard = nodes.saturating_sub(known.len());
    let mut verdict = if unheard >= majority { Payload::Unknown } else { Payload::Free };
    for other in known.iter().flatten().filter(|other| *other != given) {
        let times = known.iter().flatten().filter(|known| *known == other).count();
        if times >= majority {
            return Payload::Other(Arc::clone(other));
        }
        if times + unheard >= majority {
            verdict = Payload::Unknown;
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_a_minority_knows_keeps_nobody_away() {
        let (ours, other): (Arc<str>, Arc<str>) = ("aa".into(), "bb".into());
        let (we, they) = (Some(Arc::clone(&ours)), Some(Arc::clone(&other)));
        let look = |known: &[&Option<Arc<str>>]| {
            payload_of(&ours, &known.iter().map(|one| (*one).clone()).collect::<Vec<_>>(), 3)
        };
        assert_eq!(look(&[]), Payload::Unknown);
        assert_eq!(look(&[&None]), Payload::Unknown);
        assert_eq!(look(&[&None, &we]), Payload::Free);
        assert_eq!(look(&[&they, &None]), Payload::Unknown, "the third may know it as well");
        assert_eq!(look(&[&they, &None, &None]), Payload::Free);
        assert_eq!(look(&[&they, &we, &we]), Payload::Free);
        assert_eq!(look(&[&they, &they]), Payload::Other(other.clone()));
        assert_eq!(look(&[&they, &we, &they]), Payload::Other(other));
    }

    #[test]
    fn the_largest_count_decides() {
        assert_eq!(turn([0, 0], Some(3)), Turn::Begins(1));
        assert_eq!(turn([0, 2, 1], Some(3)), Turn::Begins(3));
        assert_eq!(turn([0, 3], Some(3)), Turn::GivenUp(3));
        assert_eq!(turn([9], Some(3)), Turn::GivenUp(9), "the limit was lowered");
        assert_eq!(turn([9], None), Turn::Begins(10));
        assert_eq!(turn([u32::MAX], None), Turn::Begins(u32::MAX));
    }
}
