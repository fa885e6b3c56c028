//! The quorum's clock: the wall time that a majority of the nodes has reached, independent of this worker's wall clock.
//!
//! # What is not guaranteed
//!
//! This clock is as accurate as the clocks of a majority of the nodes, and behind them by the time that a
//! reply takes to arrive. The quorum's clock may step back: when a reply gives a wider bound than the one
//! before it, or when a node's clock was set back. A caller that must not go back has to remember the last
//! time that it used. Between replies, the quorum's clock advances with the boot clock. If the boot clock
//! stood still (a virtual machine was paused), the quorum's clock is behind until a majority has answered
//! again.

use crate::{
    config::majority,
    env::{BootTime, WallTime},
    trust::clock_offset::ClockOffset,
};

/// Returns the latest time that the clocks of a majority of the nodes have certainly reached when the boot
/// clock shows `now`. For three nodes that have all replied, it is the median. Returns `None` if no majority
/// of the nodes has replied.
///
/// `samples` has one entry for each node. A node without a sample counts as a clock that has reached no time.
/// So a minority of nodes whose clocks are ahead never decides the result. A minority whose clocks are behind
/// does not decide it either, while all other nodes have replied.
pub(crate) fn majority_has_reached(
    now: BootTime,
    drift_rate: f64,
    samples: impl IntoIterator<Item = Option<ClockOffset>>,
) -> Option<WallTime> {
    let shows = |offset: ClockOffset| offset.carried_to(now, drift_rate);
    let mut shown: Vec<_> = samples.into_iter().map(|offset| offset.map(shows)).collect();
    // The latest times come first, and nodes without a sample last. So a majority of the nodes has reached
    // the time at the index `majority - 1`.
    shown.sort_unstable_by(|one, other| other.cmp(one));
    let time = shown.get(majority(shown.len()) - 1).copied().flatten()?;
    Some(WallTime::from_micros(time.as_micros()))
}

/// Returns the time that the clocks of no majority of the nodes have passed when the boot clock shows `now`. A clock without
/// a sample may show any time. Returns `None` if a majority may.
///
/// A majority that has shown a later time before would have as many clocks past the result, since clocks run forward.
pub(crate) fn no_majority_is_past(
    now: BootTime,
    samples: impl IntoIterator<Item = Option<ClockOffset>>,
) -> Option<WallTime> {
    let shows = |offset: ClockOffset| std::cmp::Reverse(offset.node_time_at_least(now));
    let mut shown: Vec<_> = samples.into_iter().map(|offset| offset.map(shows)).collect();
    // `None` comes first, and the latest times come before the earlier ones.
    shown.sort_unstable();
    let time = shown.get(majority(shown.len()) - 1).copied().flatten()?.0;
    Some(WallTime::from_micros(time.as_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeTime;

    const HOUR: u64 = 3_600_000;
    const RATE: f64 = 0.01;

    const fn ms(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    /// Returns a sample of a node whose clock is `ahead` ms ahead of the boot clock. The reply took 1 ms and
    /// arrived at `at`.
    fn heard(ahead: u64, at: u64) -> Option<ClockOffset> {
        Some(ClockOffset::sample(NodeTime::from_micros((at + ahead) * 1_000), ms(at - 1), ms(at)))
    }

    /// Returns the time that the quorum's clock shows at 2 s on the boot clock, in milliseconds after [`HOUR`].
    fn shows(nodes: &[Option<ClockOffset>]) -> Option<i64> {
        let wall = majority_has_reached(ms(2_000), RATE, nodes.iter().copied())?;
        Some((i64::try_from(wall.as_micros()).unwrap() + 1).div_euclid(1_000) - i64::try_from(HOUR).unwrap())
    }

    #[test]
    fn the_clock_is_the_median_and_never_ahead_of_a_majority() {
        let node = |ahead: u64| heard(HOUR + ahead, 1_000);
        assert_eq!(shows(&[node(0), node(300), node(700)]), Some(2_300), "the median");
        assert_eq!(shows(&[node(9 * HOUR), node(300), node(0)]), Some(2_300), "one is far ahead");
        assert_eq!(shows(&[heard(1, 1_000), node(300), node(400)]), Some(2_300), "one is far behind");
        assert_eq!(shows(&[node(700), None, node(300)]), Some(2_300), "the earlier of two");
        assert_eq!(shows(&[node(700), None, None]), None, "one is no majority");
        assert_eq!(shows(&[node(700)]), Some(2_700), "one is a majority of one");
        let five = [node(9 * HOUR), node(8 * HOUR), node(10), node(20), node(30)];
        assert_eq!(shows(&five), Some(2_030), "two of five are ahead");
        assert_eq!(shows(&[five[0], five[1], five[2], None, None]), Some(2_010));
        assert_eq!(shows(&[node(1), node(2), node(3), node(4)]), Some(2_002), "the third latest of four");
        assert_eq!(shows(&[]), None);
    }

    #[test]
    fn the_boot_clock_carries_it_on_and_old_samples_lose_the_drift() {
        let at =
            |now: u64| majority_has_reached(ms(now), RATE, [heard(HOUR, 1_000)]).unwrap().as_micros() + 1;
        assert_eq!(at(1_000), (HOUR + 1_000) * 1_000);
        assert_eq!(at(11_000), (HOUR + 11_000) * 1_000);
        assert_eq!(at(111_000), (HOUR + 111_000 - 1_000) * 1_000, "100 s too old, at 1 %");
    }

    /// Checks, for random samples, that a majority of the true clocks shows the returned time or a later one.
    #[test]
    fn a_majority_of_the_true_clocks_has_reached_it() {
        let mut dice = 7_u64;
        let mut below = |bound: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % bound
        };
        for _ in 0..2_000 {
            let nodes = 1 + usize::try_from(below(7)).unwrap();
            let now = 100_000;
            let truth: Vec<u64> = (0..nodes).map(|_| HOUR + below(5_000)).collect();
            let mut heard = Vec::new();
            for ahead in &truth {
                let sent = 1_000 + below(95_000);
                let took = below(900);
                let read = sent + below(took + 1);
                let known = below(4) > 0;
                let node_time = NodeTime::from_micros((read + ahead) * 1_000);
                heard.push(known.then(|| ClockOffset::sample(node_time, ms(sent), ms(sent + took))));
            }
            let known = heard.iter().flatten().count();
            let wall = majority_has_reached(ms(now), RATE, heard);
            assert_eq!(wall.is_some(), known >= majority(nodes));
            let Some(wall) = wall else { continue };
            let reached = truth.iter().filter(|ahead| (now + *ahead) * 1_000 >= wall.as_micros());
            assert!(reached.count() >= majority(nodes), "{truth:?}: {wall:?}");
        }
    }

    #[test]
    fn unknown_clocks_may_be_the_latest() {
        let past = |nodes: &[Option<ClockOffset>]| {
            let wall = no_majority_is_past(ms(2_000), nodes.iter().copied())?;
            Some(
                (i64::try_from(wall.as_micros()).unwrap() + 1).div_euclid(1_000)
                    - i64::try_from(HOUR).unwrap(),
            )
        };
        let all = [heard(HOUR, 1_999), heard(HOUR + 500, 1_999), heard(2 * HOUR, 1_999)];
        let median = past(&all).unwrap();
        assert!((2_499..=2_501).contains(&median), "{median}");
        assert!(past(&[all[0], all[1], None]).unwrap() >= median, "one clock is unknown");
        assert!(past(&[all[0], all[2], None]).unwrap() > 1_000_000);
        assert_eq!(past(&[all[0], None, None]), None);
    }
}
