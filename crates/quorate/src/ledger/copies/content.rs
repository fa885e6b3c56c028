//! The content of one copy, and that of several copies together. A ledger may have some hundred thousand records, and a new
//! leader goes through all of all copies before it leads. So both are in the order of their keys, and are gone through side by
//! side, without a search for each key.

use crate::node::{
    Record,
    copy::{AssignmentId, HEADER_KEY, Header, RegisterRow, Stamp, is_key, run_of_register},
};
use std::{cmp::Ordering, collections::BTreeMap, iter, sync::Arc};

/// A record of a led ledger, without the stamp of the write that stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Arc<str>,
    /// The assignment that the record is, if it is one.
    pub assignment: Option<AssignmentId>,
}

/// The content of a node's copy, as the node returned it when a leader sealed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The header after the seal.
    pub header: Header,
    /// The records with their stamps, by key.
    pub records: BTreeMap<Arc<str>, (Stamp, Entry)>,
}

impl Content {
    /// Reads the records of a copy. Returns `None` if the header is missing or cannot be read.
    pub fn of(records: impl IntoIterator<Item = (Arc<str>, Record)>) -> Option<Self> {
        let (mut header, mut assignments, mut stored) = (None, BTreeMap::new(), Vec::new());
        for (key, record) in records {
            if is_key(&key) {
                let entry = Entry { value: Arc::clone(&record.value), assignment: None };
                stored.push((key, (Stamp::of(&record), entry)));
            } else if let Some(run) = run_of_register(&key) {
                assignments
                    .extend(RegisterRow::of_record(&record).map(|row| (Arc::<str>::from(run), row.id)));
            } else if *key == *HEADER_KEY {
                header = Header::of_record(&record);
            }
        }
        let mut records: BTreeMap<_, _> = stored.into_iter().collect();
        for (run, id) in assignments {
            if let Some((_, entry)) = records.get_mut(&run) {
                entry.assignment = Some(id);
            }
        }
        Some(Self { header: header?, records })
    }
}

/// Merges the contents of copies: of each key, the record with the latest stamp.
pub(super) fn merge<'a>(contents: impl Iterator<Item = &'a Content>) -> BTreeMap<Arc<str>, Entry> {
    let mut merged: Vec<(&Arc<str>, &(Stamp, Entry))> = Vec::new();
    for content in contents {
        let both = side_by_side(merged.into_iter(), content.records.iter());
        merged = both.filter_map(|(key, known, found)| Some((key, later(known, found)?))).collect();
    }
    merged.into_iter().map(|(key, (_, entry))| (Arc::clone(key), entry.clone())).collect()
}

/// Returns the record with the later stamp, and of two that are equally late the first.
fn later<'a>(one: Option<&'a (Stamp, Entry)>, two: Option<&'a (Stamp, Entry)>) -> Option<&'a (Stamp, Entry)> {
    two.filter(|two| one.is_none_or(|one| two.0 > one.0)).or(one)
}

/// Returns the keys under which a copy differs from the map of its leader.
pub(super) fn differences(map: &BTreeMap<Arc<str>, Entry>, content: &Content) -> Vec<Arc<str>> {
    let stored = content.records.iter().map(|(key, (_, entry))| (key, entry));
    let all = side_by_side(map.iter(), stored);
    all.filter(|(_, wanted, stored)| wanted != stored).map(|(key, ..)| Arc::clone(key)).collect()
}

/// Returns each key of two sequences, which are in the order of their keys, with the value that each one has.
fn side_by_side<'a, A, B>(
    one: impl Iterator<Item = (&'a Arc<str>, A)>,
    two: impl Iterator<Item = (&'a Arc<str>, B)>,
) -> impl Iterator<Item = (&'a Arc<str>, Option<A>, Option<B>)> {
    let (mut one, mut two) = (one.peekable(), two.peekable());
    iter::from_fn(move || {
        let order = match (one.peek(), two.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let a = if order.is_le() { one.next() } else { None };
        let b = if order.is_ge() { two.next() } else { None };
        let key = a.as_ref().map(|(key, _)| *key).or(b.as_ref().map(|(key, _)| *key))?;
        Some((key, a.map(|(_, value)| value), b.map(|(_, value)| value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{
        FencingToken, Incarnation,
        copy::{Seal, register_key},
    };

    fn content(records: &[(&str, u64, u64, &str)]) -> Content {
        let mut header = Header::empty(Incarnation::from_number(1));
        assert!(header.seal(Seal { term: FencingToken::new(9), leader: 1 }).is_ok());
        let record = |&(key, term, at, value): &(&str, u64, u64, &str)| {
            (Arc::from(key), Record { at, term: FencingToken::new(term), last: false, value: value.into() })
        };
        let header = (HEADER_KEY.into(), header.to_record().unwrap());
        Content::of(records.iter().map(record).chain([header])).unwrap()
    }

    #[test]
    fn of_each_key_the_record_with_the_latest_stamp_counts() {
        let one = content(&[("a", 2, 9, "old"), ("b", 2, 1, "x"), ("c", 2, 4, "y")]);
        let two = content(&[("a", 3, 1, "new"), ("b", 2, 1, "x"), ("c", 2, 3, "z")]);
        let merged = merge([&one, &two].into_iter());
        let values: Vec<_> = merged.iter().map(|(key, entry)| (&**key, &*entry.value)).collect();
        assert_eq!(values, [("a", "new"), ("b", "x"), ("c", "y")]);
        let keys = |content| differences(&merged, content);
        assert_eq!((keys(&one), keys(&two)), (vec!["a".into()], vec!["c".into()]));
        assert_eq!(
            keys(&content(&[("b", 1, 1, "x"), ("d", 9, 9, "")])),
            ["a", "c", "d"].map(Arc::<str>::from)
        );
    }

    #[test]
    fn an_assignment_is_read_from_its_register_and_a_copy_needs_a_header() {
        let id = Stamp { term: FencingToken::new(2), seq: 7 };
        let row = RegisterRow { id, memory: Incarnation::from_number(1), register: None };
        let record = Record { at: 7, term: FencingToken::new(2), last: false, value: "w".into() };
        let mut header = Header::empty(Incarnation::from_number(1));
        assert!(header.seal(Seal { term: FencingToken::new(9), leader: 1 }).is_ok());
        let mut stored = vec![("run".into(), record), (register_key("run"), row.to_record())];
        assert_eq!(Content::of(stored.clone()), None);
        stored.push((HEADER_KEY.into(), header.to_record().unwrap()));
        let content = Content::of(stored).unwrap();
        assert_eq!(content.records.len(), 1);
        assert_eq!(content.records["run"].1.assignment, Some(id));
    }
}
