//! The content of the ledger that a leader has taken over. The leader uses it for the rest of its term.

use crate::{
    env::WallTime,
    ledger::{Adopted, FOUNDED},
    node::FencingToken,
    scheduler::{
        job::{RequestId, RunOutcome},
        policy::Delivery,
        store::{
            AssignedTo, JobRow, REQUESTED_PREFIX, RecordError, RequestRow, RunKey, RunRecord, TICK_PREFIX,
            job_and_tick,
            verdict::{Decision, SkipReason},
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    ops::Bound,
    sync::Arc,
};

/// The prefixes of the keys of runs.
const RUN_PREFIXES: [&str; 2] = [TICK_PREFIX, REQUESTED_PREFIX];
/// The key of the row with the time before which the leader removes the records of runs, in microseconds since the epoch.
pub(in crate::scheduler) const LOW_WATER: &str = "low_water";

/// The prefix of the keys of the states that runs save for the later runs of their jobs.
pub(in crate::scheduler) const STATE_PREFIX: &str = "state/";

/// Returns the key of the state of a job.
pub(in crate::scheduler) fn state_key(job: &str) -> Arc<str> {
    format!("{STATE_PREFIX}{job}").into()
}

/// The number of records after which the construction yields to other tasks.
const RECORDS_PER_TURN: usize = 1_000;

/// The content of the ledger, as the leader has adopted it. The leader notes the states of jobs that it has stored since, and the
/// runs that it has closed.
///
/// The leader has every record that an earlier one may have acted on. So a run without a record has not started, unless it is
/// earlier than the founding of the ledger, or was removed.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct LedgerSnapshot {
    runs: BTreeMap<Arc<str>, RunRecord>,
    /// For each job, the spans of ticks that one closed record closes: the first tick by the last one.
    spans: BTreeMap<Arc<str>, BTreeMap<WallTime, WallTime>>,
    /// The values under all keys that are not those of runs.
    rows: BTreeMap<Arc<str>, Arc<str>>,
    /// The ledger was founded at this time, after a majority of the nodes had forgotten it. Runs up to this time may have been
    /// started without a record that is left.
    founded_at: WallTime,
    /// The term of the leader that founded the ledger.
    founded: FencingToken,
    /// Records of runs before this time may have been removed.
    low_water: WallTime,
}

/// Returns a map of very many records. Most comparisons of keys end with their first bytes, which are read from memory once.
fn by_key<T>(records: Vec<(Arc<str>, T)>) -> BTreeMap<Arc<str>, T> {
    let first_bytes = |key: &str| {
        let mut bytes = [[0; 16]; 2];
        let both = bytes.as_flattened_mut().iter_mut().zip(key.bytes());
        both.for_each(|(to, byte)| *to = byte);
        bytes.map(u128::from_be_bytes)
    };
    let mut keyed: Vec<_> =
        records.into_iter().map(|(key, record)| (first_bytes(&key), key, record)).collect();
    keyed.sort_by(|(a, one, _), (b, two, _)| a.cmp(b).then_with(|| one.cmp(two)));
    keyed.into_iter().map(|(_, key, record)| (key, record)).collect()
}

/// Returns whether `value` under `key` is the record of a run that belongs to a time before `mark`.
pub(in crate::scheduler) fn is_outdated(key: &str, value: &str, mark: WallTime) -> bool {
    let is_run = RUN_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    is_run && RunRecord::parse(value).is_ok_and(|record| record.at() < mark)
}

/// The leader's decision on a run, and the record on which the decision is based.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) struct Decided {
    pub(in crate::scheduler) decision: Decision,
    /// The record of the run, if there is one and it is not closed.
    pub(in crate::scheduler) seen: Option<RunRecord>,
    /// True if the run has no record, but may have been started.
    pub(in crate::scheduler) unknown: bool,
}

impl LedgerSnapshot {
    /// Builds the snapshot from the records that the leader has adopted. They may be many, so the construction yields to
    /// other tasks from time to time.
    pub(in crate::scheduler) async fn take(adopted: Adopted) -> Self {
        let mut sealed = Self { founded: adopted.founded, ..Self::default() };
        let (mut runs, mut rows) = (Vec::new(), Vec::new());
        for (number, (key, entry)) in adopted.records.into_iter().enumerate() {
            sealed.add(Arc::clone(key.text()), entry.value, &mut runs, &mut rows);
            if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        (sealed.runs, sealed.rows) = (by_key(runs), by_key(rows));
        sealed.find_spans();
        sealed
    }

    fn add(
        &mut self,
        key: Arc<str>,
        value: Arc<str>,
        runs: &mut Vec<(Arc<str>, RunRecord)>,
        rows: &mut Vec<(Arc<str>, Arc<str>)>,
    ) {
        let time = || value.parse().map(WallTime::from_micros).unwrap_or_default();
        if RUN_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
            let started = |at| RunRecord::started("", (FencingToken::default(), at));
            let record = match RunRecord::parse(&value) {
                // The ledger was founded since then. A later record, by which a worker started the run, may be lost.
                Ok(RunRecord::Open(open)) if open.term < self.founded => started(open.at),
                Ok(record) => record,
                // A record of a later version, which this version cannot read, says that the run may have been started.
                Err(_) => started(WallTime::default()),
            };
            runs.push((key, record));
        } else if *key == *FOUNDED {
            self.founded_at = time();
        } else if *key == *LOW_WATER {
            self.low_water = time();
        } else {
            rows.push((key, value));
        }
    }

    /// Lists the spans of ticks that one record closes.
    fn find_spans(&mut self) {
        for (key, record) in &self.runs {
            let RunRecord::Closed { from: Some(first), .. } = record else { continue };
            if let Ok(Some(RunKey { job, tick })) = RunKey::parse(key) {
                self.spans.entry(job).or_default().insert(tick, *first);
            }
        }
    }

    /// Decides on the run under `key`. `at` is the earliest time at which a record of the run may have been
    /// written, and `due` the earliest time at which it may have been started.
    pub(in crate::scheduler) fn decide(
        &self,
        delivery: Delivery,
        key: &Arc<str>,
        at: WallTime,
        due: WallTime,
    ) -> Decided {
        let seen = self.runs.get(key);
        if seen.is_some_and(RunRecord::is_closed) {
            return Decided { decision: Decision::Skip(SkipReason::Final), seen: None, unknown: false };
        }
        if seen.is_none() && at < self.low_water {
            return Decided { decision: Decision::Skip(SkipReason::Pruned), seen: None, unknown: false };
        }
        let unknown = seen.is_none() && !self.knows(due);
        let decision = match (seen, delivery) {
            (Some(RunRecord::Started { .. }), Delivery::AtMostOnce) => Decision::Skip(SkipReason::Started),
            (None, Delivery::AtMostOnce) if unknown => Decision::Skip(SkipReason::Unknown),
            _ => Decision::Run,
        };
        Decided { decision, seen: seen.cloned(), unknown }
    }

    /// Returns whether an earlier leader closed a tick that has no record of its own, with the record of a later
    /// tick.
    pub(in crate::scheduler) fn is_closed_with_later(&self, job: &str, tick: WallTime) -> bool {
        let mut later = self.spans.get(job).into_iter().flat_map(|spans| spans.range(tick..));
        later.any(|(_, first)| *first <= tick)
    }

    /// Returns whether the ledger has the record of every run since `at` that may have been started.
    pub(in crate::scheduler) fn knows(&self, at: WallTime) -> bool {
        self.founded_at < at
    }

    /// Returns the time from which the ticks of a new job count, if the job is registered at `now`.
    pub(in crate::scheduler) fn begins(&self, now: WallTime) -> WallTime {
        now.max(self.founded_at)
    }

    /// Returns the ticks of a job that have a record without an end, each with its record.
    pub(in crate::scheduler) fn unfinished(
        &self,
        job: &str,
    ) -> impl Iterator<Item = (WallTime, RunRecord)> + '_ {
        let open = self.of_job(job).filter(|(_, record)| !record.is_closed());
        open.filter_map(|(key, record)| Some((RunKey::parse(key).ok()??.tick, record.clone())))
    }

    /// Returns the runs of all jobs that have not ended, each with its record. Jobs that this leader does not have are
    /// among them.
    pub(in crate::scheduler) fn open_runs(&self) -> impl Iterator<Item = (&Arc<str>, &RunRecord)> {
        self.runs.iter().filter(|(_, record)| !record.is_closed())
    }

    /// Returns the assignment of the run `key`, if it is open and assigned.
    pub(in crate::scheduler) fn assigned_to(&self, key: &str) -> Option<&AssignedTo> {
        match self.runs.get(key)? {
            RunRecord::Open(open) => open.to.as_ref(),
            _ => None,
        }
    }

    /// Returns the time of the founding: runs of before it are known only as far as its nodes had records.
    pub(in crate::scheduler) fn founded_at(&self) -> WallTime {
        self.founded_at
    }

    /// Returns the ended ticks of a job, the newest first, each with its record.
    pub(in crate::scheduler) fn ended(&self, job: &str) -> impl Iterator<Item = (WallTime, &RunRecord)> + '_ {
        let ended = self.of_job(job).rev().filter(|(_, record)| record.is_closed());
        ended.filter_map(|(key, record)| Some((RunKey::parse(key).ok()??.tick, record)))
    }

    /// Returns the ended requested runs of all jobs, each with its key and its record.
    pub(in crate::scheduler) fn ended_on_request(&self) -> impl Iterator<Item = (&Arc<str>, &RunRecord)> {
        let from = (Bound::Included(REQUESTED_PREFIX), Bound::Unbounded);
        let requested =
            self.runs.range::<str, _>(from).take_while(|(key, _)| key.starts_with(REQUESTED_PREFIX));
        requested.filter(|(_, record)| record.is_closed())
    }

    fn of_job(&self, job: &str) -> btree_map::Range<'_, Arc<str>, RunRecord> {
        self.between(job, WallTime::default(), WallTime::from_micros(u64::MAX))
    }

    fn between(
        &self,
        job: &str,
        first: WallTime,
        last: WallTime,
    ) -> btree_map::Range<'_, Arc<str>, RunRecord> {
        let (first, last) = (RunKey::new(job, first).key(), RunKey::new(job, last).key());
        self.runs.range::<str, _>((Bound::Included(&*first), Bound::Included(&*last)))
    }

    /// Returns the spans of a job's ticks between `first` and `last`, both included, that have a record, or that
    /// the record of a later tick closes. They are sorted by their first ticks, and may overlap.
    pub(in crate::scheduler) fn recorded(
        &self,
        job: &str,
        first: WallTime,
        last: WallTime,
    ) -> Vec<(WallTime, WallTime)> {
        let ticks = self.between(job, first, last);
        let ticks =
            ticks.filter_map(|(key, _)| Some(RunKey::parse(key).ok()??.tick)).map(|tick| (tick, tick));
        let spans = self.spans.get(job).into_iter().flat_map(|spans| spans.range(first..));
        let spans = spans.map(|(until, from)| (*from, *until)).filter(|(from, _)| *from <= last);
        let mut recorded: Vec<_> = ticks.chain(spans).collect();
        recorded.sort_unstable();
        recorded
    }

    /// Returns the last tick of a job before `before` that has a record.
    pub(in crate::scheduler) fn last_before(&self, job: &str, before: WallTime) -> Option<WallTime> {
        let first = RunKey::new(job, WallTime::default()).key();
        let end = RunKey::new(job, before).key();
        let mut of_job = self.runs.range::<str, _>((Bound::Included(&*first), Bound::Excluded(&*end)));
        RunKey::parse(of_job.next_back()?.0).ok()?.map(|key| key.tick)
    }

    /// Returns the row of a job.
    ///
    /// # Errors
    /// [`RecordError`] if the row cannot be read.
    pub(in crate::scheduler) fn job_row(&self, job: &str) -> Result<Option<JobRow>, RecordError> {
        self.row(&JobRow::key(job)).map(|row| JobRow::parse(row)).transpose()
    }

    pub(in crate::scheduler) fn requests(&self) -> impl Iterator<Item = RequestRow> {
        self.rows(RequestId::PREFIX).filter_map(|(_, row)| serde_json::from_str(row).ok())
    }

    /// Returns the state that a run of the job has saved for the job's later runs.
    pub(in crate::scheduler) fn state(&self, job: &str) -> Option<Arc<str>> {
        self.row(&state_key(job)).cloned()
    }

    /// Notes the state that a run of the job has saved, and that this leader stores.
    pub(in crate::scheduler) fn set_state(&mut self, job: &str, text: Arc<str>) {
        self.rows.insert(state_key(job), text);
    }

    /// Removes the state of the job, which this leader removes from the ledger.
    pub(in crate::scheduler) fn take_state(&mut self, job: &str) -> Option<Arc<str>> {
        self.rows.remove(&*state_key(job))
    }

    pub(in crate::scheduler) fn row(&self, key: &str) -> Option<&Arc<str>> {
        self.rows.get(key)
    }

    /// Returns the rows whose keys begin with `prefix`.
    pub(in crate::scheduler) fn rows<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.rows.range::<str, _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Returns the names of the jobs that have records of runs.
    pub(in crate::scheduler) fn jobs_with_runs(&self) -> BTreeSet<&str> {
        let jobs = self.runs.keys().filter_map(|key| Some(job_and_tick(key)?.0));
        // The keys are sorted, so most repetitions follow one another.
        let mut last = None;
        jobs.filter(|job| last.replace(*job) != Some(*job)).collect()
    }

    /// Removes the records of a job's runs, and the rows under the keys `rows`, from the snapshot. The leader has removed
    /// them from the ledger.
    pub(in crate::scheduler) fn forget(&mut self, job: &str, rows: &[Arc<str>]) {
        let ticks: Vec<Arc<str>> = self.of_job(job).map(|(key, _)| Arc::clone(key)).collect();
        ticks.iter().for_each(|key| drop(self.runs.remove(key)));
        self.spans.remove(job);
        rows.iter().for_each(|key| drop(self.rows.remove(key)));
    }

    /// Notes that this leader has closed a run, so that the leader makes no further decision on the run.
    /// Returns the time of the run's record, if the ledger had one.
    pub(in crate::scheduler) fn settle(&mut self, key: &str, end: RunOutcome) -> Option<WallTime> {
        let known = self.runs.get_mut(key)?;
        let (worker, at) = (known.worker().cloned().unwrap_or_default(), known.at());
        *known = RunRecord::closed(&worker, (end, ""), None, (known.term(), at));
        Some(at)
    }
}

#[cfg(test)]
pub(in crate::scheduler) mod tests {
    use super::*;
    use crate::ledger::copies::{Entry, Key, Takeover};
    use futures_util::FutureExt;
    use std::time::Duration;

    pub(in crate::scheduler) const SECOND: Duration = Duration::from_secs(1);

    pub(in crate::scheduler) fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    pub(in crate::scheduler) fn snapshot(
        records: impl IntoIterator<Item = (Arc<str>, Arc<str>)>,
    ) -> LedgerSnapshot {
        let entry = |(key, value)| (Key::from(&key), Entry { value, assignment: None });
        let takeover = Takeover::Continue { mark: FencingToken::new(1) };
        let founded = FencingToken::new(1);
        let adopted = Adopted { founded, takeover, records: records.into_iter().map(entry).collect() };
        LedgerSnapshot::take(adopted).now_or_never().expect("few records")
    }

    pub(in crate::scheduler) fn tick_record(tick: u64, term: u64, closed: bool) -> (Arc<str>, Arc<str>) {
        let under = (FencingToken::new(term), at(tick));
        let record = match closed {
            true => RunRecord::closed("old", (RunOutcome::Done, ""), Some(SECOND), under),
            false => RunRecord::started("old", under),
        };
        (RunKey::new("j", at(tick)).key(), record.to_value())
    }

    /// Returns the snapshot of a ledger with a *started* record for each tick in `started`, and a closed record for each tick
    /// in `done`.
    pub(in crate::scheduler) fn sealed(started: &[u64], done: &[u64]) -> LedgerSnapshot {
        let open = started.iter().map(|&tick| tick_record(tick, 1, false));
        snapshot(open.chain(done.iter().map(|&tick| tick_record(tick, 1, true))))
    }

    /// Returns the snapshot of a ledger that was founded at the time 10, with records from the time 5 on.
    pub(in crate::scheduler) fn founded() -> LedgerSnapshot {
        let time = |seconds| Arc::from(at(seconds).as_micros().to_string());
        snapshot([(FOUNDED.into(), time(10)), (LOW_WATER.into(), time(5))])
    }

    fn decided(sealed: &LedgerSnapshot, delivery: Delivery, tick: u64) -> (Decision, bool) {
        let Decided { decision, unknown, .. } =
            sealed.decide(delivery, &RunKey::new("j", at(tick)).key(), at(tick), at(tick));
        (decision, unknown)
    }

    #[test]
    fn the_record_of_a_run_decides_and_without_one_the_run_has_not_started() {
        let sealed = sealed(&[5], &[6]);
        for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
            assert_eq!(decided(&sealed, delivery, 4), (Decision::Run, false), "no record");
            assert_eq!(decided(&sealed, delivery, 6), (Decision::Skip(SkipReason::Final), false));
        }
        assert_eq!(decided(&sealed, Delivery::AtLeastOnce, 5), (Decision::Run, false));
        assert_eq!(decided(&sealed, Delivery::AtMostOnce, 5), (Decision::Skip(SkipReason::Started), false));
        assert_eq!(sealed.unfinished("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(5)]);
        assert_eq!(sealed.ended("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(6)]);
    }

    #[test]
    fn runs_before_the_founding_may_have_started_and_those_below_the_mark_may_have_ended() {
        let sealed = founded();
        assert_eq!(decided(&sealed, Delivery::AtLeastOnce, 10), (Decision::Run, true));
        assert_eq!(decided(&sealed, Delivery::AtMostOnce, 10), (Decision::Skip(SkipReason::Unknown), true));
        assert_eq!(decided(&sealed, Delivery::AtMostOnce, 11), (Decision::Run, false));
        assert_eq!(decided(&sealed, Delivery::AtLeastOnce, 4), (Decision::Skip(SkipReason::Pruned), false));
        assert_eq!((sealed.begins(at(3)), sealed.begins(at(12))), (at(10), at(12)));
    }

    #[test]
    fn a_record_that_cannot_be_read_says_that_the_run_may_have_started() {
        let sealed = snapshot([(RunKey::new("j", at(5)).key(), "of a later version".into())]);
        assert_eq!(decided(&sealed, Delivery::AtMostOnce, 5), (Decision::Skip(SkipReason::Started), false));
    }

    #[test]
    fn the_record_of_a_span_closes_each_of_its_ticks() {
        let missed =
            RunRecord::closed("w", (RunOutcome::SkippedMisfire, ""), None, (FencingToken::new(1), at(6)));
        let missed = missed.closing_from(Some(at(4))).to_value();
        let sealed = snapshot([(RunKey::new("j", at(6)).key(), missed)]);
        let closed: Vec<bool> = (3..8).map(|tick| sealed.is_closed_with_later("j", at(tick))).collect();
        assert_eq!(closed, [false, true, true, true, false]);
        assert_eq!(sealed.recorded("j", at(0), at(9)), [(at(4), at(6)), (at(6), at(6))]);
    }

    #[test]
    fn jobs_whose_names_share_a_prefix_are_distinguished_and_the_last_tick_is_found() {
        let other = (RunKey::new("j2", at(3)).key(), tick_record(3, 1, false).1);
        let sealed = snapshot([tick_record(2, 1, false), tick_record(9, 1, true), other]);
        assert_eq!(sealed.unfinished("j").map(|(tick, _)| tick).collect::<Vec<_>>(), [at(2)]);
        assert_eq!(sealed.last_before("j", at(9)), Some(at(2)));
        assert_eq!(sealed.last_before("j", at(10)), Some(at(9)));
        assert_eq!(sealed.last_before("j", at(2)), None);
    }

    #[test]
    fn a_forgotten_job_loses_its_ticks_and_its_rows_and_no_others() {
        let row = |key: &str| (Arc::from(key), Arc::from("{}"));
        let mut sealed = snapshot([tick_record(5, 1, true), row("job/j"), row("job/other")]);
        sealed.forget("j", &["job/j".into()]);
        assert_eq!((sealed.last_before("j", at(9)), sealed.row("job/j")), (None, None));
        assert_eq!(sealed.rows("").count(), 1);
    }

    #[test]
    fn a_run_that_this_leader_has_closed_is_not_unfinished() {
        let mut sealed = sealed(&[5], &[]);
        sealed.settle(&RunKey::new("j", at(5)).key(), RunOutcome::Lost);
        assert_eq!(decided(&sealed, Delivery::AtLeastOnce, 5), (Decision::Skip(SkipReason::Final), false));
        assert_eq!((sealed.unfinished("j").count(), sealed.open_runs().count()), (0, 0));
    }
}
