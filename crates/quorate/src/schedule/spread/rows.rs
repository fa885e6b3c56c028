//! What the ledgers say of spread jobs: from when on each is due, which of its ticks stand, which jobs are paused. Pure.

use super::names;
use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    schedule::{Job, JobRow, TickKey},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The time of records that pruning never reaches: the largest that a node's Lua can compare.
const FOR_EVER: u64 = FencingToken::MAX.get();

/// A job's row in the ledger of spread ticks, as it is to stand.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) key: Arc<str>,
    pub(super) row: JobRow,
    pub(super) seen: Option<Record>,
    /// Whether some node lacks it.
    pub(super) write: bool,
}

impl Registration {
    /// What `answers` say of `job`. Where they say nothing it begins `now`, or as soon as a majority can answer for its
    /// ticks; and so it does under a schedule that is not the row's.
    pub(super) fn find(
        answers: &[Answered],
        job: &Job,
        quorum: usize,
        max_clock_offset: Duration,
        now: WallTime,
    ) -> Self {
        let key = names::row(&job.name);
        let found: Vec<Option<&Record>> = answers.iter().map(|answer| at(answer, &key)).collect();
        let best = found.iter().flatten().filter_map(|record| Some((parse(record)?, *record)));
        let best = best.max_by_key(|(row, _)| rank(row));
        let mut since: Vec<_> = answers.iter().map(|answer| answer.memory.since + max_clock_offset).collect();
        since.sort_unstable();
        let begins = since.get(quorum.saturating_sub(1)).copied().unwrap_or(now).max(now);
        let schedule: Arc<str> = job.schedule.to_string().into();
        let fresh = |rev| JobRow {
            since: begins,
            rev,
            schedule: Arc::clone(&schedule),
            rules: job.rules().into(),
            spread: true,
            ..JobRow::default()
        };
        let Some((row, record)) = best else {
            return Self { key, row: fresh(1), seen: None, write: true };
        };
        let seen = Some(record.clone());
        if row.schedule != schedule {
            return Self { key, row: fresh(row.rev + 1), seen, write: true };
        }
        let write = found.iter().any(|other| *other != Some(record));
        Self { key, row, seen, write }
    }

    /// The record to write.
    pub(super) fn record(&self) -> Record {
        Record { at: FOR_EVER, term: FencingToken::default(), last: false, value: self.row.to_value() }
    }

    /// Another stands in the way: of two the later revision counts, and of one revision the earlier beginning.
    pub(super) fn meet(&mut self, other: Record) {
        if let Some(row) = parse(&other)
            && rank(&row) > rank(&self.row)
        {
            self.row = row;
        }
        self.seen = Some(other);
    }
}

fn rank(row: &JobRow) -> (u64, Reverse<WallTime>) {
    (row.rev, Reverse(row.since))
}

fn parse(record: &Record) -> Option<JobRow> {
    JobRow::parse(&record.value).ok()
}

fn at<'a>(answer: &'a Answered, key: &Arc<str>) -> Option<&'a Record> {
    let records = &answer.state.records;
    let at = records.binary_search_by(|(name, _)| name.cmp(key)).ok()?;
    Some(&records[at].1)
}

/// The ticks of each job of which some node has a record, and whether it is the last word.
pub(super) fn ticks(answers: &[Answered]) -> BTreeMap<Arc<str>, BTreeMap<WallTime, bool>> {
    let mut jobs: BTreeMap<Arc<str>, BTreeMap<WallTime, bool>> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        if let Ok(Some(TickKey { job, tick })) = TickKey::parse(key) {
            *jobs.entry(job).or_default().entry(tick).or_default() |= record.last;
        }
    }
    jobs
}

/// Which jobs are paused, by the rows that the leader keeps: of several rows of one job that of the highest term and
/// revision counts.
pub(super) fn paused(answers: &[Answered]) -> BTreeSet<Arc<str>> {
    let mut rows: BTreeMap<&str, (FencingToken, JobRow)> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        let Some(job) = key.strip_prefix(JobRow::PREFIX) else { continue };
        let Some(row) = parse(record) else { continue };
        let newer = rows.get(job).is_none_or(|(term, known)| (*term, known.rev) < (record.term, row.rev));
        if newer {
            rows.insert(job, (record.term, row));
        }
    }
    let paused = rows.into_iter().filter(|(_, (_, row))| row.paused.is_some());
    paused.map(|(job, _)| Arc::from(job)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::Memory,
        node::LedgerState,
        schedule::{Paused, every},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn job() -> Job {
        Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<_, String>(()) })
    }

    fn row(rev: u64, since: u64) -> JobRow {
        JobRow { since: at(since), rev, schedule: job().schedule.to_string().into(), ..JobRow::default() }
    }

    fn record(row: &JobRow) -> Record {
        Record { at: FOR_EVER, term: FencingToken::new(0), last: false, value: row.to_value() }
    }

    fn node(since: u64, records: &[(&str, Record)]) -> Answered {
        let mut records: Vec<(Arc<str>, Record)> =
            records.iter().map(|(key, record)| (Arc::from(*key), record.clone())).collect();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since: at(since), max_clock_offset: SECOND };
        Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
    }

    fn find(answers: &[Answered]) -> Registration {
        Registration::find(answers, &job(), 2, SECOND, at(50))
    }

    #[test]
    fn what_nobody_knows_begins_now_or_when_a_majority_can_answer() {
        let found = find(&[node(0, &[]), node(0, &[])]);
        assert_eq!((found.row.since, found.row.rev, found.write), (at(50), 1, true));
        let young = find(&[node(60, &[]), node(0, &[]), node(70, &[])]);
        assert_eq!(young.row.since, at(61));
    }

    #[test]
    fn the_latest_revision_counts_then_the_earliest_beginning() {
        let rows = [row(1, 3), row(2, 9), row(2, 7)].map(|row| [("job/j", record(&row))]);
        let answers = [node(0, &rows[0]), node(0, &rows[1]), node(0, &rows[2])];
        let found = find(&answers);
        assert_eq!((found.row.since, found.row.rev, found.write), (at(7), 2, true));
        let everywhere = find(&[node(0, &rows[1]), node(0, &rows[1])]);
        assert!(!everywhere.write);
        let mut met = everywhere;
        met.meet(record(&row(2, 8)));
        assert_eq!(met.row.since, at(8), "the earlier");
        met.meet(record(&row(1, 1)));
        assert_eq!(met.row.since, at(8), "an older revision is only named as seen");
        assert_eq!(met.seen, Some(record(&row(1, 1))));
    }

    #[test]
    fn under_another_schedule_it_begins_anew() {
        let other = JobRow { schedule: "every 7s".into(), ..row(4, 3) };
        let node = node(0, &[("job/j", record(&other))]);
        let found = find(&[node.clone(), node]);
        assert_eq!((found.row.since, found.row.rev, found.write), (at(50), 5, true));
    }

    #[test]
    fn ticks_that_stand_and_jobs_that_are_paused_are_read_from_any_node() {
        let tick = |seconds: u64, last| {
            let record =
                Record { at: at(seconds).as_micros(), term: FencingToken::new(0), last, value: "".into() };
            (TickKey::new("j", at(seconds)).key(), record)
        };
        let (a, b, done) = (tick(1, false), tick(2, false), tick(1, true));
        let stands = ticks(&[node(0, &[(&a.0, a.1), (&b.0, b.1)]), node(0, &[(&done.0, done.1)])]);
        assert_eq!(stands["j"], BTreeMap::from([(at(1), true), (at(2), false)]));
        let pause = |term, rev, paused: bool| {
            let by = Paused { by: "me".into(), at: at(1) };
            let row = JobRow { paused: paused.then_some(by), ..row(rev, 1) };
            node(0, &[("job/j", Record { term: FencingToken::new(term), ..record(&row) })])
        };
        assert_eq!(paused(&[pause(5, 1, true), pause(4, 9, false)]).len(), 1);
        assert_eq!(paused(&[pause(5, 1, true), pause(5, 2, false)]).len(), 0);
    }
}
