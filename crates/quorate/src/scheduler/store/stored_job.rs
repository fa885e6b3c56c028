//! The rows of the jobs that are stored on the nodes.

use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, JobDefinition, RequestId},
        store::{
            RecordError,
            job_row::{note_requests, parse},
            record_life,
        },
    },
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The format of the rows that this version writes.
const FORMAT: u32 = 1;
/// The number of requests that the log of changes has.
const LOG_MAX: usize = 64;

/// The row `def/NAME` of a job that is stored on the nodes. The leader writes it, and any client may read it. Its value has
/// two lines: what follows here as JSON, and the definition. So the definition is neither escaped nor parsed twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredJob {
    /// The number of the format. A leader keeps a row of a format that it does not know, and does not run its job.
    format: u32,
    /// The requester of the last change.
    pub by: Arc<str>,
    /// The time of the last change.
    pub at: WallTime,
    /// The request that changed it last, which names this version of the definition.
    pub version: RequestId,
    /// The time since which its ticks count: that of the last change of its schedule or placement. A row of the job, which it gets
    /// with a pause, may have a later one.
    #[serde(default)]
    pub(in crate::scheduler) since: WallTime,
    /// The time for which the ledger keeps the records of the job's ticks, even under a leader that cannot run it. In JSON,
    /// in microseconds.
    #[serde(default, with = "crate::scheduler::wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) window: Option<Duration>,
    /// The definition, as JSON.
    #[serde(skip)]
    pub definition: Arc<str>,
}

/// The row `definitions`: the last requests that changed the stored jobs. The leader writes it after the rows of the jobs. If
/// a leader crashes before it answers such a request, the next leader receives the request again, and finds here that it was
/// carried out. Without this, it would store a job once more that was removed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct ChangeLog {
    requests: Vec<RequestId>,
}

/// The row `lacks`: the jobs of the ledger that the leader does not have, such as those of another version of the program.
/// Their ticks do not run under this leader. A leader writes it when that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct LackedJobs {
    /// The leader.
    pub(in crate::scheduler) leader: Arc<str>,
    /// The jobs: the first of them, if there are many.
    pub(in crate::scheduler) jobs: Vec<Arc<str>>,
}

impl LackedJobs {
    pub(in crate::scheduler) const KEY: &str = "lacks";
    /// The largest number of names.
    pub(in crate::scheduler) const NAMED_MAX: usize = 100;

    pub(in crate::scheduler) fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    pub(in crate::scheduler) fn parse(value: &str) -> Option<Self> {
        serde_json::from_str(value).ok()
    }
}

impl StoredJob {
    /// The prefix of the keys of these rows.
    pub const PREFIX: &str = "def/";

    /// Returns the row of a definition that `by` stores at `at`. `job` is the job of the definition.
    pub(in crate::scheduler) fn new(
        by: &Arc<str>,
        at: WallTime,
        version: RequestId,
        (definition, job): (&JobDefinition, &Job),
    ) -> Self {
        let (by, window) = (Arc::clone(by), Some(record_life::window(job)));
        let since = job.stored.unwrap_or(at);
        Self { format: FORMAT, by, at, version, since, window, definition: definition.to_text() }
    }

    /// Returns the key of a job's row.
    pub fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    /// Returns the value of the row.
    pub fn to_value(&self) -> Arc<str> {
        let head = serde_json::to_string(self).unwrap_or_default();
        format!("{head}\n{}", self.definition).into()
    }

    /// Reads a row from its value.
    ///
    /// # Errors
    /// [`RecordError`] if no version could have written the value.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        let (head, definition) = value.split_once('\n').unwrap_or((value, ""));
        Ok(Self { definition: definition.into(), ..parse("stored job", head)? })
    }

    /// Returns the definition of the job called `name`.
    ///
    /// # Errors
    /// The reason why this version cannot run the job.
    pub fn definition(&self, name: &str) -> Result<JobDefinition, String> {
        if self.format != FORMAT {
            return Err(format!(
                "its format is {}, and this version knows {FORMAT}; update this worker",
                self.format
            ));
        }
        let definition = JobDefinition::parse(&self.definition)?;
        match *definition.name == *name {
            true => Ok(definition),
            false => Err("its definition has another name".to_owned()),
        }
    }
}

impl ChangeLog {
    pub(in crate::scheduler) const KEY: &str = "definitions";

    /// Reads the row. A row that cannot be read counts as empty.
    pub(in crate::scheduler) fn parse(value: &str) -> Self {
        parse("log of changes", value).unwrap_or_default()
    }

    pub(in crate::scheduler) fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    pub(in crate::scheduler) fn has_done(&self, request: RequestId) -> bool {
        self.requests.contains(&request)
    }

    pub(in crate::scheduler) fn note(&mut self, request: RequestId) {
        note_requests(&mut self.requests, request, LOG_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{job::Job, schedule::Schedule};

    #[test]
    fn a_row_of_a_newer_version_is_read_and_not_understood() {
        let job = Job::named("beat", Schedule::every(std::time::Duration::from_secs(1)).unwrap(), "h");
        let definition = job.definition().unwrap();
        let (at, id) = (WallTime::from_micros(5), RequestId::from_u128(9));
        let row = StoredJob::new(&"me".into(), at, id, (&definition, &job));
        let read = StoredJob::parse(&row.to_value()).unwrap();
        assert_eq!((&read, read.definition("beat")), (&row, Ok(definition)));
        assert!(read.definition("other").unwrap_err().contains("another name"));
        let newer = row.to_value().replace("\"format\":1", "\"format\":2,\"moon\":true");
        let newer = StoredJob::parse(&newer).unwrap();
        assert!(newer.definition("beat").unwrap_err().contains("its format is 2"));
        assert_eq!((&*newer.by, newer.window), ("me", Some(record_life::window(&job))));
    }

    #[test]
    fn the_log_keeps_the_newest_requests() {
        let mut log = ChangeLog::default();
        (0..100).for_each(|id| log.note(RequestId::from_u128(id)));
        let log = ChangeLog::parse(&log.to_value());
        assert!(log.has_done(RequestId::from_u128(99)) && log.has_done(RequestId::from_u128(36)));
        assert!(!log.has_done(RequestId::from_u128(35)) && ChangeLog::parse("{").requests.is_empty());
    }
}
