//! The quorum's clock: what the clocks of a majority of the nodes show, whatever our own wall clock says.
//!
//! # What is not guaranteed
//!
//! It is as good as the clocks of a majority of the nodes, and somewhat behind them: by the way back of a reply. It may
//! step back, when a reply tells less of a node's clock than the one before it did, or when a node's clock was set
//! back: whoever must not go back keeps a mark of its own. Between replies our boot clock carries it; where that
//! stood still (a virtual machine that was paused), it is behind until a majority has answered again.

use crate::{
    config::majority,
    env::{BootTime, WallTime},
    trust::clock_offset::ClockOffset,
};

/// The latest time that the clocks of a majority of the nodes have certainly reached when our boot clock shows
/// `now`; `None` where fewer have been heard. Of three clocks that have all been heard it is the median.
///
/// `heard` has an entry a node. A node that has not been heard has reached nothing, so that a minority whose
/// clocks are ahead never decides, nor one whose clocks are behind while all others are heard.
pub(crate) fn most_have_reached(
    now: BootTime,
    drift_rate: f64,
    heard: impl IntoIterator<Item = Option<ClockOffset>>,
) -> Option<WallTime> {
    let shows = |offset: ClockOffset| offset.carried_to(now, drift_rate);
    let mut shown: Vec<_> = heard.into_iter().map(|offset| offset.map(shows)).collect();
    // The latest first; who was not heard last.
    shown.sort_unstable_by(|one, other| other.cmp(one));
    let time = shown.get(majority(shown.len()) - 1).copied().flatten()?;
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

    /// A node whose clock is `ahead` ms ahead of our boot clock, as a reply said that took 1 ms and came at `at`.
    fn heard(ahead: u64, at: u64) -> Option<ClockOffset> {
        Some(ClockOffset::sample(NodeTime::from_micros((at + ahead) * 1_000), ms(at - 1), ms(at)))
    }

    /// What the quorum's clock shows at 2 s, in ms after the hour.
    fn shows(nodes: &[Option<ClockOffset>]) -> Option<i64> {
        let wall = most_have_reached(ms(2_000), RATE, nodes.iter().copied())?;
        Some((i64::try_from(wall.as_micros()).unwrap() + 1).div_euclid(1_000) - i64::try_from(HOUR).unwrap())
    }

    #[test]
    fn it_is_the_median_of_those_that_were_heard_and_never_ahead_of_a_majority() {
        let node = |ahead: u64| heard(HOUR + ahead, 1_000);
        assert_eq!(shows(&[node(0), node(300), node(700)]), Some(2_300), "the median");
        assert_eq!(shows(&[node(9 * HOUR), node(300), node(0)]), Some(2_300), "one that is far ahead");
        assert_eq!(shows(&[heard(1, 1_000), node(300), node(400)]), Some(2_300), "one that is far behind");
        assert_eq!(shows(&[node(700), None, node(300)]), Some(2_300), "of two the earlier");
        assert_eq!(shows(&[node(700), None, None]), None, "one is no majority");
        assert_eq!(shows(&[node(700)]), Some(2_700), "of one it is");
        let five = [node(9 * HOUR), node(8 * HOUR), node(10), node(20), node(30)];
        assert_eq!(shows(&five), Some(2_030), "two of five are ahead");
        assert_eq!(shows(&[five[0], five[1], five[2], None, None]), Some(2_010));
        assert_eq!(shows(&[node(1), node(2), node(3), node(4)]), Some(2_002), "of four the third latest");
        assert_eq!(shows(&[]), None);
    }

    #[test]
    fn it_goes_on_with_the_boot_clock_and_what_is_old_counts_less() {
        let at = |now: u64| most_have_reached(ms(now), RATE, [heard(HOUR, 1_000)]).unwrap().as_micros() + 1;
        assert_eq!(at(1_000), (HOUR + 1_000) * 1_000);
        assert_eq!(at(11_000), (HOUR + 11_000) * 1_000);
        assert_eq!(at(111_000), (HOUR + 111_000 - 1_000) * 1_000, "100 s too old, at 1 %");
    }

    /// Whatever was heard when: a majority of the clocks shows no less, by what each of them truly shows.
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
            let wall = most_have_reached(ms(now), RATE, heard);
            assert_eq!(wall.is_some(), known >= majority(nodes));
            let Some(wall) = wall else { continue };
            let reached = truth.iter().filter(|ahead| (now + *ahead) * 1_000 >= wall.as_micros());
            assert!(reached.count() >= majority(nodes), "{truth:?}: {wall:?}");
        }
    }
}
