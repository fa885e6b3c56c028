use crate::env::WallTime;
use futures_util::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// A change of a job's condition, for the function of [`Job::on_alert`](crate::scheduler::Job::on_alert).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobAlert {
    /// The job.
    pub job: Arc<str>,
    /// The change.
    pub kind: AlertKind,
    /// The tick of the run that failed or succeeded, or the time since which the job is overdue. In JSON, in
    /// microseconds since the Unix epoch. Job, kind and time together identify the alert: an alert that is
    /// reported again has the same ones.
    pub at: WallTime,
    /// The reason, for people: the error of the run, or the time of the last success.
    pub reason: Arc<str>,
}

/// The kind of a [`JobAlert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlertKind {
    /// A run failed, timed out or was lost, and the run before it had succeeded.
    Failed,
    /// A run succeeded, and the job had failed or was overdue before.
    Recovered,
    /// The job has not succeeded within [`Job::expect_within`](crate::scheduler::Job::expect_within).
    Overdue,
    /// The leader has paused the job, after as many failed runs in a row as
    /// [`Job::pause_after_failures`](crate::scheduler::Job::pause_after_failures) says.
    Paused,
}

impl AlertKind {
    /// Returns the name that JSON uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Recovered => "recovered",
            Self::Overdue => "overdue",
            Self::Paused => "paused",
        }
    }
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The function of a job that receives its alerts.
#[derive(Clone)]
pub(in crate::scheduler) struct AlertHook(Arc<dyn Fn(JobAlert) -> BoxFuture<'static, ()> + Send + Sync>);

impl AlertHook {
    pub(in crate::scheduler) fn new<H, F>(hook: H) -> Self
    where
        H: Fn(JobAlert) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |alert| hook(alert).boxed()))
    }

    pub(in crate::scheduler) fn call(&self, alert: JobAlert) -> BoxFuture<'static, ()> {
        (self.0)(alert)
    }
}
