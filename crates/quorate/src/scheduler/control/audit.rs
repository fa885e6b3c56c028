//! The requests to the jobs of a group that a leader has answered: by which requester, when, and with which
//! answer.
//!
//! # Not guaranteed
//!
//! A leader writes the entry of a request just before it writes the answer. If too few nodes store the entry,
//! the leader still writes the answer, and the entry may be missing. A request that no leader has received has
//! no entry. The entries are kept as long as the ledger of the group, but only the newest 1,000 of them.

use crate::{
    env::WallTime,
    ledger::{EntryList, Ledger, LedgerError},
    scheduler::{
        job::RequestId,
        store::{JobAction, JobRequest, JobResponse},
    },
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The number of entries that are kept.
const ENTRIES_MAX: usize = 1_000;

/// A request that a leader has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The id of the request.
    pub id: RequestId,
    /// The requester: the name of a worker, or USER@HOST.
    pub by: Arc<str>,
    /// The time of the request.
    pub at: WallTime,
    /// The action, with its job.
    pub what: JobAction,
    /// The leader that answered.
    pub leader: Arc<str>,
    /// The answer.
    pub answer: JobResponse,
}

impl AuditEntry {
    pub(in crate::scheduler) fn new(request: &JobRequest, leader: &Arc<str>, answer: &JobResponse) -> Self {
        Self {
            id: request.id,
            by: Arc::clone(&request.by),
            at: request.at,
            what: request.what.without_content(),
            leader: Arc::clone(leader),
            answer: answer.clone(),
        }
    }

    /// Returns the key of the entry. Every leader that answers the request uses the same key.
    fn key(&self) -> Arc<str> {
        format!("{:020}/{}", self.at.as_micros(), self.id).into()
    }
}

/// The audit list of a group.
#[derive(Debug)]
pub(in crate::scheduler) struct AuditLog {
    entries: EntryList,
    /// True if an entry was written since the list was last pruned.
    has_grown: bool,
}

impl AuditLog {
    pub(in crate::scheduler) fn new(group: &Ledger) -> Self {
        Self { entries: EntryList::new(group.part("audit"), ENTRIES_MAX), has_grown: true }
    }

    /// Writes an entry. If an earlier leader has written an entry of the same request, that entry is kept.
    pub(in crate::scheduler) async fn write(&mut self, entry: &AuditEntry) {
        match self.entries.add(&entry.key(), entry.at, entry).await {
            Ok(()) => self.has_grown = true,
            Err(error) => {
                tracing::debug!(id = %entry.id, "the request is missing in the audit list: {error}");
            }
        }
    }

    /// Removes the oldest entries if there are too many.
    pub(super) async fn prune(&mut self) {
        if !std::mem::take(&mut self.has_grown) {
            return;
        }
        if let Err(error) = self.entries.prune().await {
            self.has_grown = true;
            tracing::debug!("cannot prune the audit list: {error}");
        }
    }

    /// Returns the `limit` newest entries, the newest first.
    pub(super) async fn newest(&self, limit: usize) -> Result<Vec<AuditEntry>, LedgerError> {
        Ok(self.entries.read().await?.into_iter().rev().take(limit).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entry(at: u64, what: JobAction) -> AuditEntry {
        let request = JobRequest {
            id: RequestId::from_u128(u128::from(at)),
            by: "ann@host".into(),
            at: WallTime::from_micros(at),
            valid_for: Duration::from_secs(60),
            what,
        };
        let answer = JobResponse::Accepted { text: "paused".into(), count: 0 };
        AuditEntry::new(&request, &"oak".into(), &answer)
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let until = Some(WallTime::from_micros(9));
        let entry = entry(7, JobAction::Pause { job: "j".into(), reason: Some("disk".into()), until });
        let text = r#"{"id":"00000000000000000000000000000007","by":"ann@host","at":7,"what":{"ask":"pause","job":"j","reason":"disk","until":9},"leader":"oak","answer":{"answer":"accepted","text":"paused","count":0}}"#;
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
        assert_eq!(serde_json::from_str::<AuditEntry>(text).unwrap(), entry);
    }
}
