//! The jobs that are stored on the nodes, as the leader knows them. Without I/O.

use crate::{
    env::WallTime,
    scheduler::{
        job::{Job, JobDefinition, RequestId},
        registry::Handlers,
        store::{ChangeLog, RecordError, StoredJob, snapshot::LedgerSnapshot},
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// The largest number of jobs on the nodes.
pub(in crate::scheduler) const JOBS_MAX: usize = 150_000;
/// The largest number of bytes of all definitions. A new leader reads them all.
pub(in crate::scheduler) const BYTES_MAX: usize = 64 << 20;
/// The number of definitions after which other tasks can run.
const READ_AT_ONCE: usize = 100;

/// The jobs on the nodes, by name.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Definitions {
    handlers: Handlers,
    jobs: BTreeMap<Arc<str>, Definition>,
    bytes: usize,
    log: ChangeLog,
}

#[derive(Debug)]
struct Definition {
    /// `None` if the row cannot be read.
    row: Option<StoredJob>,
    bytes: usize,
    /// `None` if this version cannot run the job. The row is kept.
    job: Option<Arc<Job>>,
}

impl Definitions {
    /// Reads the definitions of the ledger. Logs each that this version cannot run.
    pub(in crate::scheduler) async fn read(
        group: &str,
        sealed: &LedgerSnapshot,
        handlers: &Handlers,
    ) -> Self {
        let log = sealed.row(ChangeLog::KEY).map(|log| ChangeLog::parse(log)).unwrap_or_default();
        let mut read = Self { handlers: handlers.clone(), log, ..Self::default() };
        // A map of a whole list, which is in the order of the names, takes less time than one name after the other.
        let mut jobs = Vec::new();
        for (number, (key, value)) in sealed.rows(StoredJob::PREFIX).enumerate() {
            if let Some(name) = key.strip_prefix(StoredJob::PREFIX) {
                let (definition, fault) = read.definition(name, StoredJob::parse(value), value.len());
                read.bytes += definition.bytes;
                jobs.push((name.into(), definition));
                if let Some(why) = fault {
                    tracing::warn!(
                        group,
                        job = crate::plain::plain(name, 128),
                        "kept on the nodes, and not run: {why}"
                    );
                }
            }
            if number % READ_AT_ONCE == READ_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
        }
        read.jobs = jobs.into_iter().collect();
        read
    }

    /// Returns the definition that a row has, and the reason why this version cannot run it.
    fn definition(
        &self,
        name: &str,
        row: Result<StoredJob, RecordError>,
        bytes: usize,
    ) -> (Definition, Option<String>) {
        let (row, job) = match row {
            Ok(row) => {
                let job = row.definition(name).and_then(|definition| self.job_of(&definition, row.since));
                (Some(row), job)
            }
            Err(why) => (None, Err(why.to_string())),
        };
        let (job, fault) = match job {
            Ok(job) => (Some(job), None),
            Err(why) => (None, Some(why)),
        };
        (Definition { row, bytes, job }, fault)
    }

    /// Returns the job of a definition, whose ticks count since `since`.
    ///
    /// # Errors
    /// The reason why this version cannot run it.
    pub(in crate::scheduler) fn job_of(
        &self,
        definition: &JobDefinition,
        since: WallTime,
    ) -> Result<Arc<Job>, String> {
        let job = self.handlers.resolve(definition.job()?);
        Ok(Arc::new(Job { stored: Some(since), ..job }))
    }

    /// Returns the job of a definition that is stored now. Its ticks go on to count since the same time if it takes the place of
    /// a job with the same schedule and placement.
    ///
    /// # Errors
    /// The reason why this version cannot run it.
    pub(in crate::scheduler) fn job_to_store(
        &self,
        definition: &JobDefinition,
        now: WallTime,
    ) -> Result<Arc<Job>, String> {
        let job = self.job_of(definition, now)?;
        let before = self.job(&job.name).filter(|before| {
            before.schedule == job.schedule && before.rules.placement == job.rules.placement
        });
        match before.and_then(|before| before.stored) {
            Some(since) => Ok(Arc::new(Job { stored: Some(since), ..Job::clone(&job) })),
            None => Ok(job),
        }
    }

    /// Stores a definition, in place of an earlier one. Returns the key and the value of its row.
    pub(in crate::scheduler) fn put(&mut self, row: StoredJob, job: Arc<Job>) -> (Arc<str>, Arc<str>) {
        let (key, value) = (StoredJob::key(&job.name), row.to_value());
        let (name, bytes) = (Arc::clone(&job.name), value.len());
        let before = self.jobs.insert(name, Definition { row: Some(row), bytes, job: Some(job) });
        self.bytes = self.bytes + bytes - before.map_or(0, |before| before.bytes);
        (key, value)
    }

    /// Removes a definition. Returns whether there was one.
    pub(in crate::scheduler) fn remove(&mut self, name: &str) -> bool {
        let removed = self.jobs.remove(name);
        self.bytes -= removed.as_ref().map_or(0, |removed| removed.bytes);
        removed.is_some()
    }

    /// Returns whether a request was carried out before, under this leader or an earlier one.
    pub(in crate::scheduler) fn has_done(&self, request: RequestId) -> bool {
        self.log.has_done(request)
    }

    /// Notes that a request is carried out. Returns the key and the value of the log, to be written after the other rows.
    pub(in crate::scheduler) fn note(&mut self, request: RequestId) -> (Arc<str>, Arc<str>) {
        self.log.note(request);
        (ChangeLog::KEY.into(), self.log.to_value())
    }

    pub(in crate::scheduler) fn contains(&self, name: &str) -> bool {
        self.jobs.contains_key(name)
    }

    /// Returns the row of a definition. `None` if there is none, or if it cannot be read.
    pub(in crate::scheduler) fn row(&self, name: &str) -> Option<&StoredJob> {
        self.jobs.get(name)?.row.as_ref()
    }

    /// Returns a job, if this version can run it.
    pub(in crate::scheduler) fn job(&self, name: &str) -> Option<&Arc<Job>> {
        self.jobs.get(name)?.job.as_ref()
    }

    /// Returns the rows of the jobs that this version cannot run, each with the name of its job. Rows that cannot be read are
    /// not among them.
    pub(in crate::scheduler) fn not_run(&self) -> impl Iterator<Item = (&Arc<str>, &StoredJob)> {
        let not_run = self.jobs.iter().filter(|(_, definition)| definition.job.is_none());
        not_run.filter_map(|(name, definition)| Some((name, definition.row.as_ref()?)))
    }

    /// Returns the jobs that this version can run.
    pub(in crate::scheduler) fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter_map(|definition| definition.job.as_ref())
    }

    pub(in crate::scheduler) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(in crate::scheduler) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{
        Schedule,
        store::snapshot::tests::{SECOND, at, snapshot},
    };

    fn row(name: &str) -> StoredJob {
        let job = Job::named(name, Schedule::every(SECOND).unwrap(), "h");
        let definition = job.definition().unwrap();
        StoredJob::new(&"me".into(), at(5), RequestId::from_u128(7), (&definition, &job))
    }

    async fn read(rows: &[(&str, String)]) -> Definitions {
        let rows = rows.iter().map(|(name, row)| (StoredJob::key(name), row.as_str().into()));
        Definitions::read("g", &snapshot(rows), &Handlers::default()).await
    }

    #[tokio::test]
    async fn a_definition_that_this_version_does_not_understand_is_kept_and_not_run() {
        let newer = row("newer").to_value().replace("\"handler\":", "\"moon\":1,\"handler\":");
        let format = row("format").to_value().replace("\"format\":1", "\"format\":2");
        let read = read(&[
            ("beat", row("beat").to_value().to_string()),
            ("newer", newer),
            ("format", format),
            ("broken", "{".to_owned()),
        ])
        .await;
        assert_eq!(read.jobs().map(|job| &**job.name()).collect::<Vec<_>>(), ["beat"]);
        assert!(["beat", "newer", "format", "broken"].iter().all(|name| read.contains(name)));
        let kept = read.row("newer").map(|row| (&*row.by, row.version));
        assert_eq!(kept, Some(("me", RequestId::from_u128(7))));
        assert!(read.row("broken").is_none() && read.job("newer").is_none());
        assert_eq!(read.not_run().map(|(name, _)| &**name).collect::<Vec<_>>(), ["format", "newer"]);
    }

    #[tokio::test]
    async fn the_bytes_are_those_of_the_rows() {
        let mut read = read(&[("beat", row("beat").to_value().to_string())]).await;
        let bytes = row("beat").to_value().len();
        assert_eq!((read.len(), read.bytes()), (1, bytes));
        let job = read.job("beat").unwrap().clone();
        read.put(row("beat"), job);
        assert_eq!((read.len(), read.bytes()), (1, bytes));
        assert!(read.remove("beat") && !read.remove("beat"));
        assert_eq!((read.len(), read.bytes()), (0, 0));
    }
}
