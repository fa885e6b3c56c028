//! The jobs that the sealed ledger contains, including jobs that this leader does not have.

use crate::{
    env::WallTime,
    node::Record,
    plain::plain,
    scheduler::{
        plan::open_request::requests_in,
        store::{
            FOR_EVER, JobRow, RecordError,
            row_writer::highest,
            saved_state::{SavedState, StateRow},
            snapshot::LedgerSnapshot,
        },
    },
};
use std::{
    cmp::Reverse,
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
        let jobs = sealed.rows(prefix).filter_map(move |(key, row)| Some((key.strip_prefix(prefix)?, row)));
        let jobs = jobs.filter(|(job, records)| selects(job) && records.iter().flatten().any(is_kept));
        jobs.map(|(job, _)| Arc::from(job))
    };
    let open = requests_in(sealed).filter(|(row, closed)| !closed && selects(row.job()));
    let requested = open.map(|(row, _)| Arc::clone(row.job()));
    of(JobRow::PREFIX).chain(of(SavedState::PREFIX)).chain(requested).collect()
}

/// Returns the keys of a job's row, state and requests. These are all records of the job in the ledger, except
/// the records of its runs.
pub(in crate::scheduler) fn row_keys(sealed: &LedgerSnapshot, job: &str) -> Vec<Arc<str>> {
    let of_job = requests_in(sealed).filter(|(row, _)| **row.job() == *job);
    let requests = of_job.map(|(row, _)| row.id().key());
    [JobRow::key(job), SavedState::key(job)].into_iter().chain(requests).collect()
}

/// Logs that the row under `key` is ignored.
pub(in crate::scheduler) fn warn_unreadable(group: &str, key: &str, why: &RecordError) {
    tracing::warn!(group, key = plain(key, KEY_MAX), "a row of the ledger is ignored: {why}");
}

/// Returns the reason why the value of some node cannot be read as a row of a job or of the group's freeze.
pub(in crate::scheduler) fn unreadable(records: &[Option<Record>]) -> Option<RecordError> {
    distinct(records).find_map(|record| JobRow::parse(&record.value).err())
}

/// Returns the records without those that repeat the value of the record before. Nearly always all nodes store the
/// same row, and parsing it once instead of once for each node shortens the takeover of many jobs.
fn distinct(records: &[Option<Record>]) -> impl Iterator<Item = &Record> {
    let stored = || records.iter().flatten();
    let before = std::iter::once(None).chain(stored().map(Some));
    let pairs = stored().zip(before);
    pairs.filter_map(|(record, before)| before.is_none_or(|before| *before != *record).then_some(record))
}

/// The row of a job, as the nodes store it.
#[derive(Default)]
pub(in crate::scheduler) struct StoredRow {
    /// The row. `None` if no node has a row, or if the row of the highest term is closed because the job was
    /// removed.
    pub(in crate::scheduler) row: Option<JobRow>,
    /// True if all nodes store the same row.
    pub(in crate::scheduler) everywhere: bool,
    /// The reason why the value of some node cannot be read.
    pub(in crate::scheduler) unreadable: Option<RecordError>,
}

/// Returns a job's row.
///
/// If the nodes store different rows, the row of the highest term counts, except for its `since`: of all rows
/// with the same schedule, the earliest `since` counts. A leader that wrote a later time had not seen the
/// earlier row, unless it wrote the later time on purpose ([`JobRow::raised`]). Rows from before a removal of
/// the job are left out. A node that has such a row was unreachable at the removal.
pub(in crate::scheduler) fn stored_row(sealed: &LedgerSnapshot, job: &str) -> StoredRow {
    row_of(sealed.row(&JobRow::key(job)))
}

fn row_of(records: &[Option<Record>]) -> StoredRow {
    let mut unreadable = None;
    let mut all: Vec<(JobRow, bool, &Record)> = Vec::new();
    for record in distinct(records) {
        match JobRow::parse(&record.value) {
            Ok(row) => all.push((row, is_kept(record), record)),
            Err(why) => unreadable = unreadable.or(Some(why)),
        }
    }
    let rank =
        |(row, kept, record): &(JobRow, bool, &Record)| (record.term, row.rev, *kept, Reverse(row.since));
    let Some((highest, true, stored)) = all.iter().max_by_key(|row| rank(row)) else {
        return StoredRow { unreadable, ..StoredRow::default() };
    };
    let same = |record: &Option<Record>| record.as_ref().is_some_and(|record| record.value == stored.value);
    let everywhere = records.iter().all(same);
    // Rows from before the last removal of the job are left out. The job was added again later, so their
    // `since` is too early.
    let removed =
        all.iter().filter(|(_, kept, _)| !kept).map(|(row, _, record)| (record.term, row.rev)).max();
    let same_schedule = all.iter().filter(|(other, kept, record)| {
        let is_later = removed.is_none_or(|removed| (record.term, other.rev) > removed);
        *kept && other.schedule == highest.schedule && is_later
    });
    let earliest = same_schedule.map(|(other, ..)| other.since).min().unwrap_or(highest.since);
    let since = earliest.max(highest.raised.unwrap_or_default());
    StoredRow { row: Some(JobRow { since, ..highest.clone() }), everywhere, unreadable }
}

/// Returns the state that the runs of a job have saved.
pub(in crate::scheduler) fn stored_state(sealed: &LedgerSnapshot, job: &str) -> StateRow {
    let read =
        |record: &Record| Some((serde_json::from_str::<StateRow>(&record.value).ok()?, is_kept(record)));
    match highest(sealed.row(&SavedState::key(job)), read, |(row, kept)| (row.rev, *kept)) {
        Some(((row, true), _)) => row,
        // A closed state belongs to a removed job, so its text is dropped. Its revision is kept, because the
        // next row of the state must have a higher revision.
        Some(((row, false), _)) => StateRow { text: None, ..row },
        None => StateRow::default(),
    }
}

/// Returns whether pruning never removes the record. When a job is removed, its records get a time, so that
/// pruning removes them.
fn is_kept(record: &Record) -> bool {
    record.at == FOR_EVER.as_micros()
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

    /// Adds the jobs of the ledger that the leader does not have: those for which `is_known` returns false. Logs each
    /// of their rows that cannot be read.
    pub(in crate::scheduler) fn add_unknown(
        &mut self,
        group: &str,
        sealed: &LedgerSnapshot,
        is_known: impl Fn(&str) -> bool,
    ) {
        for (key, records) in sealed.rows(JobRow::PREFIX) {
            let Some(job) = key.strip_prefix(JobRow::PREFIX).filter(|job| !is_known(job)) else { continue };
            let stored = row_of(records);
            if let Some(why) = &stored.unreadable {
                warn_unreadable(group, key, why);
            }
            let Some(row) = stored.row else { continue };
            self.add_window(row.window.unwrap_or_default());
            sealed.unfinished(job).for_each(|(_, record)| self.hold(job, WallTime::from_micros(record.at)));
        }
        for (row, closed) in requests_in(sealed) {
            if !closed && !is_known(row.job()) {
                self.hold(row.job(), row.oldest());
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
        sealed.unfinished(job).for_each(|(_, record)| self.hold(job, WallTime::from_micros(record.at)));
        for (row, _) in requests_in(sealed).filter(|(row, closed)| !closed && **row.job() == *job) {
            self.hold(job, row.oldest());
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
    use crate::{
        node::FencingToken,
        scheduler::store::snapshot::tests::{SECOND, at, node, tick_record},
    };

    fn row(at: WallTime, window: Option<Duration>) -> (Arc<str>, Record) {
        let value = JobRow { rev: 1, window, ..JobRow::default() }.to_value();
        (JobRow::key("j"), Record { at: at.as_micros(), term: FencingToken::new(1), last: false, value })
    }

    fn sealed(row: (Arc<str>, Record)) -> LedgerSnapshot {
        let nodes = vec![node(at(0), vec![row, tick_record(11, 1, false)]); 2];
        LedgerSnapshot::new(nodes, 2, SECOND)
    }

    #[test]
    fn a_row_says_for_leaders_without_the_job_what_the_ledger_must_keep() {
        let found = |sealed: &LedgerSnapshot| {
            let mut needed = NeededRecords::default();
            needed.add_unknown("g", sealed, |job| job != "j");
            needed
        };
        let mut needed = found(&sealed(row(FOR_EVER, Some(100 * SECOND))));
        assert_eq!(needed.window(), 100 * SECOND);
        assert_eq!(needed.unfinished().collect::<Vec<_>>(), [(&"j".into(), at(11))]);
        needed.release("j");
        assert_eq!(needed.unfinished().count(), 0);
        let removed = found(&sealed(row(at(5), Some(100 * SECOND))));
        assert!(removed.window().is_zero() && removed.unfinished().count() == 0, "{removed:?}");
    }

    #[test]
    fn a_row_that_cannot_be_read_has_a_reason() {
        let record = |value: &str| {
            let at = FOR_EVER.as_micros();
            Some(Record { at, term: FencingToken::new(1), last: false, value: value.into() })
        };
        let good = JobRow::default().to_value();
        let reason = |values: [&str; 3]| unreadable(&values.map(record)).map(|why| why.to_string());
        assert_eq!(reason([&good; 3]), None);
        let found = reason([&good, "{\u{1b}", "{"]).unwrap();
        assert!(found.starts_with("the ledger's job row `{") && !found.contains('\u{1b}'), "{found}");
        assert!(reason([&good, &good, "[]"]).unwrap().contains("cannot be read"));
        assert!(unreadable(&[None, record("{"), None]).is_some());
    }

    #[test]
    fn a_record_that_repeats_the_one_before_is_read_once() {
        let record = |term, value: &str| {
            Some(Record { at: 1, term: FencingToken::new(term), last: false, value: value.into() })
        };
        let count = |records: &[Option<Record>]| distinct(records).count();
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[record(1, "a"), None, record(1, "a"), record(1, "a")]), 1);
        assert_eq!(count(&[record(1, "a"), record(2, "a"), record(1, "a")]), 3);
    }

    #[test]
    fn only_rows_that_pruning_does_not_reach_name_a_job() {
        assert_eq!(
            jobs_in_ledger(&sealed(row(FOR_EVER, None)), |_| true).into_iter().collect::<Vec<_>>(),
            ["j".into()]
        );
        assert!(jobs_in_ledger(&sealed(row(FOR_EVER, None)), |job| job != "j").is_empty());
        assert!(jobs_in_ledger(&sealed(row(at(5), None)), |_| true).is_empty());
    }

    #[test]
    fn the_state_of_a_removed_job_is_not_read() {
        let record = |term, at: WallTime, rev, text: &str| {
            let value = serde_json::to_string(&StateRow { rev, text: Some(text.into()) }).unwrap().into();
            let record = Record { at: at.as_micros(), term: FencingToken::new(term), last: false, value };
            (SavedState::key("j"), record)
        };
        let old = || node(at(0), vec![record(1, FOR_EVER, 4, "old")]);
        let removed = node(at(0), vec![record(2, at(5), 5, "old")]);
        let state = |nodes| stored_state(&LedgerSnapshot::new(nodes, 2, SECOND), "j");
        assert_eq!(state(vec![old(), old()]).text.as_deref(), Some("old"));
        assert_eq!(state(vec![removed, old()]), StateRow { rev: 5, text: None });
    }
}
