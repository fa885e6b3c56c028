//! A list of entries in a part of a ledger. An entry never changes, and the nodes keep about the newest ones.

use super::{Answered, Ledger, LedgerError};
use crate::{
    env::WallTime,
    node::{FencingToken, Record},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A list of entries. The order of the entries is that of their keys.
#[derive(Clone, Debug)]
pub(crate) struct EntryList {
    ledger: Ledger,
    kept: usize,
}

impl EntryList {
    /// Returns the list in `ledger`, of which about the newest `kept` entries are kept.
    pub(crate) fn new(ledger: Ledger, kept: usize) -> Self {
        Self { ledger, kept }
    }

    /// Returns the part of the ledger.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Adds an entry. If the nodes have an entry under `key`, that one stays. Entries with one time are pruned together.
    pub(crate) async fn add(
        &self,
        key: &Arc<str>,
        at: WallTime,
        entry: &impl Serialize,
    ) -> Result<(), LedgerError> {
        match self.ledger.write(key, None, &record(at, entry)).await {
            Err(LedgerError::Standing(_)) => Ok(()),
            written => written,
        }
    }

    /// Removes the oldest entries if there are too many.
    pub(crate) async fn prune(&self) -> Result<(), LedgerError> {
        match prune_below(&self.ledger.read().await?, self.kept) {
            Some(below) => self.ledger.prune(below).await,
            None => Ok(()),
        }
    }

    /// Reads the entries that any node of a majority stores, the oldest first.
    pub(crate) async fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, LedgerError> {
        Ok(entries(&self.ledger.read().await?))
    }
}

/// Returns the record of an entry.
pub(crate) fn record(at: WallTime, entry: &impl Serialize) -> Record {
    let value = serde_json::to_string(entry).unwrap_or_default().into();
    Record { at: at.as_micros(), term: FencingToken::default(), last: true, value }
}

/// Returns the entries, the oldest first. A record of a later version, which this version cannot read, is left out.
pub(crate) fn entries<T: DeserializeOwned>(answers: &[Answered]) -> Vec<T> {
    let mut found: BTreeMap<&str, T> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        if let Ok(entry) = serde_json::from_str(&record.value) {
            found.entry(key).or_insert(entry);
        }
    }
    found.into_values().collect()
}

/// Returns the time before which entries must be removed, so that about `kept` of them are left. Returns `None` if
/// there are no more than that.
fn prune_below(answers: &[Answered], kept: usize) -> Option<u64> {
    let records = answers.iter().flat_map(|answer| &answer.state.records);
    let times: BTreeSet<(u64, &str)> = records.map(|(key, record)| (record.at, &**key)).collect();
    let excess = times.len().checked_sub(kept).filter(|excess| *excess > 0)?;
    times.iter().nth(excess).or_else(|| times.last()).map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::LedgerState;

    fn node(entries: &[(&str, u64)]) -> Answered {
        let entry = |(key, at): &(&str, u64)| ((*key).into(), record(WallTime::from_micros(*at), at));
        let records = entries.iter().map(entry).collect();
        Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    #[test]
    fn entries_are_read_from_any_node_in_order() {
        let mut damaged = node(&[("2", 30)]);
        let unreadable = Record { value: "?".into(), ..record(WallTime::default(), &0) };
        damaged.state.records.push(("3".into(), unreadable));
        assert_eq!(entries::<u64>(&[damaged, node(&[("1", 7), ("2", 30)])]), [7, 30]);
    }

    #[test]
    fn the_oldest_entries_are_removed_if_there_are_too_many() {
        let all = [("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5)];
        let below = |kept| prune_below(&[node(&all[..4]), node(&all[1..])], kept);
        assert_eq!([below(5), below(6), below(9)], [None; 3]);
        assert_eq!((below(4), below(2)), (Some(2), Some(4)), "the entries before these times are removed");
        assert_eq!((below(0), prune_below(&[], 2)), (Some(5), None));
        let together = [("1/began", 1), ("1/ended", 1), ("2/began", 2), ("2/ended", 2)];
        assert_eq!(prune_below(&[node(&together)], 3), Some(1), "entries with one time are removed together");
        assert_eq!(prune_below(&[node(&together)], 2), Some(2));
    }
}
