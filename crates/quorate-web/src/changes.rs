//! The past of a group: its terms, the requests to its jobs, and the operations without a leader.

use crate::{
    snapshot::{name, text},
    time::rfc3339,
};
use quorate::{
    election::{Observer, PastTerm},
    env::WallTime,
    internals::{AuditEntry, JobAction, JobResponse},
    ledger::{Operation, OperationLog},
    quorum::Quorum,
    scheduler::Jobs,
};
use std::{cmp::Reverse, sync::Arc};

/// The number of terms that are shown.
const TERMS: usize = 50;
/// The number of changes that are shown.
const CHANGES: usize = 50;

/// The state that only the page about the leadership shows. Each list has the newest entry first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub(crate) terms: Vec<PastTerm>,
    pub(crate) changes: Vec<Change>,
}

/// A request to a job, or an operation without a leader. All texts are plain.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: WallTime,
    /// The key of the row, different for each change.
    pub(crate) key: String,
    pub(crate) by: String,
    /// The action, such as `pause until …`.
    pub(crate) action: String,
    /// The job, as it is stored. `None` for a change of another target.
    pub(crate) job: Option<Arc<str>>,
    /// The other target, such as a lock.
    pub(crate) target: String,
    pub(crate) reason: Option<String>,
    pub(crate) answer: String,
    /// The leader that answered. `None` for an operation without a leader.
    pub(crate) leader: Option<String>,
}

impl Past {
    /// Reads the newest terms and changes of the group. The error is a text for people.
    pub(crate) async fn read(
        quorum: &Quorum,
        observer: &mut Observer,
        jobs: Option<&Jobs>,
        group: &str,
    ) -> Result<Self, String> {
        let terms = observer.history(TERMS).await.map_err(|error| error.to_string())?;
        let mut changes = Vec::new();
        if let Some(jobs) = jobs {
            let entries = jobs.audit(CHANGES).await.map_err(|error| error.to_string())?;
            changes.extend(entries.iter().map(Change::of_request));
        }
        let operations =
            OperationLog::new(quorum).newest(usize::MAX).await.map_err(|error| error.to_string())?;
        let is_shown = |operation: &&Operation| operation.group.as_deref().is_none_or(|other| other == group);
        let operations = operations.iter().filter(is_shown).take(CHANGES);
        changes.extend(operations.enumerate().map(|(at, operation)| Change::of_operation(at, operation)));
        changes.sort_by_key(|change| Reverse(change.at));
        changes.truncate(CHANGES);
        Ok(Self { terms, changes })
    }
}

impl Change {
    fn of_request(entry: &AuditEntry) -> Self {
        let job = Some(entry.what.job()).filter(|job| !job.is_empty());
        Self {
            at: entry.at,
            key: entry.id.to_string(),
            by: name(&entry.by),
            action: action(&entry.what),
            job: job.map(Arc::clone),
            target: if job.is_none() { "all jobs".to_owned() } else { String::new() },
            reason: reason(&entry.what).map(text),
            answer: answer(&entry.answer),
            leader: Some(name(&entry.leader)),
        }
    }

    pub(crate) fn of_operation(index: usize, operation: &Operation) -> Self {
        let result = text(&operation.result);
        Self {
            at: operation.at,
            key: format!("{}-{index}", operation.at.as_micros()),
            by: name(&operation.by),
            action: name(&operation.action),
            job: None,
            target: name(&operation.target),
            reason: operation.reason.as_deref().map(text),
            answer: if operation.done { result } else { format!("failed: {result}") },
            leader: None,
        }
    }
}

fn action(action: &JobAction) -> String {
    match action {
        JobAction::Pause { until: Some(until), .. } => format!("pause until {}", rfc3339(*until)),
        JobAction::Pause { .. } => "pause".to_owned(),
        JobAction::Resume { .. } => "resume".to_owned(),
        JobAction::Trigger { .. } => "trigger".to_owned(),
        JobAction::Backfill { from, until, .. } => {
            format!("back-fill from {} until {}", rfc3339(*from), rfc3339(*until))
        }
        JobAction::Cancel { tick: Some(tick), .. } => format!("cancel the run of {}", rfc3339(*tick)),
        JobAction::Cancel { .. } => "cancel".to_owned(),
        JobAction::Freeze { until, .. } => format!("freeze until {}", rfc3339(*until)),
        JobAction::Unfreeze => "unfreeze".to_owned(),
    }
}

fn reason(action: &JobAction) -> Option<&str> {
    match action {
        JobAction::Pause { reason, .. } => reason.as_deref(),
        JobAction::Freeze { reason, .. } => Some(reason),
        _ => None,
    }
}

fn answer(answer: &JobResponse) -> String {
    match answer {
        JobResponse::Accepted { text: said, .. } => text(said),
        JobResponse::Refused { why } => format!("refused: {}", text(why)),
    }
}
