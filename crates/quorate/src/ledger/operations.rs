//! The operations that operators have carried out on the nodes themselves, without a leader: forced releases, changes
//! of the node set and of trust, resets of messages, resign requests.
//!
//! # Not guaranteed
//!
//! The program that carried out an operation writes its entry afterwards. If it dies in between, or if too few nodes
//! store the entry, the entry is missing. The nodes keep the newest 1,000 entries. A replacement of all nodes begins
//! with an empty list.

use super::{Answered, Ledger, LedgerError};
use crate::{
    env::WallTime,
    node::{FencingToken, Record},
    quorum::Quorum,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The number of entries that are kept.
const ENTRIES_MAX: usize = 1_000;
/// The largest number of bytes of a text in an entry.
const TEXT_MAX: usize = 512;

/// An operation that an operator has carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The time of the operation.
    pub at: WallTime,
    /// The operator: USER@HOST, or another name that the operator has given.
    pub by: Arc<str>,
    /// The kind of operation, such as `forced-release`.
    pub action: Arc<str>,
    /// The resource, message or nodes that the operation changed.
    pub target: Arc<str>,
    /// The group, if the operation concerns only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// The reason, in the words of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// True if the operation succeeded.
    pub done: bool,
    /// The result, for people.
    pub result: Arc<str>,
}

/// The list of the operations.
#[derive(Clone, Debug)]
pub struct OperationLog(Ledger);

impl OperationLog {
    /// Returns the list on the nodes of `quorum`.
    pub fn new(quorum: &Quorum) -> Self {
        Self(Ledger::unnamed(quorum, "operations"))
    }

    /// Adds an operation, and removes the oldest entries if there are too many.
    ///
    /// # Errors
    /// [`LedgerError`] if too few nodes stored the entry.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may store the entry.
    pub async fn add(&self, operation: &Operation) -> Result<(), LedgerError> {
        let random = self.0.quorum().env().random();
        let key = format!("{:020}/{random:016x}", operation.at.as_micros()).into();
        self.0.write(&key, None, &operation.to_record()).await?;
        let answers = self.0.read().await?;
        if let Some(below) = prune_below(&answers, ENTRIES_MAX) {
            self.0.prune(below).await?;
        }
        self.0.keep(self.0.quorum().config().ledger_retention).await
    }

    /// Returns the `limit` newest operations, the newest first.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn newest(&self, limit: usize) -> Result<Vec<Operation>, LedgerError> {
        let answers = self.0.read().await?;
        Ok(operations(&answers).into_iter().rev().take(limit).collect())
    }
}

impl Operation {
    fn to_record(&self) -> Record {
        let mut operation = self.clone();
        let Self { by, action, target, group, reason, result, .. } = &mut operation;
        for text in [by, action, target, result].into_iter().chain(group).chain(reason) {
            *text = crate::plain::plain(text, TEXT_MAX).into();
        }
        let value = serde_json::to_string(&operation).unwrap_or_default().into();
        Record { at: self.at.as_micros(), term: FencingToken::default(), last: true, value }
    }
}

/// Returns the operations, the oldest first. A record of a later version, which this version cannot read, is left out.
fn operations(answers: &[Answered]) -> Vec<Operation> {
    let mut found: BTreeMap<&str, Operation> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        if let Ok(operation) = serde_json::from_str(&record.value) {
            found.entry(key).or_insert(operation);
        }
    }
    found.into_values().collect()
}

/// Returns the time before which records must be removed, so that about `kept` of them are left. Returns `None` if
/// there are no more than that.
pub(crate) fn prune_below(answers: &[Answered], kept: usize) -> Option<u64> {
    let records = answers.iter().flat_map(|answer| &answer.state.records);
    let times: BTreeSet<(u64, &str)> = records.map(|(key, record)| (record.at, &**key)).collect();
    time_below(&times.iter().map(|(at, _)| *at).collect::<Vec<_>>(), kept)
}

/// Returns the time before which entries must be removed, so that about `kept` of them are left. `times` has the times
/// of the entries, in ascending order. Returns `None` if there are no more than that.
pub(crate) fn time_below(times: &[u64], kept: usize) -> Option<u64> {
    let excess = times.len().checked_sub(kept).filter(|excess| *excess > 0)?;
    times.get(excess).or_else(|| times.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::LedgerState;

    fn operation(at: u64) -> Operation {
        Operation {
            at: WallTime::from_micros(at),
            by: "ann@host".into(),
            action: "forced-release".into(),
            target: "backup".into(),
            group: None,
            reason: Some("the machine is gone".into()),
            done: true,
            result: "released".into(),
        }
    }

    fn node(operations: &[Operation]) -> Answered {
        let record = |operation: &Operation| {
            (format!("{:020}/x", operation.at.as_micros()).into(), operation.to_record())
        };
        let records = operations.iter().map(record).collect();
        Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    #[test]
    fn operations_are_read_from_any_node_in_order() {
        let (one, two) = (operation(7), operation(30));
        let text = r#"{"at":7,"by":"ann@host","action":"forced-release","target":"backup","reason":"the machine is gone","done":true,"result":"released"}"#;
        assert_eq!(&*one.to_record().value, text);
        let mut damaged = node(std::slice::from_ref(&two));
        damaged.state.records.push(("9".into(), Record { value: "?".into(), ..one.to_record() }));
        assert_eq!(operations(&[damaged, node(&[one.clone(), two.clone()])]), [one, two]);
    }

    #[test]
    fn texts_are_bounded_and_hold_no_control_characters() {
        let hostile = Operation { reason: Some("\u{1b}[2J".repeat(5_000).into()), ..operation(7) };
        let value = hostile.to_record().value;
        assert!(value.len() < 1_000 && !value.contains("\\u001b"), "{value}");
    }

    #[test]
    fn the_oldest_records_are_removed_if_there_are_too_many() {
        let all: Vec<_> = (1..=5).map(operation).collect();
        let below = |kept| prune_below(&[node(&all[..4]), node(&all[1..])], kept);
        assert_eq!([below(5), below(6), below(9)], [None; 3]);
        assert_eq!((below(4), below(2)), (Some(2), Some(4)), "the records before these times are removed");
        assert_eq!((below(0), prune_below(&[], 2)), (Some(5), None));
    }
}
