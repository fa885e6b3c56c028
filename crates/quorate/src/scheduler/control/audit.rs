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
    ledger::{Answered, Ledger, LedgerError, prune_below},
    node::{FencingToken, Record},
    scheduler::{
        job::RequestId,
        store::{JobAction, JobRequest, JobResponse},
    },
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

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

    fn to_record(&self) -> Record {
        let value = serde_json::to_string(self).unwrap_or_default().into();
        Record { at: self.at.as_micros(), term: FencingToken::default(), last: true, value }
    }
}

/// The leader's access to the audit list.
#[derive(Debug)]
pub(in crate::scheduler) struct AuditLog {
    ledger: Ledger,
    /// True if an entry was written since the list was last pruned.
    has_grown: bool,
}

impl AuditLog {
    pub(in crate::scheduler) fn new(group: &Ledger) -> Self {
        Self { ledger: part(group), has_grown: true }
    }

    /// Writes an entry. If an earlier leader has written an entry of the same request, that entry is kept.
    pub(in crate::scheduler) async fn write(&mut self, entry: &AuditEntry) {
        match self.ledger.write(&entry.key(), None, &entry.to_record()).await {
            Ok(()) => self.has_grown = true,
            Err(LedgerError::Standing(_)) => {}
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
        let pruned = match self.ledger.read().await {
            Ok(answers) => match prune_below(&answers, ENTRIES_MAX) {
                Some(below) => self.ledger.prune(below).await,
                None => Ok(()),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = pruned {
            self.has_grown = true;
            tracing::debug!("cannot prune the audit list: {error}");
        }
    }
}

/// Returns the part of a group's ledger that stores the audit list.
pub(super) fn part(group: &Ledger) -> Ledger {
    group.part("audit")
}

/// Returns the `limit` newest entries, the newest first.
pub(super) fn newest(answers: &[Answered], limit: usize) -> Vec<AuditEntry> {
    entries(answers).into_iter().rev().take(limit).collect()
}

/// Returns the entries, the oldest first. Records that this version cannot read, because a later version wrote
/// them, are left out.
fn entries(answers: &[Answered]) -> Vec<AuditEntry> {
    let mut entries: BTreeMap<&str, AuditEntry> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        if let Ok(entry) = serde_json::from_str(&record.value) {
            entries.entry(key).or_insert(entry);
        }
    }
    entries.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::LedgerState;
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

    fn node(entries: &[AuditEntry]) -> Answered {
        let mut records: Vec<_> = entries.iter().map(|entry| (entry.key(), entry.to_record())).collect();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    #[test]
    fn entries_are_read_as_they_were_written_from_any_node_in_order() {
        let until = Some(WallTime::from_micros(9));
        let pause = JobAction::Pause { job: "j".into(), reason: Some("disk".into()), until };
        let (one, two) = (entry(7, pause), entry(30, JobAction::Resume { job: "j".into() }));
        let text = r#"{"id":"00000000000000000000000000000007","by":"ann@host","at":7,"what":{"ask":"pause","job":"j","reason":"disk","until":9},"leader":"oak","answer":{"answer":"accepted","text":"paused","count":0}}"#;
        assert_eq!(&*one.to_record().value, text);
        let mut damaged = node(std::slice::from_ref(&two));
        damaged.state.records.push(("9".into(), Record { value: "?".into(), ..one.to_record() }));
        assert_eq!(entries(&[damaged, node(&[one.clone(), two.clone()])]), [one, two]);
    }
}
