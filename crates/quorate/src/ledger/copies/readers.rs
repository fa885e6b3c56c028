//! Which copies a new leader reads first.

use crate::{env::BootTime, node::Cursor};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

/// The nodes whose copies a new leader reads beyond the first page. A majority is enough for a takeover, and the pages of the
/// other nodes would only delay it. They are held back until the leader has taken over, until the copy of a reader turns out to
/// be of no use, or until the readers take long.
#[derive(Debug)]
pub(super) struct Readers {
    majority: usize,
    /// The nodes whose copies are read on, or have been read whole.
    nodes: BTreeSet<usize>,
    /// The next page of each other node.
    held: BTreeMap<usize, Cursor>,
    /// True until the leader has taken over.
    holds_back: bool,
    /// A page has come since the last look, or the leader has decided.
    has_moved: bool,
    began: BootTime,
    /// The time that the first copy took.
    first_took: Option<Duration>,
}

/// Pages to ask for now, each with its node.
type ToAsk = Vec<(usize, Cursor)>;

impl Readers {
    pub(super) fn new(majority: usize, began: BootTime) -> Self {
        let (nodes, held) = (BTreeSet::new(), BTreeMap::new());
        Self { majority, nodes, held, holds_back: true, has_moved: false, began, first_took: None }
    }

    /// Notes that `node` is read from its first page on, or that its copy cannot be read or does not count, as that of a node
    /// that has forgotten. If it was a reader, another node takes its place.
    #[must_use]
    pub(super) fn leaves(&mut self, node: usize) -> ToAsk {
        self.nodes.remove(&node);
        self.held.remove(&node);
        let mut places = ToAsk::new();
        while self.nodes.len() < self.majority
            && let Some(place) = self.held.pop_first()
        {
            self.nodes.insert(place.0);
            places.push(place);
        }
        places
    }

    /// Notes that a page of `node` has come, and that `next` is the next one. Returns the page to ask for now.
    pub(super) fn next(&mut self, node: usize, next: Cursor) -> Option<Cursor> {
        self.has_moved = true;
        if self.holds_back && !self.nodes.contains(&node) && self.nodes.len() >= self.majority {
            self.held.insert(node, next);
            return None;
        }
        self.nodes.insert(node);
        Some(next)
    }

    /// Notes that the last page of `node`, whose copy counts, has come.
    pub(super) fn complete(&mut self, node: usize, now: BootTime) {
        self.has_moved = true;
        self.nodes.insert(node);
        self.first_took.get_or_insert(self.began.until(now));
    }

    /// Notes that the leader has decided. It marks the nodes next.
    pub(super) fn decided(&mut self) {
        self.has_moved = true;
    }

    /// Returns all pages that were held back, if nothing has moved since the last look, or if the readers take twice as long as
    /// the first of them.
    #[must_use]
    pub(super) fn look(&mut self, now: BootTime) -> ToAsk {
        let is_late = self.first_took.is_some_and(|took| self.began.until(now) > took * 2);
        if mem::take(&mut self.has_moved) && !is_late { ToAsk::new() } else { self.all() }
    }

    /// Holds back no page from now on, and returns those that were: the leader has taken over.
    #[must_use]
    pub(super) fn lead(&mut self) -> ToAsk {
        self.holds_back = false;
        self.all()
    }

    fn all(&mut self) -> ToAsk {
        self.nodes.extend(self.held.keys());
        mem::take(&mut self.held).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: usize) -> Cursor {
        Cursor::new(number.to_string())
    }

    fn ms(ms: u64) -> BootTime {
        BootTime::default() + Duration::from_millis(ms)
    }

    /// Returns the readers of five nodes, each of which has returned its first page.
    fn begun() -> Readers {
        let mut readers = Readers::new(3, ms(0));
        let asked: Vec<bool> = (0..5).map(|node| readers.next(node, page(1)).is_some()).collect();
        assert_eq!(asked, [true, true, true, false, false]);
        readers
    }

    #[test]
    fn the_first_majority_is_read_and_the_others_once_the_leader_leads() {
        let mut readers = begun();
        assert_eq!(readers.next(1, page(2)), Some(page(2)));
        assert!(readers.look(ms(50)).is_empty(), "pages have come");
        readers.complete(0, ms(70));
        assert!(readers.look(ms(100)).is_empty());
        readers.decided();
        assert!(readers.look(ms(140)).is_empty());
        assert_eq!(readers.lead(), [(3, page(1)), (4, page(1))]);
        assert_eq!(readers.next(3, page(2)), Some(page(2)));
        assert!(readers.lead().is_empty());
    }

    #[test]
    fn all_are_read_if_no_page_comes_or_a_reader_is_much_slower_than_another() {
        let mut readers = begun();
        assert!(readers.look(ms(50)).is_empty());
        assert_eq!(readers.look(ms(100)), [(3, page(1)), (4, page(1))]);
        assert_eq!(readers.next(4, page(2)), Some(page(2)), "it goes on");
        let mut readers = begun();
        readers.complete(0, ms(400));
        assert!(readers.look(ms(400)).is_empty());
        assert_eq!(readers.next(1, page(2)), Some(page(2)));
        assert!(readers.look(ms(800)).is_empty());
        assert_eq!(readers.next(1, page(3)), Some(page(3)));
        assert_eq!(readers.look(ms(850)).len(), 2);
    }

    #[test]
    fn another_node_takes_the_place_of_a_reader_whose_copy_is_of_no_use() {
        let mut readers = Readers::new(3, ms(0));
        assert!(readers.leaves(0).is_empty(), "it has forgotten, or did not answer");
        let asked: Vec<bool> = (1..5).map(|node| readers.next(node, page(1)).is_some()).collect();
        assert_eq!(asked, [true, true, true, false]);
        assert!(readers.leaves(0).is_empty(), "it was no reader");
        assert_eq!(readers.leaves(2), [(4, page(1))]);
        assert_eq!(readers.next(4, page(2)), Some(page(2)));
        assert_eq!(readers.next(2, page(1)), None, "it is read again");
        assert!(readers.leaves(2).is_empty());
        assert!(readers.look(ms(0)).is_empty() && readers.look(ms(1)).is_empty(), "nothing is held");
    }
}
