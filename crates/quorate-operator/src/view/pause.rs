use super::{MaybeRfc3339, Rfc3339, name, text};
use quorate::{
    env::WallTime,
    internals::Paused,
    plain::plain,
    scheduler::{JobStatus, Zone},
};
use schemars::JsonSchema;
use serde::Serialize;

/// The longest reason of a pause in a table, in bytes.
const REASON_MAX: usize = 40;

/// The pause of a job, or the freeze of a group.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pause {
    /// The requester.
    pub by: String,
    /// Its begin.
    #[serde(with = "Rfc3339")]
    pub at: WallTime,
    /// The reason, in the words of the requester.
    pub reason: Option<String>,
    /// Its end; `null` if the job stays paused until it is resumed.
    #[serde(with = "MaybeRfc3339")]
    pub until: Option<WallTime>,
}

impl Pause {
    /// Returns the freeze of a group.
    pub fn of_freeze(freeze: &Paused) -> Self {
        Self {
            at: freeze.at,
            by: name(&freeze.by),
            reason: freeze.reason.as_deref().map(text),
            until: freeze.until,
        }
    }

    /// Returns the pause of a job, or the freeze of its group if the job is not paused itself.
    pub(super) fn of_job(job: &JobStatus) -> Option<Self> {
        Some(Self {
            at: job.paused_at?,
            by: name(job.paused_by.as_deref().unwrap_or_default()),
            reason: job.pause_reason.as_deref().map(text),
            until: job.paused_until,
        })
    }

    /// Returns it in one line, with times in `zone`.
    pub fn line(&self, zone: &Zone) -> String {
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        let end = self.until.map_or_else(String::new, |until| format!(" until {}", zone.rfc3339(until)));
        format!("by {} since {}{end}{reason}", self.by, zone.rfc3339(self.at))
    }

    pub(super) fn short(&self, word: &str, end: impl Fn(WallTime) -> String) -> String {
        let reason = self.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({})", plain(reason, REASON_MAX)));
        let end = self.until.map_or_else(String::new, |until| format!(" {}", end(until)));
        format!("{word}{end}{reason}")
    }
}
