//! The measured latency of the nodes. A round uses it to decide which nodes to ask first, and how long to
//! wait for their answers.

use crate::config::majority;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// The shortest time that a round waits for a node before the node counts as late.
const PATIENCE_MIN: Duration = Duration::from_millis(1);
/// The number of prompt replies in a row after which a late node counts as prompt again.
const PROMPT_AGAIN: u32 = 3;

/// The latency of each node, and whether it is asked before the others.
///
/// Safety does not depend on these values, because any majority may be asked first. So the atomics need no
/// ordering among each other.
#[derive(Debug)]
pub(crate) struct Latencies(Box<[NodeLatency]>);

/// The latency of one node: the smoothed round trip and its mean deviation, as TCP measures them (RFC 6298).
#[derive(Debug, Default)]
struct NodeLatency {
    /// The smoothed round trip, in nanoseconds. Zero before the first reply. Only the node's driver writes it.
    mean: AtomicU64,
    /// The mean deviation of the round trip, in nanoseconds. Only the node's driver writes it.
    deviation: AtomicU64,
    /// The number of prompt replies that a late node must still send until it counts as prompt again. Zero for
    /// a prompt node.
    late: AtomicU32,
    votes: AtomicBool,
}

impl Latencies {
    pub(crate) fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| NodeLatency::default()).collect())
    }

    /// Records the round trip of a reply. A node that has become far slower than a majority of the nodes counts
    /// as late. `most` is the upper limit of the time that a round waits for any node.
    pub(crate) fn observe(&self, node: usize, took: Duration, most: Duration) {
        let entry = &self.0[node];
        entry.add(took);
        let patience = self.patience(most);
        let missing = match entry.late.load(Ordering::Relaxed) {
            0 if entry.high().is_some_and(|high| high > patience) => PROMPT_AGAIN,
            0 => return,
            late if took <= patience => late - 1,
            _ => PROMPT_AGAIN,
        };
        entry.late.store(missing, Ordering::Relaxed);
        if missing == 0 {
            // The node is prompt again. Its measurements as a late node would give it too much time, so they
            // are dropped.
            entry.mean.store(0, Ordering::Relaxed);
            entry.add(took);
        }
    }

    pub(crate) fn set_votes(&self, node: usize, votes: bool) {
        self.0[node].votes.store(votes, Ordering::Relaxed);
    }

    /// Records that the node did not answer in time. Returns `true` if it counted as prompt before.
    pub(crate) fn mark_late(&self, node: usize) -> bool {
        self.0[node].late.swap(PROMPT_AGAIN, Ordering::Relaxed) == 0
    }

    pub(crate) fn is_late(&self, node: usize) -> bool {
        self.0[node].late.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the node is late, and its last reply was prompt.
    pub(crate) fn is_recovering(&self, node: usize) -> bool {
        (1..PROMPT_AGAIN).contains(&self.0[node].late.load(Ordering::Relaxed))
    }

    /// Returns the time within which the node answers nearly always. `None` before the first reply.
    pub(crate) fn high(&self, node: usize) -> Option<Duration> {
        self.0[node].high()
    }

    /// Returns the time for which a round waits for the nodes that it asked first. This time is twice the
    /// time within which a majority of the nodes nearly always answers, but at least [`PATIENCE_MIN`] and at
    /// most `most`.
    pub(crate) fn patience(&self, most: Duration) -> Duration {
        let high = |entry: &NodeLatency| entry.high().filter(|_| entry.votes.load(Ordering::Relaxed));
        let highs = || self.0.iter().filter_map(high);
        // Every acquire calls this function. There are few nodes, so they are compared in pairs, and no list is
        // allocated.
        let within =
            |time: &Duration| highs().filter(|other| other <= time).count() >= majority(self.0.len());
        highs().filter(within).min().map_or(most, |time| (time * 2).max(PATIENCE_MIN)).min(most)
    }

    /// Returns whether the node votes, and is not late.
    pub(crate) fn is_prompt(&self, node: usize) -> bool {
        self.0[node].votes.load(Ordering::Relaxed) && !self.is_late(node)
    }
}

impl NodeLatency {
    fn add(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let (mean, deviation) = (self.mean.load(Ordering::Relaxed), self.deviation.load(Ordering::Relaxed));
        let (mean, deviation) = match mean {
            0 => (took, took / 2),
            mean => (mean - mean / 8 + took / 8, deviation - deviation / 4 + mean.abs_diff(took) / 4),
        };
        self.mean.store(mean.max(1), Ordering::Relaxed);
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// Returns the time within which the node answers nearly always. `None` before the first reply.
    fn high(&self) -> Option<Duration> {
        let (mean, deviation) = (self.mean.load(Ordering::Relaxed), self.deviation.load(Ordering::Relaxed));
        (mean > 0).then(|| Duration::from_nanos(mean.saturating_add(deviation.saturating_mul(4))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(50);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the latencies of five nodes that vote. Each node has answered fifty times, always within its
    /// time in `times`.
    fn measured(times: [Duration; 5]) -> Latencies {
        let latencies = Latencies::new(5);
        for (node, time) in times.into_iter().enumerate() {
            latencies.set_votes(node, true);
            (0..50).for_each(|_| latencies.observe(node, time, MOST));
        }
        latencies
    }

    #[test]
    fn patience_follows_the_fastest_majority_within_bounds() {
        let quick = measured([Duration::from_micros(80); 5]);
        assert_eq!(quick.patience(MOST), ms(1));
        let two_far = measured([ms(2), ms(2), ms(2), ms(30), ms(30)]);
        let patience = two_far.patience(MOST);
        assert!(patience >= ms(4) && patience < ms(6), "{patience:?}");
        assert!(two_far.is_prompt(2) && !two_far.is_prompt(3), "the far nodes come last");
        assert_eq!(measured([ms(40); 5]).patience(MOST), MOST);
        assert_eq!(Latencies::new(5).patience(MOST), MOST, "nothing is known");
    }

    #[test]
    fn a_late_node_is_prompt_again_after_three_prompt_replies_in_a_row() {
        let nodes = measured([ms(1); 5]);
        assert!(nodes.mark_late(1) && !nodes.mark_late(1), "it is late already");
        for took in [1, 1, 20, 1, 1] {
            nodes.observe(1, ms(took), MOST);
            assert!(!nodes.is_prompt(1));
        }
        nodes.observe(1, ms(1), MOST);
        assert!(nodes.is_prompt(1));
        nodes.observe(1, ms(1), MOST);
        assert!(nodes.is_prompt(1), "the time when it was late is forgotten");
        nodes.set_votes(1, false);
        assert!(!nodes.is_prompt(1), "without a vote it is asked last");
    }
}
