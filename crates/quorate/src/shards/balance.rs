//! Which worker owns which shard, as a pure function.
//!
//! Each worker gets its exact share of the shards, by its weight, rounded down or up. So with equal weights shares differ by
//! at most one. Of the workers that may be rounded up, those that own more than their share rounded down come first: then as
//! few shards move as possible. A worker that joins gets its share from the others, and the others get nothing from one
//! another. A worker that leaves gives its shards to the others. So each moves at most its own share, ⌈N/M⌉ of N shards and M
//! workers of equal weights.

use std::cmp::Reverse;

/// Returns the owner of each shard, as an index of `weights`. `owners` has the present owner of each shard, `None` if it has
/// none. No shard has an owner if there are no workers.
pub(super) fn balance(weights: &[u32], owners: &[Option<usize>]) -> Vec<Option<usize>> {
    if weights.is_empty() {
        return vec![None; owners.len()];
    }
    let mut held = vec![0; weights.len()];
    owners.iter().flatten().for_each(|owner| held[*owner] += 1);
    let mut room = shares(weights, &held, owners.len());
    let keep = |owner: &Option<usize>| {
        let owner = owner.filter(|owner| room[*owner] > 0)?;
        room[owner] -= 1;
        Some(owner)
    };
    let mut balanced: Vec<Option<usize>> = owners.iter().map(keep).collect();
    for free in balanced.iter_mut().filter(|owner| owner.is_none()) {
        *free = (0..room.len()).max_by_key(|worker| (room[*worker], Reverse(*worker)));
        free.iter().for_each(|worker| room[*worker] -= 1);
    }
    balanced
}

/// Returns the number of shards of each worker. `held` has the number of shards that each owns at present. The sum of the
/// results is `count`.
fn shares(weights: &[u32], held: &[usize], count: usize) -> Vec<usize> {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let exact: Vec<u64> = weights.iter().map(|weight| u64::from(*weight) * count as u64).collect();
    let mut shares: Vec<usize> = exact.iter().map(|exact| (exact / total) as usize).collect();
    let mut order: Vec<usize> =
        (0..weights.len()).filter(|worker| !exact[*worker].is_multiple_of(total)).collect();
    order.sort_by_key(|&worker| (held[worker] <= shares[worker], Reverse(exact[worker] % total), worker));
    let left = count - shares.iter().sum::<usize>();
    order.into_iter().take(left).for_each(|worker| shares[worker] += 1);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(weights: &[u32], owners: &[Option<usize>]) -> Vec<usize> {
        let mut counts = vec![0; weights.len()];
        owners.iter().for_each(|owner| counts[owner.unwrap()] += 1);
        counts
    }

    fn moves(before: &[Option<usize>], after: &[Option<usize>]) -> usize {
        before.iter().zip(after).filter(|(before, after)| before != after).count()
    }

    #[test]
    fn shards_are_shared_evenly_and_without_workers_they_have_no_owner() {
        let free = [None; 10];
        assert_eq!(counts(&[1, 1, 1], &balance(&[1, 1, 1], &free)), [4, 3, 3]);
        assert_eq!(counts(&[2, 1], &balance(&[2, 1], &free)), [7, 3]);
        assert_eq!(counts(&[5; 12], &balance(&[5; 12], &free)), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(balance(&[], &[Some(0), None]), [None, None]);
        assert_eq!(balance(&[1], &[]), []);
    }

    #[test]
    fn a_balanced_set_does_not_move_and_the_rounded_share_stays_where_it_is() {
        let owners: Vec<_> = [0, 1, 1, 2, 2, 2, 0, 1, 1, 2].map(Some).into();
        assert_eq!(balance(&[1; 3], &owners)[..3], [Some(0), Some(1), Some(1)]);
        let balanced = balance(&[1; 3], &owners);
        assert_eq!((counts(&[1; 3], &balanced), moves(&owners, &balanced)), (vec![3, 4, 3], 1));
        assert_eq!(balance(&[1; 3], &balanced), balanced);
    }

    /// The numbers of a linear congruential generator, so that a failure can be repeated.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }

    /// Asserts that each worker has its exact share, rounded down or up.
    fn assert_shares(weights: &[u32], owners: &[Option<usize>]) {
        let total: u64 = weights.iter().copied().map(u64::from).sum();
        for (worker, has) in counts(weights, owners).into_iter().enumerate() {
            let exact = u64::from(weights[worker]) * owners.len() as u64;
            let (down, up) = (exact / total, exact.div_ceil(total));
            assert!((down..=up).contains(&(has as u64)), "{weights:?}: {worker} has {has} of {owners:?}");
        }
    }

    #[test]
    fn any_owners_are_balanced_with_the_fewest_moves() {
        let mut dice = Dice(1);
        for _ in 0..2_000 {
            let weights: Vec<u32> = (0..=dice.below(9)).map(|_| 1 + dice.below(5) as u32).collect();
            let owner =
                |dice: &mut Dice| Some(dice.below(weights.len() + 1)).filter(|at| *at < weights.len());
            let owners: Vec<_> = (0..dice.below(70)).map(|_| owner(&mut dice)).collect();
            let balanced = balance(&weights, &owners);
            assert_shares(&weights, &balanced);
            // No shard moves to a worker that has given one away.
            for (before, after) in owners.iter().zip(&balanced).filter(|(before, after)| before != after) {
                let (Some(before), Some(after)) = (before, after) else { continue };
                let kept = |worker: usize| {
                    owners.iter().zip(&balanced).all(|(had, has)| *had != Some(worker) || had == has)
                };
                assert!(kept(*after), "{weights:?}: {after} gave a shard away and got one of {before}");
            }
        }
    }

    #[test]
    fn a_join_or_a_leave_moves_at_most_the_share_of_one_worker() {
        let mut dice = Dice(2);
        for _ in 0..300 {
            let count = 1 + dice.below(130);
            let mut workers = 1 + dice.below(8);
            let mut owners = balance(&vec![1; workers], &vec![None; count]);
            for _ in 0..20 {
                let most;
                let before = owners.clone();
                if workers == 1 || (workers < 12 && dice.below(2) == 0) {
                    workers += 1;
                    most = count.div_ceil(workers);
                } else {
                    most = count.div_ceil(workers);
                    let gone = dice.below(workers);
                    workers -= 1;
                    // The last worker gets the index of the one that leaves.
                    for owner in &mut owners {
                        *owner =
                            owner.filter(|at| *at != gone).map(|at| if at == workers { gone } else { at });
                    }
                }
                let renamed = owners.clone();
                owners = balance(&vec![1; workers], &owners);
                assert_shares(&vec![1; workers], &owners);
                let moved = moves(&renamed, &owners);
                assert!(
                    moved <= most,
                    "{moved} of {count} moved, {workers} workers: {before:?} -> {owners:?}"
                );
            }
        }
    }
}
