//! The extensions that the nodes have not answered yet, and the leases that wait for their turn.

use crate::{config::majority, env::BootTime};
use std::collections::BTreeSet;

/// The number of unanswered extensions of a node from which on further leases wait. A request has the node timeout to be
/// answered, and the wait behind other requests counts. If a worker has more leases to extend at a time than the nodes can
/// answer in that time, all would time out, again and again. Leases that wait here lose nothing, as an extension is due
/// after a third of the TTL.
const UNANSWERED_MAX: usize = 768;

/// The unanswered extensions of one worker.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The number of unanswered extensions of each node.
    unanswered: Vec<usize>,
    /// The leases that wait, those that end first before the others.
    waiting: BTreeSet<(BootTime, u64)>,
}

impl Backlog {
    pub(super) fn new(nodes: usize) -> Self {
        Self { unanswered: vec![0; nodes], waiting: BTreeSet::new() }
    }

    /// Returns whether a lease may be extended that is valid until `until`: there is room, and none waits that ends earlier.
    pub(super) fn admits(&self, until: BootTime) -> bool {
        self.waiting.first().is_none_or(|(first, _)| until <= *first) && self.has_room()
    }

    /// Returns whether a majority of the nodes can answer soon. Others, which may have stopped, do not count.
    fn has_room(&self) -> bool {
        let free = self.unanswered.iter().filter(|count| **count < UNANSWERED_MAX).count();
        free >= majority(self.unanswered.len())
    }

    /// Notes that a node was asked.
    pub(super) fn asked(&mut self, node: usize) {
        if let Some(count) = self.unanswered.get_mut(node) {
            *count += 1;
        }
    }

    /// Notes that a node has answered.
    pub(super) fn answered(&mut self, node: usize) {
        if let Some(count) = self.unanswered.get_mut(node) {
            *count = count.saturating_sub(1);
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

    #[test]
    fn leases_wait_while_a_majority_has_much_to_answer() {
        let mut backlog = Backlog::new(3);
        let ask = |backlog: &mut Backlog, node| (0..UNANSWERED_MAX).for_each(|_| backlog.asked(node));
        ask(&mut backlog, 0);
        assert!(backlog.has_room(), "one node may have stopped");
        ask(&mut backlog, 2);
        assert!(!backlog.has_room());
        let at = BootTime::from_nanos;
        [(9, 1), (5, 2), (7, 3)].into_iter().for_each(|(until, id)| backlog.wait(at(until), id));
        assert_eq!(backlog.next(), None);
        backlog.forget(at(7), 3);
        backlog.answered(2);
        assert_eq!(
            [5, 6].map(|until| backlog.admits(at(until))),
            [true, false],
            "the first to end comes first"
        );
        assert_eq!([backlog.next(), backlog.next(), backlog.next()], [Some(2), Some(1), None]);
    }
}
