use super::{MaybeName, MaybeRfc3339, Rfc3339, name, text};
use crate::{Verb, time::rfc3339};
use quorate::{
    env::WallTime,
    internals::{self, JobAction, JobResponse},
    ledger::{LedgerError, Operation, OperationLog},
    quorum::Quorum,
    scheduler::{Jobs, JobsError},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{cmp::Reverse, sync::Arc};

/// An entry of the audit list: a request that a leader has answered, or an operation on the nodes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditEntry {
    /// The time of the answer, or of the operation.
    #[serde(with = "Rfc3339")]
    pub at: WallTime,
    /// The operator.
    pub by: String,
    /// The verb of a request to a leader, such as `pause`, or the kind of an operation, such as `forced-release`.
    pub action: String,
    /// The job, lock, message, nodes or leadership that was changed. For a freeze, the group.
    pub target: String,
    /// The job, for a request to one job.
    #[serde(with = "MaybeName")]
    pub job: Option<Arc<str>>,
    /// The reason, in the words of the requester.
    pub reason: Option<String>,
    /// The end of a pause or a freeze, or of the span of a back-fill.
    #[serde(with = "MaybeRfc3339")]
    pub until: Option<WallTime>,
    /// The start of the span of a back-fill.
    #[serde(with = "MaybeRfc3339")]
    pub from: Option<WallTime>,
    /// The tick whose run was cancelled.
    #[serde(with = "MaybeRfc3339")]
    pub tick: Option<WallTime>,
    /// False if the leader refused the request, or the operation failed.
    pub accepted: bool,
    /// The answer, or the result.
    pub answer: String,
    /// The leader that answered. `null` for an operation on the nodes.
    pub leader: Option<String>,
    /// The id of the request. `null` for an operation on the nodes.
    pub id: Option<String>,
}

/// The reason why the audit list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Of the requests to the jobs.
    #[error(transparent)]
    Jobs(#[from] JobsError),
    /// Of the operations on the nodes.
    #[error(transparent)]
    Operations(#[from] LedgerError),
}

impl AuditEntry {
    /// Reads the newest entries, the newest first: the requests to the jobs, and the operations that concern their group
    /// or none.
    ///
    /// # Errors
    /// Too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn newest(
        quorum: &Quorum,
        jobs: Option<&Jobs>,
        group: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Self>, AuditError> {
        let mut found = Vec::new();
        if let Some(jobs) = jobs {
            let entries = jobs.audit(limit).await?;
            found.extend(entries.iter().map(|entry| Self::of_request(entry, jobs.group())));
        }
        let operations = OperationLog::new(quorum).newest(usize::MAX).await?;
        let is_shown =
            |operation: &&Operation| operation.group.is_none() || operation.group.as_deref() == group;
        found.extend(operations.iter().filter(is_shown).take(limit).map(Self::of_operation));
        found.sort_by_key(|entry| Reverse(entry.at));
        found.truncate(limit);
        Ok(found)
    }

    fn of_request(entry: &internals::AuditEntry, group: &str) -> Self {
        let (accepted, answer) = match &entry.answer {
            JobResponse::Accepted { text, .. } => (true, text),
            JobResponse::Refused { why } => (false, why),
        };
        let (mut reason, mut until, mut from, mut tick) = (None, None, None, None);
        match &entry.what {
            JobAction::Pause { reason: why, until: end, .. } => (reason, until) = (why.as_deref(), *end),
            JobAction::Freeze { reason: why, until: end } => (reason, until) = (why.as_deref(), Some(*end)),
            JobAction::Backfill { from: start, until: end, .. } => (from, until) = (Some(*start), Some(*end)),
            JobAction::Cancel { tick: of, .. } => tick = *of,
            JobAction::Unfreeze
            | JobAction::Resume { .. }
            | JobAction::Trigger { .. }
            | JobAction::Put { .. }
            | JobAction::Remove { .. } => {}
        }
        let job = Some(entry.what.job()).filter(|job| !job.is_empty()).cloned();
        Self {
            at: entry.at,
            by: name(&entry.by),
            action: Verb::of(&entry.what).name().to_owned(),
            target: name(job.as_deref().unwrap_or(group)),
            job,
            reason: reason.map(text),
            until,
            from,
            tick,
            accepted,
            answer: text(answer),
            leader: Some(name(&entry.leader)),
            id: Some(entry.id.to_string()),
        }
    }

    /// Returns the entry of an operation on the nodes.
    pub fn of_operation(operation: &Operation) -> Self {
        Self {
            at: operation.at,
            by: name(&operation.by),
            action: name(&operation.action),
            target: text(&operation.target),
            job: None,
            reason: operation.reason.as_deref().map(text),
            until: None,
            from: None,
            tick: None,
            accepted: operation.done,
            answer: text(&operation.result),
            leader: None,
            id: None,
        }
    }

    /// Returns the action with its times.
    pub fn line(&self) -> String {
        let mut line = self.action.clone();
        for (name, at) in [("tick", self.tick), ("from", self.from), ("until", self.until)] {
            line += &at.map_or_else(String::new, |at| format!(" {name} {}", rfc3339(at)));
        }
        line
    }

    /// Returns the answer, with a word before it if the action was not carried out.
    pub fn answer_line(&self) -> String {
        match (self.accepted, &self.leader) {
            (true, _) => self.answer.clone(),
            (false, Some(_)) => format!("refused: {}", self.answer),
            (false, None) => format!("failed: {}", self.answer),
        }
    }
}
