//! What the ledgers say of spread jobs: from when on each is due, which of its ticks stand, which jobs are paused. Pure.

use super::{names, record::is_skip};
use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    schedule::{Cancelled, Job, JobRow, TickKey},
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

/// The time of records that pruning never reaches: the largest that a node's Lua can compare.
const FOR_EVER: u64 = FencingToken::MAX.get();

/// A job's row in the ledger of spread ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpreadRow {
    #[serde(flatten)]
    pub(super) job: JobRow,
    /// For how many microseconds the records of its ticks are of use, by the longest that any worker said.
    #[serde(default)]
    pub(super) kept: u64,
}

/// Such a row, as it is to stand.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) key: Arc<str>,
    pub(super) row: SpreadRow,
    pub(super) seen: Option<Record>,
    /// Whether some node lacks it.
    pub(super) write: bool,
}

impl Registration {
    /// What `answers` say of `job`, whose records this worker would keep for so long. Where they say nothing it begins
    /// `now`, or as soon as a majority can answer for its ticks; and so it does under a schedule that is not the row's.
    pub(super) fn find(
        answers: &[Answered],
        job: &Job,
        kept: Duration,
        quorum: usize,
        max_clock_offset: Duration,
        now: WallTime,
    ) -> Self {
        let key = names::row(&job.name);
        let found: Vec<Option<&Record>> = answers.iter().map(|answer| at(answer, &key)).collect();
        let best = found.iter().flatten().filter_map(|record| Some((parse(record)?, *record)));
        let best = best.max_by_key(|(row, record)| (rank(row), Reverse(record.at)));
        let begins = remembered(answers, quorum, max_clock_offset).unwrap_or(now).max(now);
        let schedule: Arc<str> = job.schedule.to_string().into();
        let kept = u64::try_from(kept.as_micros()).unwrap_or(u64::MAX);
        let fresh = |rev, kept| SpreadRow {
            job: JobRow {
                since: begins,
                rev,
                schedule: Arc::clone(&schedule),
                rules: job.rules().into(),
                spread: true,
                ..JobRow::default()
            },
            kept,
        };
        let Some((mut row, record)) = best else {
            return Self { key, row: fresh(1, kept), seen: None, write: true };
        };
        let seen = Some(record.clone());
        if record.at != FOR_EVER {
            // The job had ended, and has come back.
            return Self { key, row: fresh(row.job.rev + 1, kept), seen, write: true };
        }
        let longer = kept > row.kept;
        row.kept = row.kept.max(kept);
        if row.job.schedule != schedule {
            return Self { key, row: fresh(row.job.rev + 1, row.kept), seen, write: true };
        }
        let write = longer || found.iter().any(|other| *other != Some(record));
        Self { key, row, seen, write }
    }

    /// The record to write.
    pub(super) fn record(&self) -> Record {
        let value = serde_json::to_string(&self.row).unwrap_or_default().into();
        Record { at: FOR_EVER, term: FencingToken::default(), last: false, value }
    }

    /// Another stands in the way: of two the later revision counts, and of one revision the earlier beginning; and records
    /// are kept for the longer of both.
    pub(super) fn meet(&mut self, other: Record) {
        if let Some(row) = parse(&other) {
            let kept = self.row.kept.max(row.kept);
            if rank(&row) > rank(&self.row) {
                self.row = row;
            }
            self.row.kept = kept;
        }
        self.seen = Some(other);
    }
}

/// From when on a majority of the nodes can answer for ticks.
pub(super) fn remembered(
    answers: &[Answered],
    quorum: usize,
    max_clock_offset: Duration,
) -> Option<WallTime> {
    let mut since: Vec<_> = answers.iter().map(|answer| answer.memory.since + max_clock_offset).collect();
    since.sort_unstable();
    since.get(quorum.saturating_sub(1)).copied()
}

/// Since when each tick that was run has a record here: nothing later has been forgotten, on purpose or not.
pub(super) fn complete(answers: &[Answered], quorum: usize, max_clock_offset: Duration) -> Option<WallTime> {
    let pruned = answers.iter().map(|answer| WallTime::from_micros(answer.state.low_water)).max()?;
    Some(remembered(answers, quorum, max_clock_offset)?.max(pruned))
}

/// For how long the records of any job's ticks are of use, by the rows in the ledger of spread ticks.
pub(super) fn kept(answers: &[Answered]) -> Duration {
    let records = answers.iter().flat_map(|answer| &answer.state.records);
    let rows =
        records.filter(|(key, _)| key.starts_with(JobRow::PREFIX)).filter_map(|(_, record)| parse(record));
    Duration::from_micros(rows.map(|row| row.kept).max().unwrap_or(0))
}

fn rank(row: &SpreadRow) -> (u64, Reverse<WallTime>) {
    (row.job.rev, Reverse(row.job.since))
}

fn parse(record: &Record) -> Option<SpreadRow> {
    serde_json::from_str(&record.value).ok()
}

fn at<'a>(answer: &'a Answered, key: &Arc<str>) -> Option<&'a Record> {
    let records = &answer.state.records;
    let at = records.binary_search_by(|(name, _)| name.cmp(key)).ok()?;
    Some(&records[at].1)
}

/// The ticks of each job of which some node has a record, and whether that they have ended is certain: any word of a run's
/// end is enough, a skip counts where a `quorum` of the nodes has the last word.
pub(super) fn ticks(answers: &[Answered], quorum: usize) -> BTreeMap<Arc<str>, BTreeMap<WallTime, bool>> {
    let mut lasts: BTreeMap<(Arc<str>, WallTime), usize> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        if let Ok(Some(TickKey { job, tick })) = TickKey::parse(key) {
            *lasts.entry((job, tick)).or_default() += usize::from(record.last);
        }
    }
    let records = |job: &str, tick| {
        let key = TickKey::new(job, tick).key();
        answers.iter().filter_map(move |answer| at(answer, &key))
    };
    let mut jobs: BTreeMap<Arc<str>, BTreeMap<WallTime, bool>> = BTreeMap::new();
    for ((job, tick), lasts) in lasts {
        let ended =
            lasts >= quorum || lasts > 0 && records(&job, tick).any(|record| record.last && !is_skip(record));
        jobs.entry(job).or_default().insert(tick, ended);
    }
    jobs
}

/// What the group's own ledger says of a job, which its leader keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) paused: bool,
    /// Whether its leader leaves its ticks to the workers.
    pub(super) spread: bool,
    /// Since when the job is what it is.
    pub(super) since: WallTime,
    /// Which runs are to stop.
    pub(super) cancels: Vec<Cancelled>,
}

impl Told {
    /// Who has asked for the run of `tick` to stop, whenever it begins.
    pub(super) fn cancelled(&self, tick: WallTime) -> Option<&Arc<str>> {
        self.cancels.iter().find(|one| one.tick == Some(tick)).map(|one| &one.by)
    }
}

/// Whether somebody who asked for `cancelled` meant the run of `tick` that has begun at `began`, by clocks that are so far
/// apart.
pub(super) fn means(cancelled: &Cancelled, tick: WallTime, began: WallTime, apart: Duration) -> bool {
    match cancelled.tick {
        Some(only) => only == tick,
        None => began <= cancelled.at + apart,
    }
}

/// What that ledger says of each job: of several rows of one job that of the highest term and revision counts.
pub(super) fn told(answers: &[Answered]) -> BTreeMap<Arc<str>, Told> {
    let mut rows: BTreeMap<&str, (FencingToken, JobRow)> = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        let Some(job) = key.strip_prefix(JobRow::PREFIX) else { continue };
        let Ok(row) = JobRow::parse(&record.value) else { continue };
        let newer = rows.get(job).is_none_or(|(term, known)| (*term, known.rev) < (record.term, row.rev));
        if newer {
            rows.insert(job, (record.term, row));
        }
    }
    let told = |row: JobRow| Told {
        paused: row.paused.is_some(),
        spread: row.spread,
        since: row.since,
        cancels: row.cancels,
    };
    rows.into_iter().map(|(job, (_, row))| (job.into(), told(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::Memory,
        node::LedgerState,
        schedule::{Paused, RequestId, every},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn job() -> Job {
        Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<_, String>(()) })
    }

    fn row(rev: u64, since: u64) -> SpreadRow {
        let schedule = job().schedule.to_string().into();
        SpreadRow { job: JobRow { since: at(since), rev, schedule, ..JobRow::default() }, kept: 7_000_000 }
    }

    fn record(row: &SpreadRow) -> Record {
        let value = serde_json::to_string(row).unwrap().into();
        Record { at: FOR_EVER, term: FencingToken::new(0), last: false, value }
    }

    fn node(since: u64, records: &[(&str, Record)]) -> Answered {
        let mut records: Vec<(Arc<str>, Record)> =
            records.iter().map(|(key, record)| (Arc::from(*key), record.clone())).collect();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since: at(since), max_clock_offset: SECOND };
        Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
    }

    fn find(answers: &[Answered]) -> Registration {
        Registration::find(answers, &job(), SECOND * 5, 2, SECOND, at(50))
    }

    #[test]
    fn what_nobody_knows_begins_now_or_when_a_majority_can_answer() {
        let found = find(&[node(0, &[]), node(0, &[])]);
        assert_eq!((found.row.job.since, found.row.job.rev, found.write), (at(50), 1, true));
        let young = find(&[node(60, &[]), node(0, &[]), node(70, &[])]);
        assert_eq!(young.row.job.since, at(61));
    }

    #[test]
    fn the_latest_revision_counts_then_the_earliest_beginning() {
        let rows = [row(1, 3), row(2, 9), row(2, 7)].map(|row| [("job/j", record(&row))]);
        let answers = [node(0, &rows[0]), node(0, &rows[1]), node(0, &rows[2])];
        let found = find(&answers);
        assert_eq!((found.row.job.since, found.row.job.rev, found.write), (at(7), 2, true));
        let everywhere = find(&[node(0, &rows[1]), node(0, &rows[1])]);
        assert!(!everywhere.write);
        let mut met = everywhere;
        met.meet(record(&row(2, 8)));
        assert_eq!(met.row.job.since, at(8), "the earlier");
        met.meet(record(&row(1, 1)));
        assert_eq!(met.row.job.since, at(8), "an older revision is only named as seen");
        assert_eq!(met.seen, Some(record(&row(1, 1))));
    }

    #[test]
    fn under_another_schedule_it_begins_anew() {
        let mut other = row(4, 3);
        other.job.schedule = "every 7s".into();
        let node = node(0, &[("job/j", record(&other))]);
        let found = find(&[node.clone(), node]);
        assert_eq!((found.row.job.since, found.row.job.rev, found.write), (at(50), 5, true));
    }

    #[test]
    fn records_are_kept_for_as_long_as_any_job_of_any_worker_needs_them() {
        let other = SpreadRow { kept: 9_000_000, ..row(1, 3) };
        let answers = [node(0, &[("job/j", record(&row(1, 3)))]), node(0, &[("job/k", record(&other))])];
        assert_eq!(kept(&answers), SECOND * 9);
        let find = |seconds| Registration::find(&answers[..1], &job(), SECOND * seconds, 1, SECOND, at(50));
        assert_eq!(
            (find(5).write, find(5).row.kept),
            (false, 7_000_000),
            "no shorter for those that need less"
        );
        let mut longer = find(8);
        assert_eq!((longer.write, longer.row.kept, longer.row.job.since), (true, 8_000_000, at(3)));
        longer.meet(record(&other));
        assert_eq!(longer.row.kept, 9_000_000);
        let old = Record { value: row(1, 3).job.to_value(), ..record(&other) };
        assert_eq!(kept(&[node(0, &[("job/j", old)])]), Duration::ZERO, "rows of before say nothing");
    }

    fn tick(seconds: u64, last: bool, value: &str) -> (Arc<str>, Record) {
        let record =
            Record { at: at(seconds).as_micros(), term: FencingToken::new(0), last, value: value.into() };
        (TickKey::new("j", at(seconds)).key(), record)
    }

    #[test]
    fn ticks_that_stand_are_read_from_any_node() {
        let (a, b, done) = (tick(1, false, ""), tick(2, false, ""), tick(1, true, ""));
        let stands = ticks(&[node(0, &[(&a.0, a.1), (&b.0, b.1)]), node(0, &[(&done.0, done.1)])], 2);
        assert_eq!(stands["j"], BTreeMap::from([(at(1), true), (at(2), false)]));
    }

    #[test]
    fn a_skip_that_has_no_majority_is_no_end() {
        let skip = r#"{"end":"skipped-misfire","worker":"w","token":1,"nonce":"1","at":1}"#;
        let (skip, start) = (tick(1, true, skip), tick(1, false, ""));
        let nodes = [skip.clone(), skip, start].map(|(key, record)| node(0, &[(&key, record)]));
        assert_eq!(ticks(&nodes, 2)["j"], BTreeMap::from([(at(1), true)]));
        assert_eq!(ticks(&nodes[1..], 2)["j"], BTreeMap::from([(at(1), false)]));
    }

    #[test]
    fn the_leaders_latest_row_says_whether_a_job_is_paused_and_whose_its_ticks_are() {
        let says = |term, rev, paused: bool, spread: bool| {
            let by = Paused { by: "me".into(), at: at(1) };
            let row = JobRow { paused: paused.then_some(by), spread, ..row(rev, rev).job };
            let record = Record {
                term: FencingToken::new(term),
                value: row.to_value(),
                ..record(&SpreadRow::default())
            };
            node(0, &[("job/j", record)])
        };
        let told = |answers: &[Answered]| told(answers)["j"].clone();
        assert_eq!(
            told(&[says(5, 1, true, false), says(4, 9, false, true)]),
            Told { paused: true, spread: false, since: at(1), cancels: vec![] }
        );
        assert_eq!(
            told(&[says(5, 1, true, false), says(5, 2, false, true)]),
            Told { paused: false, spread: true, since: at(2), cancels: vec![] }
        );
    }

    #[test]
    fn a_run_is_cancelled_that_had_begun_when_somebody_asked_and_a_tick_whenever_it_begins() {
        let asked = |at, tick| Cancelled { id: RequestId::from_u128(1), by: "me".into(), at, tick };
        for (tick, began, meant) in [(4, 5, true), (4, 6, true), (4, 7, false)] {
            assert_eq!(means(&asked(at(5), None), at(tick), at(began), SECOND), meant, "{began}");
        }
        for (tick, began, meant) in [(7, 99, true), (7, 0, true), (8, 0, false)] {
            assert_eq!(means(&asked(at(5), Some(at(7))), at(tick), at(began), SECOND), meant, "{tick}");
        }
        let cancels = vec![asked(at(5), None), asked(at(9), Some(at(7)))];
        let told = Told { paused: false, spread: true, since: at(0), cancels };
        assert_eq!((told.cancelled(at(7)).is_some(), told.cancelled(at(4)).is_some()), (true, false));
    }
}
