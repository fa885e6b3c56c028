//! The condition of a job, as its row stores it: whether its last run failed, whether it is overdue, and which
//! alerts about this are not reported yet.

use crate::{
    env::WallTime,
    scheduler::{
        alert::{AlertKind, JobAlert},
        store::REASON_MAX,
    },
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The largest number of alerts of a job that wait to be reported.
pub(super) const ALERTS_MAX: usize = 8;

/// The condition of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHealth {
    /// The tick of the first run that failed since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<WallTime>,
    /// The time since which the job is overdue, if an alert says so. It stays until the next success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<WallTime>,
    /// The tick of the last run that changed this condition. A new leader examines the ends of later ticks.
    pub changed: WallTime,
    /// The alerts that are not reported yet, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<JobAlert>,
}

/// The failed runs of a job in a row, as its row stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRuns {
    /// The number of runs that failed, timed out or were lost since the last success, or since the job was resumed.
    pub count: u32,
    /// The tick of the last run that counts, or the time at which the job was resumed. A new leader counts the recorded
    /// ends of later ticks.
    pub last: WallTime,
    /// The reason of the last failure.
    #[serde(default)]
    pub why: Arc<str>,
}

impl JobHealth {
    /// Adds an alert. If too many wait, the oldest is dropped.
    pub(in crate::scheduler) fn push(&mut self, job: &Arc<str>, kind: AlertKind, at: WallTime, reason: &str) {
        if self.alerts.len() == ALERTS_MAX {
            let lost = self.alerts.remove(0);
            tracing::warn!(
                job = &**job,
                "an alert ({}) is dropped: too many are not reported yet",
                lost.kind
            );
        }
        let reason = crate::node::engine::cut(reason, REASON_MAX).into();
        self.alerts.push(JobAlert { job: Arc::clone(job), kind, at, reason });
    }
}
