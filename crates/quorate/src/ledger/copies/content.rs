//! The content of one copy, and that of several copies together. A ledger may have some hundred thousand records, and a new
//! leader goes through all of all copies before it leads. So both are in one order, and are gone through side by side,
//! without a search for each key.

use crate::node::{
    Record,
    copy::{AssignmentId, HEADER_KEY, Header, RegisterRow, Stamp, is_key, run_of_register},
};
use std::{
    cmp::Ordering,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    iter,
    sync::Arc,
};

/// A record of a led ledger, without the stamp of the write that stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Arc<str>,
    /// The assignment that the record is, if it is one.
    pub assignment: Option<AssignmentId>,
}

/// The key of a record, in the order of the hashes of the keys. Most comparisons end with the hashes. Keys in the order of
/// their texts have long common beginnings, and each comparison would read two texts from memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    hash: u64,
    text: Arc<str>,
}

impl Key {
    /// Returns the text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}

impl From<&Arc<str>> for Key {
    fn from(text: &Arc<str>) -> Self {
        // The same in each run: without a key of its own.
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { hash: hasher.finish(), text: Arc::clone(text) }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::from(&Arc::from(text))
    }
}

/// The records of a ledger, by key.
pub type Records = BTreeMap<Key, Entry>;

/// The content of a node's copy, as the node returned it when a leader sealed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The header after the seal.
    pub header: Header,
    /// The records with their stamps, in the order of their keys.
    records: Vec<(Key, (Stamp, Entry))>,
}

impl Content {
    /// Reads the records of a copy. Of a record that came twice, the second counts. Returns `None` if the header is missing or
    /// cannot be read.
    pub fn of(records: impl IntoIterator<Item = (Arc<str>, Record)>) -> Option<Self> {
        let (mut header, mut assignments, mut stored) = (None, Vec::new(), Vec::new());
        for (key, record) in records {
            if is_key(&key) {
                let entry = Entry { value: Arc::clone(&record.value), assignment: None };
                stored.push((Key::from(&key), (Stamp::of(&record), entry)));
            } else if let Some(run) = run_of_register(&key) {
                assignments.extend(RegisterRow::of_record(&record).map(|row| (Key::from(run), row.id)));
            } else if *key == *HEADER_KEY {
                header = Header::of_record(&record);
            }
        }
        // HSCAN may return a record twice. The second copy is the same or newer.
        stored.reverse();
        stored.sort_by(|(one, _), (two, _)| one.cmp(two));
        stored.dedup_by(|(one, _), (two, _)| one == two);
        for (run, id) in assignments {
            if let Ok(at) = stored.binary_search_by(|(key, _)| key.cmp(&run)) {
                stored[at].1.1.assignment = Some(id);
            }
        }
        Some(Self { header: header?, records: stored })
    }
}

/// Merges the contents of copies: of each key, the record with the latest stamp.
pub(super) fn merge<'a>(contents: impl Iterator<Item = &'a Content>) -> Records {
    let mut merged: Vec<(&Key, &(Stamp, Entry))> = Vec::new();
    for content in contents {
        let records = content.records.iter().map(|(key, record)| (key, record));
        let both = side_by_side(merged.into_iter(), records);
        merged = both.filter_map(|(key, known, found)| Some((key, later(known, found)?))).collect();
    }
    merged.into_iter().map(|(key, (_, entry))| (key.clone(), entry.clone())).collect()
}

/// Returns the record with the later stamp, and of two that are equally late the first.
fn later<'a>(one: Option<&'a (Stamp, Entry)>, two: Option<&'a (Stamp, Entry)>) -> Option<&'a (Stamp, Entry)> {
    two.filter(|two| one.is_none_or(|one| two.0 > one.0)).or(one)
}

/// Returns the keys under which a copy differs from the map of its leader.
pub(super) fn differences(map: &Records, content: &Content) -> Vec<Arc<str>> {
    let stored = content.records.iter().map(|(key, (_, entry))| (key, entry));
    let all = side_by_side(map.iter(), stored);
    all.filter(|(_, wanted, stored)| wanted != stored).map(|(key, ..)| Arc::clone(key.text())).collect()
}

/// Returns each key of two sequences, which are in the order of their keys, with the value that each one has.
fn side_by_side<'a, A, B>(
    one: impl Iterator<Item = (&'a Key, A)>,
    two: impl Iterator<Item = (&'a Key, B)>,
) -> impl Iterator<Item = (&'a Key, Option<A>, Option<B>)> {
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

    fn value<'a>(content: &'a Content, key: &str) -> Option<&'a str> {
        let mut found = content.records.iter().filter(|(stored, _)| **stored.text() == *key);
        found.next().map(|(_, (_, entry))| &*entry.value)
    }

    #[test]
    fn of_each_key_the_record_with_the_latest_stamp_counts() {
        let one = content(&[("a", 2, 9, "old"), ("b", 2, 1, "x"), ("c", 2, 4, "y")]);
        let two = content(&[("a", 3, 1, "new"), ("b", 2, 1, "x"), ("c", 2, 3, "z")]);
        let merged = merge([&one, &two].into_iter());
        let values: BTreeMap<_, _> =
            merged.iter().map(|(key, entry)| (&**key.text(), &*entry.value)).collect();
        assert_eq!(values, [("a", "new"), ("b", "x"), ("c", "y")].into());
        let keys = |content| {
            let mut keys = differences(&merged, content);
            keys.sort();
            keys
        };
        assert_eq!((keys(&one), keys(&two)), (vec!["a".into()], vec!["c".into()]));
        assert_eq!(
            keys(&content(&[("b", 1, 1, "x"), ("d", 9, 9, "")])),
            ["a", "c", "d"].map(Arc::<str>::from)
        );
        let twice = content(&[("a", 2, 1, "first"), ("b", 2, 2, "x"), ("a", 2, 3, "second")]);
        assert_eq!(value(&twice, "a"), Some("second"));
        assert_eq!(twice.records.len(), 2);
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
        assert_eq!(content.records[0].1.1.assignment, Some(id));
    }
}
