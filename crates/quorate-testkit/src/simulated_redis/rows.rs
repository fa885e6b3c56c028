//! The rows of the engine's [`Store`], as they are stored in a server's keys. `quorate-redis` documents the layout.
//! The referee reads these rows, and a server with a fault also writes them.

use super::{
    KeySpace, ScriptStore,
    key_space::{Entry, Hash, SortedSet, Value},
    stored_claim::StoredClaim,
};
use quorate::node::{
    FencingToken, LedgerState, Owner, Record, Resource,
    engine::{ClaimRecord, ClaimRow, CounterRow, LeaseRow, LifeRow, PlaceRow, QueueRow, ReaderRow, Store},
};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

/// The prefix of all keys.
pub(super) const PREFIX: &str = "quorate:";

const NANOS: u64 = 1_000_000;
const MICROS: u64 = 1_000;

fn lock_key(resource: &Resource) -> String {
    format!("{PREFIX}{}", resource.key())
}

/// Returns the key of a lock's `fence`, `readers` or `queue`.
fn part_key(resource: &Resource, part: &str) -> String {
    format!("{{{PREFIX}{}}}:{part}", resource.key())
}

fn ledger_key(group: &str) -> String {
    format!("{PREFIX}ledger/{group}")
}

fn marker_key() -> String {
    format!("{PREFIX}node")
}

fn stamps_key() -> String {
    format!("{{{PREFIX}node}}:stamps")
}

/// Returns the end of a key's lifetime, of which `last_ms` is the last millisecond, in units of which a
/// millisecond has `per_ms`.
fn end(last_ms: Option<u64>, per_ms: u64) -> u64 {
    last_ms.map_or(u64::MAX, |last| last.saturating_add(1).saturating_mul(per_ms))
}

/// Returns the last millisecond of a lifetime with the end `end`.
fn last_ms(end: u64, per_ms: u64) -> u64 {
    end.saturating_sub(1) / per_ms
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a key's entry, also if its lifetime has ended: the reader of a row checks its end.
fn entry<'a>(keys: &'a KeySpace, key: &str) -> Option<&'a Entry> {
    keys.look(key.as_bytes(), 0)
}

fn string(keys: &KeySpace, key: &str) -> Option<(String, Option<u64>)> {
    let entry = entry(keys, key)?;
    let Value::String(value) = &entry.value else { return None };
    Some((text(value), entry.last_ms))
}

fn hash<'a>(keys: &'a KeySpace, key: &str) -> Option<(&'a Hash, Option<u64>)> {
    let entry = entry(keys, key)?;
    let Value::Hash(hash) = &entry.value else { return None };
    Some((hash, entry.last_ms))
}

fn set_string(keys: &mut KeySpace, key: &str, value: &str, last_ms: Option<u64>) {
    keys.set(key.as_bytes(), Value::String(value.as_bytes().into()), last_ms);
}

fn claim(keys: &KeySpace, resource: &Resource) -> Option<(StoredClaim, Option<u64>)> {
    let (value, last) = string(keys, &lock_key(resource))?;
    Some((StoredClaim::parse(&value)?, last))
}

/// Changes a claim that is not done, which is created if it does not exist.
fn change_claim(
    keys: &mut KeySpace,
    resource: &Resource,
    how: impl FnOnce(&mut super::stored_claim::OpenClaim),
) {
    let mut open = claim(keys, resource).map(|(claim, _)| claim.open()).unwrap_or_default();
    how(&mut open);
    let end = open.end_ms();
    set_string(keys, &lock_key(resource), &StoredClaim::Open(open).text(), Some(end));
}

fn readers(keys: &KeySpace, resource: &Resource) -> Vec<ReaderRow> {
    let found = entry(keys, &part_key(resource, "readers"));
    let Some(Value::Sorted(set)) = found.map(|entry| &entry.value) else { return Vec::new() };
    let row = |(owner, score): (super::key_space::Bytes, f64)| ReaderRow {
        owner: text(&owner).into(),
        until_nanos: (score as u64).saturating_mul(NANOS),
    };
    set.in_order().into_iter().map(row).collect()
}

/// Parses `AT:TERM:LAST:VALUE`.
fn record(text: &str) -> Option<Record> {
    let mut parts = text.splitn(4, ':');
    let at = parts.next()?.parse().ok()?;
    let term = FencingToken::new(parts.next()?.parse().ok()?);
    let last = parts.next()? == "1";
    Some(Record { at, term, last, value: parts.next()?.into() })
}

fn number(hash: &Hash, field: &str) -> Option<u64> {
    text(hash.get(field.as_bytes())?).parse().ok()
}

impl Store for ScriptStore {
    type Error = Infallible;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Infallible> {
        let keys = self.keys();
        if resource.is_claim() {
            let Some((StoredClaim::Open(open), _)) = claim(keys, resource) else { return Ok(None) };
            let row = LeaseRow {
                owner: open.owner.into(),
                until_nanos: end(Some(open.until_ms), NANOS),
                readers: Vec::new(),
            };
            return Ok(Some(row).filter(|_| open.until_ms > 0));
        }
        let Some(entry) = entry(keys, &lock_key(resource)) else { return Ok(None) };
        let Value::String(owner) = &entry.value else { return Ok(None) };
        let owner: Arc<str> = String::from_utf8_lossy(owner).as_ref().into();
        let readers = if *owner == *Owner::READERS { readers(keys, resource) } else { Vec::new() };
        Ok(Some(LeaseRow { owner, until_nanos: end(entry.last_ms, NANOS), readers }))
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Infallible> {
        let keys = self.keys_mut();
        let last = row.as_ref().map(|row| last_ms(row.until_nanos, NANOS));
        if resource.is_claim() {
            change_claim(keys, resource, |open| {
                open.until_ms = last.unwrap_or_default();
                open.owner = row.map(|row| row.owner.to_string()).unwrap_or_default();
            });
            return Ok(());
        }
        let (lock, readers) = (lock_key(resource), part_key(resource, "readers"));
        keys.remove(readers.as_bytes());
        let Some(row) = row else {
            keys.remove(lock.as_bytes());
            return Ok(());
        };
        set_string(keys, &lock, &row.owner, last);
        if !row.readers.is_empty() {
            let mut set = SortedSet::default();
            for reader in &row.readers {
                set.set(reader.owner.as_bytes(), (reader.until_nanos / NANOS) as f64);
            }
            keys.set(readers.as_bytes(), Value::Sorted(Arc::new(set)), last);
        }
        Ok(())
    }

    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, Infallible> {
        let Some((hash, last)) = hash(self.keys(), &part_key(resource, "queue")) else { return Ok(None) };
        let place = |(ticket, value): (&super::key_space::Bytes, &super::key_space::Bytes)| {
            let value = text(value);
            let mut parts = value.splitn(3, ':');
            Some(PlaceRow {
                ticket: text(ticket).into(),
                at: parts.next()?.parse().ok()?,
                until_nanos: parts.next()?.parse::<u64>().ok()?.saturating_mul(NANOS),
                exclusive: parts.next()? == "w",
            })
        };
        let mut places: Vec<PlaceRow> = hash.iter().filter_map(place).collect();
        places.sort_by(|a, b| (a.at, &a.ticket).cmp(&(b.at, &b.ticket)));
        Ok(Some(QueueRow { until_nanos: end(last, NANOS), places }))
    }

    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), Infallible> {
        let (key, keys) = (part_key(resource, "queue"), self.keys_mut());
        keys.remove(key.as_bytes());
        if let Some(row) = row.filter(|row| !row.places.is_empty()) {
            let mut hash = Hash::default();
            for PlaceRow { at, ticket, until_nanos, exclusive } in &row.places {
                let value = format!("{at}:{}:{}", until_nanos / NANOS, if *exclusive { 'w' } else { 'r' });
                hash.set(ticket.as_bytes(), value.as_bytes());
            }
            keys.set(key.as_bytes(), Value::Hash(Arc::new(hash)), Some(last_ms(row.until_nanos, NANOS)));
        }
        Ok(())
    }

    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, Infallible> {
        if resource.is_claim() {
            let Some((StoredClaim::Open(open), _)) = claim(self.keys(), resource) else { return Ok(None) };
            let row = CounterRow {
                count: FencingToken::new(open.count),
                until_micros: end(Some(open.kept_ms), MICROS),
            };
            return Ok(Some(row).filter(|_| open.kept_ms > 0));
        }
        let found = string(self.keys(), &part_key(resource, "fence"));
        Ok(found.and_then(|(count, last)| {
            Some(CounterRow {
                count: FencingToken::new(count.parse().ok()?),
                until_micros: end(last, MICROS),
            })
        }))
    }

    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), Infallible> {
        let (keys, last) = (self.keys_mut(), last_ms(row.until_micros, MICROS));
        if resource.is_claim() {
            change_claim(keys, resource, |open| (open.count, open.kept_ms) = (row.count.get(), last));
        } else {
            set_string(keys, &part_key(resource, "fence"), &row.count.to_string(), Some(last));
        }
        Ok(())
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, Infallible> {
        let Some((claim, last)) = claim(self.keys(), resource) else { return Ok(None) };
        let found = claim.record(last.unwrap_or(u64::MAX));
        Ok(found.map(|(record, last)| ClaimRow { record, until_micros: end(Some(last), MICROS) }))
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), Infallible> {
        let keys = self.keys_mut();
        let last = row.as_ref().map(|row| last_ms(row.until_micros, MICROS)).unwrap_or_default();
        match row.map(|row| row.record) {
            Some(ClaimRecord::Done(record)) => {
                let value = StoredClaim::Done(record).text();
                set_string(keys, &lock_key(resource), &value, Some(last));
            }
            Some(ClaimRecord::Begun(count)) => change_claim(keys, resource, |open| {
                open.attempts = count.attempts;
                open.payload = count.payload.as_deref().unwrap_or_default().to_owned();
                open.counted_ms = last;
            }),
            None => change_claim(keys, resource, |open| {
                (open.attempts, open.counted_ms, open.payload) = (0, 0, String::new());
            }),
        }
        Ok(())
    }

    fn ledger(&self, group: &str) -> Result<LedgerState, Infallible> {
        let Some((hash, _)) = hash(self.keys(), &ledger_key(group)) else {
            return Ok(LedgerState::default());
        };
        let stored = hash.iter().filter_map(|(field, value)| {
            let key = text(field).strip_prefix("r:")?.into();
            Some((key, record(&text(value))?))
        });
        let mut records: Vec<(Arc<str>, Record)> = stored.collect();
        records.sort_by(|(a, _), (b, _)| a.cmp(b));
        let term = FencingToken::new(number(hash, "t").unwrap_or_default());
        Ok(LedgerState { term, low_water: number(hash, "w").unwrap_or_default(), records })
    }

    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), Infallible> {
        let (key, keys) = (ledger_key(group), self.keys_mut());
        let before = hash(keys, &key).map(|(hash, last)| (number(hash, "l"), last));
        let (life, last) = before.unwrap_or_default();
        let mut hash = Hash::default();
        hash.set(b"t", state.term.to_string().as_bytes());
        hash.set(b"w", state.low_water.to_string().as_bytes());
        if let Some(life) = life {
            hash.set(b"l", life.to_string().as_bytes());
        }
        for (key, Record { at, term, last, value }) in &state.records {
            let stored = format!("{at}:{term}:{}:{value}", u8::from(*last));
            hash.set(format!("r:{key}").as_bytes(), stored.as_bytes());
        }
        keys.set(key.as_bytes(), Value::Hash(Arc::new(hash)), last);
        Ok(())
    }

    fn ledger_life(&self, group: &str) -> Result<Option<LifeRow>, Infallible> {
        let Some((hash, last)) = hash(self.keys(), &ledger_key(group)) else { return Ok(None) };
        let millis = number(hash, "l");
        Ok(millis.map(|millis| LifeRow { millis, until_micros: end(last, MICROS) }))
    }

    fn set_ledger_life(&mut self, group: &str, life: LifeRow) -> Result<(), Infallible> {
        let (key, keys) = (ledger_key(group), self.keys_mut());
        let mut changed = hash(keys, &key).map(|(hash, _)| hash.clone()).unwrap_or_default();
        changed.set(b"l", life.millis.to_string().as_bytes());
        let last = last_ms(life.until_micros, MICROS);
        keys.set(key.as_bytes(), Value::Hash(Arc::new(changed)), Some(last));
        Ok(())
    }

    fn remove_ledger(&mut self, group: &str) -> Result<(), Infallible> {
        self.keys_mut().remove(ledger_key(group).as_bytes());
        Ok(())
    }

    fn marker(&self) -> Result<Option<Arc<str>>, Infallible> {
        Ok(string(self.keys(), &marker_key()).map(|(marker, _)| marker.into()))
    }

    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), Infallible> {
        set_string(self.keys_mut(), &marker_key(), &marker, None);
        Ok(())
    }

    fn stamps(&self) -> Result<BTreeMap<Arc<str>, u64>, Infallible> {
        let stored = hash(self.keys(), &stamps_key()).map(|(hash, _)| hash.clone()).unwrap_or_default();
        let stamps =
            stored.iter().map(|(name, count)| (text(name).into(), text(count).parse().unwrap_or_default()));
        Ok(stamps.collect())
    }

    fn set_stamps(&mut self, stamps: BTreeMap<Arc<str>, u64>) -> Result<(), Infallible> {
        let mut all = hash(self.keys(), &stamps_key()).map(|(hash, _)| hash.clone()).unwrap_or_default();
        for (name, count) in &stamps {
            all.set(name.as_bytes(), count.to_string().as_bytes());
        }
        self.keys_mut().set(stamps_key().as_bytes(), Value::Hash(Arc::new(all)), None);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
