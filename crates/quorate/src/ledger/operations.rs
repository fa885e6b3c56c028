//! The operations that operators have carried out on the nodes themselves, without a leader: forced releases, changes
//! of the node set and of trust, resets of messages, resign requests.
//!
//! # Not guaranteed
//!
//! The program that carried out an operation writes its entry afterwards. If it dies in between, or if too few nodes
//! store the entry, the entry is missing. The nodes keep the newest 1,000 entries. A replacement of all nodes begins
//! with an empty list.

use super::{EntryList, Ledger, LedgerError};
use crate::{env::WallTime, quorum::Quorum};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
pub struct OperationLog(EntryList);

impl OperationLog {
    /// Returns the list on the nodes of `quorum`.
    pub fn new(quorum: &Quorum) -> Self {
        Self(EntryList::new(Ledger::unnamed(quorum, "operations"), ENTRIES_MAX))
    }

    /// Adds an operation, and removes the oldest entries if there are too many.
    ///
    /// # Errors
    /// [`LedgerError`] if too few nodes stored the entry.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may store the entry.
    pub async fn add(&self, operation: &Operation) -> Result<(), LedgerError> {
        let quorum = self.0.ledger().quorum();
        let key = format!("{:020}/{:016x}", operation.at.as_micros(), quorum.env().random()).into();
        self.0.add(&key, operation.at, &operation.plain()).await?;
        self.0.prune().await?;
        self.0.ledger().keep(quorum.config().ledger_retention).await
    }

    /// Returns the `limit` newest operations, the newest first.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn newest(&self, limit: usize) -> Result<Vec<Operation>, LedgerError> {
        Ok(self.0.read().await?.into_iter().rev().take(limit).collect())
    }
}

impl Operation {
    /// Returns the operation with texts that are bounded and hold no control characters.
    fn plain(&self) -> Self {
        let mut operation = self.clone();
        let Self { by, action, target, group, reason, result, .. } = &mut operation;
        for text in [by, action, target, result].into_iter().chain(group).chain(reason) {
            *text = crate::plain::plain(text, TEXT_MAX).into();
        }
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_operation_is_read_as_it_was_written() {
        let text = r#"{"at":7,"by":"ann@host","action":"forced-release","target":"backup","reason":"the machine is gone","done":true,"result":"released"}"#;
        let operation = operation(7);
        assert_eq!(serde_json::to_string(&operation.plain()).unwrap(), text);
        assert_eq!(serde_json::from_str::<Operation>(text).unwrap(), operation);
    }

    #[test]
    fn texts_are_bounded_and_hold_no_control_characters() {
        let hostile = Operation { reason: Some("\u{1b}[2J".repeat(5_000).into()), ..operation(7) };
        let value = serde_json::to_string(&hostile.plain()).unwrap();
        assert!(value.len() < 1_000 && !value.contains("\\u001b"), "{value}");
    }
}
