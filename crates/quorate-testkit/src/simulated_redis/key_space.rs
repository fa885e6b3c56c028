use std::{collections::BTreeMap, sync::Arc};

/// The longest value, and the largest number of fields, of a hash that a server stores packed. HSCAN returns such
/// a hash whole.
const PACKED_VALUE_MAX: usize = 64;
const PACKED_FIELDS_MAX: usize = 128;

/// A text of any bytes. Clones share it, so that a snapshot copies no text.
pub(super) type Bytes = Arc<[u8]>;

/// The keys of a server, with their values and the ends of their lifetimes.
///
/// A key whose lifetime has ended is removed when a command looks at it, as a server does. So it stays away even
/// if the clock steps back.
#[derive(Clone, Debug, Default)]
pub struct KeySpace {
    keys: BTreeMap<Bytes, Entry>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The last millisecond in which the key exists. `None` if the key never expires.
    pub(super) last_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    String(Bytes),
    Hash(Arc<Hash>),
    Sorted(Arc<SortedSet>),
}

impl Entry {
    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.last_ms.is_none_or(|last| now_ms <= last)
    }
}

impl KeySpace {
    /// Returns a live key, and removes the key if its lifetime has ended.
    pub(super) fn entry(&mut self, key: &[u8], now_ms: u64) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| !entry.is_live(now_ms)) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// Returns a live key, without removing anything.
    pub(super) fn look(&self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        self.keys.get(key).filter(|entry| entry.is_live(now_ms))
    }

    pub(super) fn set(&mut self, key: &[u8], value: Value, last_ms: Option<u64>) {
        match self.keys.get_mut(key) {
            Some(entry) => *entry = Entry { value, last_ms },
            None => drop(self.keys.insert(key.into(), Entry { value, last_ms })),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.keys.remove(key).is_some()
    }

    /// Removes all keys whose lifetime has ended.
    pub(super) fn sweep(&mut self, now_ms: u64) {
        self.keys.retain(|_, entry| entry.is_live(now_ms));
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    pub(super) fn live_keys(&self, now_ms: u64) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.keys.iter().filter(move |(_, entry)| entry.is_live(now_ms))
    }
}

/// A hash. The fields are in the order of a number that is derived from the field, which is the cursor of HSCAN.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hash {
    /// The fields with their values, by place. Two fields with one place are rare.
    fields: BTreeMap<u64, Vec<(Bytes, Bytes)>>,
    len: usize,
    /// True once the hash was too large to be packed. It stays so.
    unpacked: bool,
}

impl Hash {
    pub(super) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        let found = self.fields.get(&place(field))?;
        found.iter().find(|(name, _)| **name == *field).map(|(_, value)| value)
    }

    /// Sets a field, and returns `true` if it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let there = self.fields.entry(place(field)).or_default();
        let before = there.iter_mut().find(|(name, _)| **name == *field);
        let new = before.is_none();
        match before {
            Some((_, before)) => *before = value.into(),
            None => there.push((field.into(), value.into())),
        }
        self.len += usize::from(new);
        let long = field.len().max(value.len()) > PACKED_VALUE_MAX;
        self.unpacked |= long || self.len > PACKED_FIELDS_MAX;
        new
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let place = place(field);
        let Some(there) = self.fields.get_mut(&place) else { return false };
        let before = there.len();
        there.retain(|(name, _)| **name != *field);
        let removed = there.len() < before;
        if there.is_empty() {
            self.fields.remove(&place);
        }
        self.len -= usize::from(removed);
        removed
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.fields.values().flatten().map(|(field, value)| (field, value))
    }

    /// Returns about `count` fields from `cursor` on, and the next cursor, which is 0 at the end. A packed hash is
    /// returned whole.
    pub(super) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(Bytes, Bytes)>) {
        let mut found: Vec<(Bytes, Bytes)> = Vec::new();
        for (place, there) in self.fields.range(cursor..) {
            if self.unpacked && found.len() >= count {
                return (*place, found);
            }
            found.extend(there.iter().cloned());
        }
        (0, found)
    }
}

/// Returns the place of a field in the order of its hash: FNV-1a, and never 0.
fn place(field: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (field.iter().fold(0xcbf2_9ce4_8422_2325, mix) >> 16).max(1)
}

/// A sorted set: members with scores, in the order of the scores and then of the members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: BTreeMap<Bytes, f64>,
}

impl SortedSet {
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    pub(super) fn set(&mut self, member: &[u8], score: f64) {
        self.scores.insert(member.into(), score);
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        self.scores.remove(member).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn in_order(&self) -> Vec<(Bytes, f64)> {
        let mut all: Vec<_> =
            self.scores.iter().map(|(member, score)| (Arc::clone(member), *score)).collect();
        all.sort_by(|(a, x), (b, y)| x.total_cmp(y).then_with(|| a.cmp(b)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_exists_until_its_last_millisecond_is_over_and_does_not_come_back() {
        let mut keys = KeySpace::default();
        keys.set(b"a", Value::String(b"1"[..].into()), Some(10));
        assert!(keys.look(b"a", 10).is_some() && keys.look(b"a", 11).is_none());
        assert!(keys.entry(b"a", 10).is_some());
        assert!(keys.entry(b"a", 11).is_none());
        assert!(keys.entry(b"a", 5).is_none(), "the clock stepped back, but the key was removed");
    }

    #[test]
    fn a_scan_finds_every_field_once_and_a_packed_hash_at_once() {
        for fields in [5, PACKED_FIELDS_MAX, PACKED_FIELDS_MAX + 1, 1_000] {
            let mut hash = Hash::default();
            let names: Vec<String> = (0..fields).map(|number| format!("r:{number}")).collect();
            names.iter().for_each(|name| assert!(hash.set(name.as_bytes(), b"v")));
            let (mut cursor, mut found, mut calls) = (0, Vec::new(), 0);
            loop {
                let (next, some) = hash.scan(cursor, 50);
                found.extend(some.into_iter().map(|(field, _)| String::from_utf8_lossy(&field).into_owned()));
                calls += 1;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            found.sort();
            let mut names = names;
            names.sort();
            assert_eq!(found, names);
            assert_eq!(calls == 1, fields <= PACKED_FIELDS_MAX, "{fields} fields in {calls} calls");
        }
    }
}
