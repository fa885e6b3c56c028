//! The jobs that the sealed ledger contains, including jobs that this leader does not have.

use crate::{
    env::WallTime,
    plain::plain,
    scheduler::store::{
        JobRow, RecordError, StoredJob,
        snapshot::{LedgerSnapshot, STATE_PREFIX, state_key},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The largest number of bytes of a key in a log.
const KEY_MAX: usize = 160;

/// Returns those jobs accepted by `selects` for which the ledger has a record that pruning never removes: a row, a
/// state or an open request.
pub(in crate::scheduler) fn jobs_in_ledger(
    sealed: &LedgerSnapshot,
    selects: impl Fn(&str) -> bool,
) -> BTreeSet<Arc<str>> {
    let of = |prefix: &'static str| {
        let jobs = sealed.rows(prefix).filter_map(move |(key, _)| key.strip_prefix(prefix));
        jobs.filter(|job| selects(job)).map(Arc::from)
    };
    let open = sealed.requests().filter(|row| !row.is_closed() && selects(row.job()));
    let requested = open.map(|row| Arc::clone(row.job()));
    of(JobRow::PREFIX).chain(of(STATE_PREFIX)).chain(requested).collect()
}

/// Returns the keys of a job's row, state and requests. These are all records of the job in the ledger, except
/// the records of its runs.
pub(in crate::scheduler) fn row_keys(sealed: &LedgerSnapshot, job: &str) -> Vec<Arc<str>> {
    let of_job = sealed.requests().filter(|row| **row.job() == *job);
    let requests = of_job.map(|row| row.id().key());
    [JobRow::key(job), state_key(job)].into_iter().chain(requests).collect()
}

/// Logs that the row under `key` is ignored.
pub(in crate::scheduler) fn warn_unreadable(group: &str, key: &str, why: &RecordError) {
    tracing::warn!(group, key = plain(key, KEY_MAX), "a row of the ledger is ignored: {why}");
}

/// The records that the ledger must keep because of the jobs that the leader found at the seal. This leader does not
/// have some of these jobs, but a leader of another version may have them.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct NeededRecords {
    window: Duration,
    /// For each job that the leader does not have, the time of its earliest unfinished record or open request.
    unfinished: BTreeMap<Arc<str>, WallTime>,
}

impl NeededRecords {
    /// Adds the record window that the stored row of a job names.
    pub(in crate::scheduler) fn add_window(&mut self, window: Duration) {
        self.window = self.window.max(window);
    }

    /// Adds a job that is stored on the nodes and that this version cannot run.
    pub(in crate::scheduler) fn add_not_run(&mut self, job: &str, row: &StoredJob, sealed: &LedgerSnapshot) {
        self.add_window(row.window.unwrap_or_default());
        sealed.unfinished(job).for_each(|(_, record)| self.hold(job, record.at()));
    }

    /// Adds the jobs of the ledger that the leader does not have: those for which `is_known` returns false. Logs each
    /// of their rows that cannot be read.
    pub(in crate::scheduler) fn add_unknown(
        &mut self,
        group: &str,
        sealed: &LedgerSnapshot,
        is_known: impl Fn(&str) -> bool,
    ) {
        for (key, value) in sealed.rows(JobRow::PREFIX) {
            let Some(job) = key.strip_prefix(JobRow::PREFIX).filter(|job| !is_known(job)) else { continue };
            match JobRow::parse(value) {
                Ok(row) => {
                    self.add_window(row.window.unwrap_or_default());
                    sealed.unfinished(job).for_each(|(_, record)| self.hold(job, record.at()));
                }
                Err(why) => warn_unreadable(group, key, &why),
            }
        }
        for row in sealed.requests() {
            if !row.is_closed() && !is_known(row.job()) {
                self.hold(row.job(), row.moved);
            }
        }
    }

    /// Returns the longest of the record windows (`record_life::window`) that the rows of the jobs store.
    pub(in crate::scheduler) fn window(&self) -> Duration {
        self.window
    }

    /// Returns each job with unfinished records or open requests, and the earliest time of these.
    pub(in crate::scheduler) fn unfinished(&self) -> impl Iterator<Item = (&Arc<str>, WallTime)> {
        self.unfinished.iter().map(|(job, at)| (job, *at))
    }

    /// Computes again which records the ledger must keep for a job, after a run of the job was closed.
    pub(in crate::scheduler) fn refresh(&mut self, job: &str, sealed: &LedgerSnapshot) {
        if self.unfinished.remove(job).is_none() {
            return;
        }
        sealed.unfinished(job).for_each(|(_, record)| self.hold(job, record.at()));
        for row in sealed.requests().filter(|row| !row.is_closed() && **row.job() == *job) {
            self.hold(job, row.moved);
        }
    }

    /// Allows the ledger to prune a job's unfinished records and open requests. The ledger still keeps the
    /// records that are within the window of the job's row.
    pub(in crate::scheduler) fn release(&mut self, job: &str) {
        self.unfinished.remove(job);
    }

    fn hold(&mut self, job: &str, at: WallTime) {
        let earliest = self.unfinished.entry(job.into()).or_insert(at);
        *earliest = at.min(*earliest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::store::snapshot::tests::{SECOND, at, snapshot, tick_record};

    fn row(window: Option<Duration>) -> (Arc<str>, Arc<str>) {
        (JobRow::key("j"), JobRow { window, ..JobRow::default() }.to_value())
    }

    fn sealed(row: Option<(Arc<str>, Arc<str>)>) -> LedgerSnapshot {
        snapshot(row.into_iter().chain([tick_record(11, 1, false)]))
    }

    #[test]
    fn a_row_says_for_leaders_without_the_job_what_the_ledger_must_keep() {
        let found = |sealed: &LedgerSnapshot| {
            let mut needed = NeededRecords::default();
            needed.add_unknown("g", sealed, |job| job != "j");
            needed
        };
        let mut needed = found(&sealed(Some(row(Some(100 * SECOND)))));
        assert_eq!(needed.window(), 100 * SECOND);
        assert_eq!(needed.unfinished().collect::<Vec<_>>(), [(&"j".into(), at(11))]);
        needed.release("j");
        assert_eq!(needed.unfinished().count(), 0);
        let removed = found(&sealed(None));
        assert!(removed.window().is_zero() && removed.unfinished().count() == 0, "{removed:?}");
    }

    #[test]
    fn a_row_that_cannot_be_read_has_a_reason() {
        let stored = |value: &str| snapshot([(JobRow::key("j"), value.into())]).job_row("j");
        let reason = |value: &str| stored(value).err().map(|why| why.to_string());
        assert_eq!(reason(&JobRow::default().to_value()), None);
        let found = reason("{\u{1b}").unwrap();
        assert!(found.starts_with("the ledger's job row `{") && !found.contains('\u{1b}'), "{found}");
        assert!(reason("[]").unwrap().contains("cannot be read"));
        assert_eq!(snapshot([]).job_row("j").unwrap(), None);
    }

    #[test]
    fn a_row_a_state_or_an_open_request_names_a_job() {
        let jobs = |sealed: &LedgerSnapshot| jobs_in_ledger(sealed, |job| job != "other");
        assert_eq!(jobs(&sealed(Some(row(None)))).into_iter().collect::<Vec<_>>(), [Arc::<str>::from("j")]);
        let state = |job| (state_key(job), "text".into());
        let found = snapshot([state("k"), state("other")]);
        assert_eq!(jobs(&found).into_iter().collect::<Vec<_>>(), [Arc::<str>::from("k")]);
        assert_eq!((found.state("k").as_deref(), found.state("j")), (Some("text"), None));
        assert!(jobs(&sealed(None)).is_empty(), "a record of a run does not");
    }
}
