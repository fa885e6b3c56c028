//! The extensions that the nodes have not answered yet, and the leases that wait for their turn.
//!
//! A request must be answered within the node timeout, and the wait behind other requests counts. If a worker has more leases
//! to extend at a time than a node answers in that time, all would time out, be sent again, and time out again. So for each
//! node the number of unanswered extensions is limited. As for a window of TCP (RFC 5681), the limit grows slowly while the
//! node answers, and is halved when it does not. Leases that wait here lose nothing: an extension is due after a third of
//! the TTL.

use crate::{config::majority, env::BootTime};
use std::{collections::BTreeSet, time::Duration};

/// The smallest, the first and the largest limit of a node's unanswered extensions. The largest one is three full batches.
const LIMITS: (usize, usize, usize) = (32, 256, 768);
/// The number of answers after which the limit grows by one.
const GROWS_AFTER: usize = 4;

/// The unanswered extensions of one worker.
#[derive(Debug)]
pub(super) struct Backlog {
    nodes: Vec<Node>,
    /// The limit of a node is halved at most once in this time.
    halves_every: Duration,
    /// The leases that wait, those that end first before the others.
    waiting: BTreeSet<(BootTime, u64)>,
}

#[derive(Clone, Debug)]
struct Node {
    unanswered: usize,
    limit: usize,
    /// The number of answers that count towards the next growth of the limit.
    answers: usize,
    halved_at: BootTime,
    /// True if its last answer was none.
    has_failed: bool,
}

impl Backlog {
    /// Creates an empty backlog for this many nodes, which answer within `node_timeout`.
    pub(super) fn new(nodes: usize, node_timeout: Duration) -> Self {
        let halved_at = BootTime::default();
        let node = Node { unanswered: 0, limit: LIMITS.1, answers: 0, halved_at, has_failed: false };
        Self { nodes: vec![node; nodes], halves_every: node_timeout, waiting: BTreeSet::new() }
    }

    /// Returns whether a lease may be extended that is valid until `until`: there is room, and none waits that ends earlier.
    pub(super) fn admits(&self, until: BootTime) -> bool {
        self.waiting.first().is_none_or(|(first, _)| until <= *first) && self.has_room()
    }

    /// Returns whether a majority of the nodes can answer soon. A node that failed to answer last is left out, if the others
    /// are a majority: it may have stopped, and fails at once or after the node timeout.
    fn has_room(&self) -> bool {
        let needed = majority(self.nodes.len());
        let answering = self.nodes.iter().filter(|node| !node.has_failed).count();
        let counts = |node: &&Node| answering < needed || !node.has_failed;
        let free = self.nodes.iter().filter(counts).filter(|node| node.unanswered < node.limit);
        free.count() >= needed
    }

    /// Notes that a node is asked to extend a lease.
    pub(super) fn asked(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.unanswered += 1;
        }
    }

    /// Notes that a node has answered for this many leases, or `failed` to.
    pub(super) fn answered(&mut self, node: usize, count: usize, failed: bool, now: BootTime) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        node.unanswered = node.unanswered.saturating_sub(count);
        node.has_failed = failed;
        if failed && node.halved_at + self.halves_every <= now {
            (node.limit, node.answers, node.halved_at) = ((node.limit / 2).max(LIMITS.0), 0, now);
        } else if !failed {
            node.answers += count;
            node.limit = (node.limit + node.answers / GROWS_AFTER).min(LIMITS.2);
            node.answers %= GROWS_AFTER;
        }
    }

    /// Lets a lease wait, which is valid until `until`.
    pub(super) fn wait(&mut self, until: BootTime, id: u64) {
        self.waiting.insert((until, id));
    }

    /// Lets a lease wait no longer.
    pub(super) fn forget(&mut self, until: BootTime, id: u64) {
        self.waiting.remove(&(until, id));
    }

    /// Removes and returns the lease whose turn it is, if there is room.
    pub(super) fn next(&mut self) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        self.waiting.pop_first().map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    fn ask(backlog: &mut Backlog, node: usize, times: usize) {
        (0..times).for_each(|_| backlog.asked(node));
    }

    #[test]
    fn leases_wait_while_a_majority_has_much_to_answer_and_the_first_to_end_comes_first() {
        let mut backlog = Backlog::new(3, 100 * MS);
        ask(&mut backlog, 0, LIMITS.1);
        assert!(backlog.admits(at(0)), "one node may have stopped");
        ask(&mut backlog, 2, LIMITS.1);
        assert!(!backlog.admits(at(0)));
        [(9, 1), (5, 2), (7, 3)].into_iter().for_each(|(until, id)| backlog.wait(at(until), id));
        assert_eq!(backlog.next(), None);
        backlog.forget(at(7), 3);
        backlog.answered(1, 1, true, at(1));
        backlog.answered(2, 1, false, at(1));
        assert!(!backlog.admits(at(0)), "the second node has failed, so the first one is needed");
        backlog.answered(1, 1, false, at(1));
        assert_eq!([5, 6].map(|until| backlog.admits(at(until))), [true, false]);
        assert_eq!([backlog.next(), backlog.next(), backlog.next()], [Some(2), Some(1), None]);
    }

    #[test]
    fn the_limit_of_a_node_grows_with_answers_and_is_halved_once_in_a_timeout() {
        let mut backlog = Backlog::new(1, 100 * MS);
        let limit = |backlog: &Backlog| backlog.nodes[0].limit;
        (0..GROWS_AFTER * 10).for_each(|_| backlog.answered(0, 1, false, at(200)));
        assert_eq!(limit(&backlog), LIMITS.1 + 10);
        [200, 200, 299].into_iter().for_each(|ms| backlog.answered(0, 1, true, at(ms)));
        assert_eq!(limit(&backlog), (LIMITS.1 + 10) / 2);
        (3..90).for_each(|step| backlog.answered(0, 1, true, at(step * 100)));
        assert_eq!(limit(&backlog), LIMITS.0);
        (0..GROWS_AFTER * LIMITS.2).for_each(|_| backlog.answered(0, 1, false, at(9_000)));
        assert_eq!(limit(&backlog), LIMITS.2);
    }
}
