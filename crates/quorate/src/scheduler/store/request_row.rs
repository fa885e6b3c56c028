use crate::{
    env::WallTime,
    scheduler::{
        job::{RequestId, RunCause},
        store::{JobAction, JobRequest, JobResponse},
    },
};
use std::sync::Arc;

/// The row of a request in the ledger, under `ask/ID`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::scheduler) struct RequestRow {
    pub(in crate::scheduler) request: JobRequest,
    pub(in crate::scheduler) answer: JobResponse,
    /// The schedule from which the ticks of a back-fill were computed.
    pub(in crate::scheduler) schedule: Arc<str>,
    /// The first tick whose run has not ended. `None` if no run is left.
    pub(in crate::scheduler) next: Option<WallTime>,
    /// The time at which the last ended run of the request ended. If no run has ended yet, the time at which
    /// the request was accepted. The ledger must keep the records of the request's runs from this time on.
    pub(in crate::scheduler) moved: WallTime,
    /// The time at which the request ended. `None` if it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) closed: Option<WallTime>,
}

impl RequestRow {
    pub(in crate::scheduler) fn id(&self) -> RequestId {
        self.request.id
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<str> {
        self.request.what.job()
    }

    pub(in crate::scheduler) fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Returns the cause that is recorded for the request's runs.
    pub(in crate::scheduler) fn cause(&self) -> RunCause {
        let id = self.request.id;
        match self.request.what {
            JobAction::Trigger { .. } => RunCause::Triggered { id },
            _ => RunCause::Backfilled { id },
        }
    }

    pub(in crate::scheduler) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns the row of the request, which has ended at `now`.
    pub(in crate::scheduler) fn closed_at(self, now: WallTime) -> Self {
        Self { closed: Some(now), ..self }
    }

    /// Returns whether `value` under `key` is the row of a request that ended before `mark`.
    pub(in crate::scheduler) fn is_outdated(key: &str, value: &str, mark: WallTime) -> bool {
        if !key.starts_with(RequestId::PREFIX) {
            return false;
        }
        let row: Option<Self> = serde_json::from_str(value).ok();
        row.and_then(|row| row.closed).is_some_and(|closed| closed < mark)
    }
}
