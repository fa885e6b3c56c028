use crate::node::{
    Record,
    copy::{AssignmentId, HEADER_KEY, Header, RegisterRow, Stamp, is_key, register_key},
};
use std::{collections::BTreeMap, sync::Arc};

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
        let stored: BTreeMap<Arc<str>, Record> = records.into_iter().collect();
        let header = Header::of_record(stored.get(HEADER_KEY)?)?;
        let assignment = |key: &str| Some(RegisterRow::of_record(stored.get(&register_key(key))?)?.id);
        let entry = |(key, record): (&Arc<str>, &Record)| {
            let entry = Entry { value: Arc::clone(&record.value), assignment: assignment(key) };
            (Arc::clone(key), (Stamp::of(record), entry))
        };
        let records = stored.iter().filter(|(key, _)| is_key(key)).map(entry).collect();
        Some(Self { header, records })
    }
}

/// Merges the contents of copies: of each key, the record with the latest stamp.
pub(super) fn merge<'a>(contents: impl Iterator<Item = &'a Content>) -> BTreeMap<Arc<str>, Entry> {
    let mut merged: BTreeMap<Arc<str>, (Stamp, Entry)> = BTreeMap::new();
    for (key, found) in contents.flat_map(|content| &content.records) {
        let is_later = merged.get(key).is_none_or(|known| found.0 > known.0);
        if is_later {
            merged.insert(Arc::clone(key), found.clone());
        }
    }
    merged.into_iter().map(|(key, (_, entry))| (key, entry)).collect()
}

/// Returns the keys under which a copy differs from the map of its leader.
pub(super) fn differences(map: &BTreeMap<Arc<str>, Entry>, content: &Content) -> Vec<Arc<str>> {
    let stored = |key: &Arc<str>| content.records.get(key).map(|(_, entry)| entry);
    let extra = content.records.keys().filter(|key| !map.contains_key(*key));
    let other = map.iter().filter(|(key, entry)| stored(key) != Some(*entry)).map(|(key, _)| key);
    extra.chain(other).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{FencingToken, Incarnation, copy::Seal};

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
            ["d", "a", "c"].map(Arc::<str>::from)
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
