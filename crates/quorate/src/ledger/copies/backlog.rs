//! The writes that one node lacks.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::Arc,
};

/// The largest number of requests to one node that wait for their answers. Urgent ones are sent in any case.
pub(super) const WINDOW: usize = 256;

/// The writes that a node lacks, each by the key of its record, and the removals, each by its number.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    lacks: BTreeMap<Arc<str>, Lack>,
    removals: BTreeMap<u64, Removal>,
    /// What to send, in order. Something may be here that the node no longer lacks.
    urgent: VecDeque<Arc<str>>,
    unsent: VecDeque<Item>,
    in_flight: usize,
}

/// A write that a node needs.
#[derive(Clone, Copy, Debug)]
struct Lack {
    seq: u64,
    is_urgent: bool,
    is_sent: bool,
}

/// Records that a node must remove.
#[derive(Debug)]
struct Removal {
    keys: Arc<[Arc<str>]>,
    is_sent: bool,
}

#[derive(Debug)]
enum Item {
    Write(Arc<str>),
    Removal(u64),
}

/// The next request to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The write `seq` of the record under `key`.
    Write { key: Arc<str>, seq: u64 },
    /// The removal of records under the number `seq`.
    Removal { keys: Arc<[Arc<str>]>, seq: u64 },
}

impl Backlog {
    /// Returns the number of records that differ on the node.
    pub(super) fn len(&self) -> usize {
        self.lacks.len() + self.removals.values().map(|removal| removal.keys.len()).sum::<usize>()
    }

    /// Returns whether the node has all that it should.
    pub(super) fn is_empty(&self) -> bool {
        self.lacks.is_empty() && self.removals.is_empty()
    }

    /// Returns whether the node lacks the last write of `key`.
    pub(super) fn lacks(&self, key: &str) -> bool {
        self.lacks.contains_key(key)
    }

    /// Notes that the node lacks the write `seq` of `key`.
    pub(super) fn add(&mut self, key: &Arc<str>, seq: u64, is_urgent: bool) {
        self.lacks.insert(Arc::clone(key), Lack { seq, is_urgent, is_sent: false });
        if is_urgent {
            self.urgent.push_back(Arc::clone(key));
        } else {
            self.unsent.push_back(Item::Write(Arc::clone(key)));
        }
    }

    /// Notes that the node must remove the records under `keys`. It needs no earlier write of them any more: if one comes
    /// later, the node knows by its number that the record may have been removed.
    pub(super) fn remove(&mut self, keys: &Arc<[Arc<str>]>, seq: u64) {
        for key in &**keys {
            self.lacks.remove(key);
        }
        self.removals.insert(seq, Removal { keys: Arc::clone(keys), is_sent: false });
        self.unsent.push_back(Item::Removal(seq));
    }

    /// Returns the next request to send.
    pub(super) fn send(&mut self) -> Option<Next> {
        loop {
            let has_room = self.in_flight < WINDOW;
            let unsent = || if has_room { self.unsent.pop_front() } else { None };
            let next = match self.urgent.pop_front().map(Item::Write).or_else(unsent)? {
                Item::Write(key) => self.lacks.get_mut(&key).filter(|lack| !lack.is_sent).map(|lack| {
                    lack.is_sent = true;
                    Next::Write { key, seq: lack.seq }
                }),
                Item::Removal(seq) => {
                    self.removals.get_mut(&seq).filter(|removal| !removal.is_sent).map(|removal| {
                        removal.is_sent = true;
                        Next::Removal { keys: Arc::clone(&removal.keys), seq }
                    })
                }
            };
            if next.is_some() {
                self.in_flight += 1;
                return next;
            }
        }
    }

    /// Notes that a request has been answered, or never will be.
    pub(super) fn answered(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
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

    /// Notes that the node has carried out the removal `seq`.
    pub(super) fn removed(&mut self, seq: u64) {
        self.removals.remove(&seq);
    }

    /// Sends the write `seq` of `key` again later, if it is still the last one.
    pub(super) fn failed(&mut self, key: &Arc<str>, seq: u64) {
        if self.is_of(key, seq)
            && let Some(lack) = self.lacks.get(key)
        {
            self.add(key, seq, lack.is_urgent);
        }
    }

    /// Sends the removal `seq` again later.
    pub(super) fn removal_failed(&mut self, seq: u64) {
        if let Some(removal) = self.removals.get_mut(&seq) {
            removal.is_sent = false;
            self.unsent.push_back(Item::Removal(seq));
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

    fn sent(backlog: &mut Backlog) -> Vec<Next> {
        std::iter::from_fn(|| backlog.send()).collect()
    }

    fn write(key: &str, seq: u64) -> Next {
        Next::Write { key: key.into(), seq }
    }

    #[test]
    fn a_write_that_failed_is_sent_again_and_no_other() {
        let mut backlog = Backlog::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        backlog.add(&a, 1, true);
        backlog.add(&b, 2, true);
        assert_eq!(sent(&mut backlog), [write("a", 1), write("b", 2)]);
        backlog.answered();
        backlog.failed(&a, 1);
        assert_eq!(sent(&mut backlog), [write("a", 1)]);
        backlog.add(&a, 3, true);
        backlog.answered();
        backlog.failed(&a, 1);
        assert_eq!(sent(&mut backlog), [write("a", 3)], "only the last write of a record is sent");
        assert!(!backlog.written(&a, 1) && backlog.written(&a, 3) && backlog.written(&b, 2));
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_removal_takes_the_place_of_earlier_writes_and_leaves_later_ones() {
        let mut backlog = Backlog::default();
        let keys: Arc<[Arc<str>]> = ["a".into(), "b".into()].into();
        backlog.add(&keys[0], 1, true);
        assert_eq!(sent(&mut backlog), [write("a", 1)]);
        backlog.remove(&keys, 2);
        assert!(!backlog.written(&keys[0], 1), "it is no longer the last one");
        backlog.add(&keys[0], 3, true);
        assert_eq!((backlog.len(), backlog.is_empty()), (3, false));
        let removal = Next::Removal { keys: Arc::clone(&keys), seq: 2 };
        assert_eq!(sent(&mut backlog), [write("a", 3), removal.clone()]);
        backlog.removal_failed(2);
        assert_eq!(sent(&mut backlog), [removal]);
        backlog.removed(2);
        backlog.removal_failed(2);
        assert!(sent(&mut backlog).is_empty() && backlog.lacks("a") && !backlog.lacks("b"));
        assert!(backlog.written(&keys[0], 3) && backlog.is_empty());
    }

    #[test]
    fn urgent_writes_go_first_and_beside_a_full_window() {
        let mut backlog = Backlog::default();
        let key = |number: u64| format!("k{number:04}").into();
        (0..600).for_each(|number| backlog.add(&key(number), number, false));
        assert_eq!(sent(&mut backlog).len(), WINDOW);
        backlog.add(&"urgent".into(), 600, true);
        assert_eq!(sent(&mut backlog), [write("urgent", 600)]);
        (0..2).for_each(|_| backlog.answered());
        assert_eq!(sent(&mut backlog).len(), 1);
    }
}
