use std::collections::BTreeMap;

/// The number of ids of one page.
const PAGE: u64 = 16;

/// A map from the ids of leases, ordered by id.
///
/// Ids are given in ascending order, so a page of consecutive ids is usually full. A worker with very many leases looks
/// them up for each vote, and finds the page with fewer accesses to memory than an entry of a B-tree of all ids.
#[derive(Debug)]
pub(crate) struct LeaseMap<T> {
    pages: BTreeMap<u64, Box<[Option<Box<T>>; PAGE as usize]>>,
}

impl<T> LeaseMap<T> {
    pub(crate) fn new() -> Self {
        Self { pages: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, id: u64, entry: Box<T>) {
        let page = self.pages.entry(id / PAGE).or_insert_with(|| Box::new([const { None }; PAGE as usize]));
        page[(id % PAGE) as usize] = Some(entry);
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.pages.get_mut(&(id / PAGE))?[(id % PAGE) as usize].as_deref_mut()
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Box<T>> {
        let page = self.pages.get_mut(&(id / PAGE))?;
        let entry = page[(id % PAGE) as usize].take()?;
        if page.iter().all(Option::is_none) {
            self.pages.remove(&(id / PAGE));
        }
        Some(entry)
    }

    /// Returns the ids, in ascending order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        let held = |(at, entry): (u64, &Option<Box<T>>)| entry.is_some().then_some(at);
        self.pages.iter().flat_map(move |(page, entries)| (page * PAGE..).zip(&**entries).filter_map(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_ids_and_ordered_by_them() {
        let mut leases = LeaseMap::new();
        let ids = [3, 0, 15, 16, 40, 1 << 40];
        for id in ids {
            leases.insert(id, Box::new(id));
        }
        assert_eq!(leases.ids().collect::<Vec<_>>(), [0, 3, 15, 16, 40, 1 << 40]);
        for id in ids {
            assert_eq!(leases.get_mut(id).copied(), Some(id));
        }
        for absent in [1, 17, 39, 1 << 41] {
            assert_eq!(leases.get_mut(absent), None);
            assert_eq!(leases.remove(absent), None);
        }
        for id in ids {
            assert_eq!(leases.remove(id), Some(Box::new(id)));
            assert_eq!(leases.remove(id), None);
        }
        assert!(leases.pages.is_empty(), "no empty page is kept");
    }
}
