//! The writes that one node lacks.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::Arc,
};

/// The largest number of writes to one node that wait for their answers. Urgent ones are sent in any case.
pub(super) const WINDOW: usize = 256;

/// The writes that a node lacks, each by the key of its record.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    lacks: BTreeMap<Arc<str>, Lack>,
    /// The keys to send, in order. A key may be here that the node no longer lacks.
    urgent: VecDeque<Arc<str>>,
    unsent: VecDeque<Arc<str>>,
    in_flight: usize,
}

/// A write that a node needs.
#[derive(Clone, Copy, Debug)]
struct Lack {
    seq: u64,
    is_urgent: bool,
    is_sent: bool,
}

impl Backlog {
    /// Returns the number of records that the node lacks.
    pub(super) fn len(&self) -> usize {
        self.lacks.len()
    }

    /// Returns whether the node lacks the last write of `key`.
    pub(super) fn lacks(&self, key: &str) -> bool {
        self.lacks.contains_key(key)
    }

    /// Notes that the node lacks the write `seq` of `key`.
    pub(super) fn add(&mut self, key: &Arc<str>, seq: u64, is_urgent: bool) {
        self.lacks.insert(Arc::clone(key), Lack { seq, is_urgent, is_sent: false });
        let queue = if is_urgent { &mut self.urgent } else { &mut self.unsent };
        queue.push_back(Arc::clone(key));
    }

    /// Returns the next write to send, with its number.
    pub(super) fn send(&mut self) -> Option<(Arc<str>, u64)> {
        loop {
            let has_room = self.in_flight < WINDOW;
            let next =
                self.urgent.pop_front().or_else(|| if has_room { self.unsent.pop_front() } else { None });
            let key = next?;
            if let Some(lack) = self.lacks.get_mut(&key).filter(|lack| !lack.is_sent) {
                lack.is_sent = true;
                self.in_flight += 1;
                return Some((key, lack.seq));
            }
        }
    }

    /// Notes that so many writes have been answered, or never will be.
    pub(super) fn answered(&mut self, writes: usize) {
        self.in_flight = self.in_flight.saturating_sub(writes);
    }

    /// Notes that the node has the write `seq` of `key`. Returns whether that is its last one.
    pub(super) fn written(&mut self, key: &Arc<str>, seq: u64) -> bool {
        let Entry::Occupied(lack) = self.lacks.entry(Arc::clone(key)) else { return false };
        let is_last = lack.get().seq == seq;
        if is_last {
            lack.remove();
        }
        is_last
    }

    /// Sends the write `seq` of `key` again later, if it is still the last one.
    pub(super) fn failed(&mut self, key: &Arc<str>, seq: u64) {
        if self.is_of(key, seq)
            && let Some(lack) = self.lacks.get(key)
        {
            self.add(key, seq, lack.is_urgent);
        }
    }

    /// Sends the write of `key` under the number `seq` in place of `refused`, if that is still the last one.
    pub(super) fn renumber(&mut self, key: &Arc<str>, refused: u64, seq: u64) {
        if self.is_of(key, refused) {
            self.add(key, seq, true);
        }
    }

    fn is_of(&self, key: &str, seq: u64) -> bool {
        self.lacks.get(key).is_some_and(|lack| lack.seq == seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(backlog: &mut Backlog) -> Vec<(Arc<str>, u64)> {
        std::iter::from_fn(|| backlog.send()).collect()
    }

    #[test]
    fn a_write_that_failed_is_sent_again_and_no_other() {
        let mut backlog = Backlog::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        backlog.add(&a, 1, true);
        backlog.add(&b, 2, true);
        assert_eq!(sent(&mut backlog), [(a.clone(), 1), (b.clone(), 2)]);
        backlog.answered(1);
        backlog.failed(&a, 1);
        assert_eq!(sent(&mut backlog), [(a.clone(), 1)]);
        backlog.add(&a, 3, true);
        backlog.answered(1);
        backlog.failed(&a, 1);
        assert_eq!(sent(&mut backlog), [(a.clone(), 3)], "only the last write of a record is sent");
        assert!(!backlog.written(&a, 1) && backlog.written(&a, 3) && backlog.written(&b, 2));
        assert_eq!(backlog.len(), 0);
    }

    #[test]
    fn urgent_writes_go_first_and_beside_a_full_window() {
        let mut backlog = Backlog::default();
        let key = |number: u64| format!("k{number:04}").into();
        (0..600).for_each(|number| backlog.add(&key(number), number, false));
        assert_eq!(sent(&mut backlog).len(), WINDOW);
        backlog.add(&"urgent".into(), 600, true);
        assert_eq!(sent(&mut backlog), [("urgent".into(), 600)]);
        backlog.answered(2);
        assert_eq!(sent(&mut backlog).len(), 1);
    }
}
