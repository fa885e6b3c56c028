//! The jobs that the sealed ledger contains, including jobs that this leader does not have.

use crate::scheduler::{
    plan::open_request::requests_in,
    store::saved_state::{SavedState, StateRow},
    store::{FOR_EVER, RecordError, row_writer::highest, snapshot::LedgerSnapshot},
};
use crate::{env::WallTime, node::Record, scheduler::JobRow};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

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

/// Returns the keys of jobs' rows, and of the row of the group's freeze, under which a node stores a value that this
/// version cannot read. Such a value is ignored. Each key is returned once, with the reason.
pub(in crate::scheduler) fn unreadable_rows(sealed: &LedgerSnapshot) -> Vec<(Arc<str>, RecordError)> {
    let freeze = sealed.rows(JobRow::FREEZE).filter(|(key, _)| ***key == *JobRow::FREEZE);
    let error = |records: &[Option<Record>]| {
        records.iter().flatten().find_map(|record| JobRow::parse(&record.value).err())
    };
    let rows = sealed.rows(JobRow::PREFIX).chain(freeze);
    rows.filter_map(|(key, records)| Some((Arc::clone(key), error(records)?))).collect()
}

/// Returns a job's row, and true if all nodes store the same row. Returns `None` if no node has a row, or if
/// the row of the highest term is closed because the job was removed.
///
/// If the nodes store different rows, the row of the highest term counts, except for its `since`: of all rows
/// with the same schedule, the earliest `since` counts. A leader that wrote a later time had not seen the
/// earlier row, unless it wrote the later time on purpose ([`JobRow::raised`]). Rows from before a removal of
/// the job are left out. A node that has such a row was unreachable at the removal.
pub(in crate::scheduler) fn stored_row(sealed: &LedgerSnapshot, job: &str) -> Option<(JobRow, bool)> {
    let records = sealed.row(&JobRow::key(job));
    let read = |record: &Record| Some((JobRow::parse(&record.value).ok()?, is_kept(record), record.term));
    let rank = |(row, kept, _): &(JobRow, bool, _)| (row.rev, *kept, Reverse(row.since));
    let ((mut row, kept, _), everywhere) = highest(records, read, rank)?;
    if !kept {
        return None;
    }
    let all = || records.iter().flatten().filter_map(read);
    // Rows from before the last removal of the job are left out. The job was added again later, so their
    // `since` is too early.
    let removed = all().filter(|(_, kept, _)| !kept).map(|(row, _, term)| (term, row.rev)).max();
    let same_schedule = all().filter(|(other, kept, term)| {
        *kept && other.schedule == row.schedule && removed.is_none_or(|removed| (*term, other.rev) > removed)
    });
    let earliest = same_schedule.map(|(other, ..)| other.since).min().unwrap_or(row.since);
    row.since = earliest.max(row.raised.unwrap_or_default());
    Some((row, everywhere))
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

/// The records that the ledger must keep for the jobs that the leader found at the seal. This leader does not
/// have some of these jobs, but a leader of another version may have them.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct NeededRecords {
    window: Duration,
    /// For each job, the time of its earliest unfinished record or open request.
    unfinished: BTreeMap<Arc<str>, WallTime>,
}

impl NeededRecords {
    pub(in crate::scheduler) fn find(sealed: &LedgerSnapshot) -> Self {
        let mut all = Self::default();
        for job in sealed.rows(JobRow::PREFIX).filter_map(|(key, _)| key.strip_prefix(JobRow::PREFIX)) {
            let Some((row, _)) = stored_row(sealed, job) else { continue };
            all.window = all.window.max(row.window.unwrap_or_default());
            sealed.unfinished(job).for_each(|(_, record)| all.hold(job, WallTime::from_micros(record.at)));
        }
        for (row, closed) in requests_in(sealed) {
            if !closed {
                all.hold(row.job(), row.oldest());
            }
        }
        all
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
        let mut needed = NeededRecords::find(&sealed(row(FOR_EVER, Some(100 * SECOND))));
        assert_eq!(needed.window(), 100 * SECOND);
        assert_eq!(needed.unfinished().collect::<Vec<_>>(), [(&"j".into(), at(11))]);
        needed.release("j");
        assert_eq!(needed.unfinished().count(), 0);
        let removed = NeededRecords::find(&sealed(row(at(5), Some(100 * SECOND))));
        assert!(removed.window().is_zero() && removed.unfinished().count() == 0, "{removed:?}");
    }

    #[test]
    fn every_row_that_cannot_be_read_is_reported_once() {
        let record = |key: Arc<str>, value: &str| {
            let at = FOR_EVER.as_micros();
            (key, Record { at, term: FencingToken::new(1), last: false, value: value.into() })
        };
        let good = JobRow::default().to_value();
        let rows = |job: &str, freeze: &str| {
            vec![
                record(JobRow::FREEZE.into(), freeze),
                record("freezer".into(), "{"),
                record(JobRow::key("good"), &good),
                record(JobRow::key("j"), job),
            ]
        };
        let keys = |nodes: [(&str, &str); 3]| {
            let nodes = nodes.map(|(job, freeze)| node(at(0), rows(job, freeze))).to_vec();
            let found = unreadable_rows(&LedgerSnapshot::new(nodes, 2, SECOND));
            found.iter().map(|(key, why)| format!("{key}: {why}")).collect::<Vec<_>>()
        };
        assert!(keys([(&good, &good); 3]).is_empty());
        let found = keys([(&good, "{"), ("{\u{1b}", "{"), ("[]", &good)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("job/j: the ledger's job row `{") && !found[0].contains('\u{1b}'),
            "{found:?}"
        );
        assert!(found[1].starts_with("freeze: ") && found[1].contains("cannot be read"), "{found:?}");
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
