//! The rule that decides when an attempt on a claim may begin, and when its message is given up. The
//! functions are pure. The model that checks the rule (`quorate-testkit`, `model::poison`) uses them too.
//!
//! # What is not guaranteed
//!
//! A node that loses its data loses its counts, and then more attempts than the limit may begin. A count that
//! cannot be withdrawn stays, although its attempt won a majority and never began. There are four such cases:
//!
//! * The worker crashed before it knew that a majority had granted the attempt.
//! * The worker lost the claim.
//! * A node's confirmation of the count had not arrived yet.
//! * The worker could not reach that node again.
//!
//! Because of these cases, the number of attempts that began may be smaller than the limit when a message is
//! given up. But the number of attempts that won a majority is at least the limit. If too few nodes answer,
//! it is unknown whether another payload is stored ([`Payload::Unknown`]).
//!
//! # The rule
//!
//! A grant reports how many attempts its node has counted. A worker with a majority of grants takes the
//! largest of these counts. At the limit, the message is given up. Below the limit, the worker writes a count
//! that is one higher. A node stores the new count only if the worker is still the owner and fewer attempts
//! have been counted there ([`counts_more`](crate::node::engine::counts_more)). The handler begins once a
//! majority has stored the count.
//!
//! The grant itself does not count the attempt. Otherwise an attempt that got only a few grants, and was
//! lost, would count as well. A node refuses a count that it already has. Otherwise two attempts could have
//! the same number. The majority that stores the count need not be the majority that granted.
//!
//! # Withdrawal
//!
//! A worker withdraws the count of an attempt that will certainly not begin, before it releases the claim. It
//! sends the withdrawal to the nodes that confirmed the count. A node applies the withdrawal if the worker is
//! still the owner and exactly that count is stored. (On a node that did not confirm, the same count may
//! belong to another worker, whose attempt begins.)
//!
//! An attempt may also be cancelled after a majority has counted it, before its handler starts. The worker
//! then withdraws the count on every node. Another worker may have written the same count on some of these
//! nodes. That count is then removed too, and one attempt more than the limit may begin.
//!
//! When a node's count returns to zero, the node forgets the payload as well. A payload excludes other
//! payloads once a majority stores it. A majority stores the payload of every attempt that began. A payload
//! that only a minority stores belongs to an attempt that never began.

use std::sync::Arc;

/// The decision on an attempt whose claim a majority has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The handler may begin once a majority has counted the attempt with this number.
    Begins(u32),
    /// The limit is reached. This many attempts have been counted, so the message is given up.
    GivenUp(u32),
}

/// Decides on an attempt from the counts of the granting nodes. At most `limit` attempts may begin.
pub fn turn(counted: impl IntoIterator<Item = u32>, limit: Option<u32>) -> Turn {
    let most = counted.into_iter().max().unwrap_or_default();
    match limit {
        Some(limit) if most >= limit => Turn::GivenUp(most),
        _ => Turn::Begins(most.saturating_add(1)),
    }
}

/// The answer to whether an attempt with another payload than the given one has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No attempt with another payload can have begun.
    Free,
    /// A majority stores this other payload.
    Other(Arc<str>),
    /// The nodes that have not answered decide this: they may store another payload on a majority.
    Unknown,
}

/// Decides whether an attempt with another payload than `given` has begun. `known` has an entry for each node
/// that has answered, out of `nodes` nodes. The entry is `None` for a node that stores no payload.
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
