//! Computes the status of jobs from the records of the nodes. All functions here are pure.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{
        alert::{AlertKind, JobAlert},
        job::RequestId,
        plan::planner::MARK,
        policy::Placement,
        schedule::{InvalidSchedule, Schedule},
        store::{FOR_EVER, HistoryEntry, JobRow, OpenRun, Paused, RunKey, RunRecord, verdict::rank},
    },
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

/// The status of a job, from [`Jobs::list`](super::Jobs::list) and [`Jobs::show`](super::Jobs::show).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobStatus {
    /// The name.
    pub name: Arc<str>,
    /// The schedule, as a text for people. [`Jobs::schedule`](super::Jobs::schedule) returns it as a
    /// [`Schedule`].
    pub schedule: Arc<str>,
    /// The rules of the job, such as its misfire and overlap rules, as a text for people.
    pub rules: Arc<str>,
    /// The workers that may run the job's ticks.
    pub placement: Placement,
    /// The time from which the job's ticks count. It is the time at which the job was first registered, at
    /// which its present schedule or placement was registered, or at which the job was last resumed, whichever
    /// is latest.
    pub registered: WallTime,
    /// The time since which the job has been paused. `None` if the job is not paused.
    pub paused_at: Option<WallTime>,
    /// The requester of the pause: the name of a worker, or `USER@HOST`.
    pub paused_by: Option<Arc<str>>,
    /// The reason of the pause, as the requester gave it.
    pub pause_reason: Option<Arc<str>>,
    /// The time at which the pause ends; `None` if the job stays paused until it is resumed.
    pub paused_until: Option<WallTime>,
    /// True if the job does not run because its group is frozen. If the job is not paused itself, the other fields
    /// about the pause describe the freeze.
    pub frozen: bool,
    /// The time within which the job is expected to succeed again, from [`Job::expect_within`](crate::scheduler::Job::expect_within).
    pub expect_within: Option<Duration>,
    /// The time since which the job is overdue. `None` if it is not.
    pub overdue_since: Option<WallTime>,
    /// The tick of the first run that failed since the last success. `None` if the last run succeeded, or if
    /// `quorate run` sends no notifications of the job.
    pub failing_since: Option<WallTime>,
    /// The alerts that the leader has not reported yet, the oldest first.
    #[doc(hidden)]
    pub alerts: Vec<JobAlert>,
    /// The next tick. It is `None` in these cases:
    ///
    /// * The job is paused without an end.
    /// * The schedule has no further tick.
    /// * The schedule is a timetable, which only the workers of the job can compute.
    /// * The next tick depends on the end of an active run.
    pub next: Option<WallTime>,
    /// The runs that have started and not ended, the oldest first.
    pub running: Vec<RunStatus>,
    /// The newest entries of the job's history, newest first: five from [`Jobs::show`](super::Jobs::show),
    /// one from [`Jobs::list`](super::Jobs::list), or none if the list is long.
    pub last: Vec<HistoryEntry>,
}

impl JobStatus {
    /// Returns whether the job is paused.
    pub const fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }
}

/// A run that has a recorded start, and no recorded end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunStatus {
    /// The tick of the run: the time at which the job was due, or the time of the request that triggered the
    /// run.
    pub tick: WallTime,
    /// The request that made the run, if it is a requested run.
    pub request: Option<RequestId>,
    /// The worker that started the run.
    pub worker: Arc<str>,
    /// The term under which the leader executes the run, or first opened it to workers.
    pub term: FencingToken,
    /// True if no worker executes the run any more, because the term or the claim under which it was executed
    /// has ended. A leader will repeat the run or record it as lost.
    pub orphaned: bool,
}

/// A job, read from the rows and records of the ledger.
#[derive(Debug)]
pub(super) struct RegisteredJob {
    pub(super) row: JobRow,
    /// The last freeze of the group, which may have ended.
    pub(super) frozen: Option<Paused>,
    pub(super) running: Vec<RunStatus>,
    /// The ticks whose runs are open to workers, and that no worker has taken.
    pub(super) waiting: Vec<WallTime>,
    /// The time up to which a leader has decided on all ticks, if the quorum's clock is behind that time because it was
    /// set back.
    pub(super) decided: Option<WallTime>,
}

impl RegisteredJob {
    /// Returns the schedule that the job's row contains.
    pub(super) fn schedule(&self) -> Result<Schedule, InvalidSchedule> {
        schedule(&self.row)
    }

    /// Returns the next tick after `now`. Returns `None` if there is no such tick, or if it cannot be computed
    /// from the ledger.
    fn next(&self, now: WallTime) -> Option<WallTime> {
        let row = &self.row;
        let schedule = self.schedule().ok()?;
        let mut resumed = row.since;
        for paused in row.paused.iter().chain(&self.frozen) {
            resumed = resumed.max(paused.until? - Duration::from_micros(1));
        }
        if !schedule.is_after_end() {
            let decided = self.decided.unwrap_or_default();
            return schedule.next_after(now.max(row.since).max(resumed).max(decided));
        }
        let tick = match row.ended {
            _ if !self.running.is_empty() => None,
            Some(end) => schedule.next_after_end(end),
            None => schedule.first(row.since),
        };
        let is_paused = row.paused.is_some() || self.freeze_at(now).is_some();
        tick.map(|tick| if is_paused { tick.max(resumed) } else { tick })
    }

    /// Returns the alert that the job is overdue at `now`, unless the leader has reported it. A frozen job is not overdue.
    pub(super) fn overdue(mut self, name: &Arc<str>, now: WallTime) -> Option<JobAlert> {
        if self.freeze_at(now).is_some() {
            return None;
        }
        self.row.note_overdue(name, now);
        let health = self.row.health?;
        let is_it = |alert: &JobAlert| alert.kind == AlertKind::Overdue && Some(alert.at) == health.overdue;
        health.alerts.iter().rfind(|alert| is_it(alert)).cloned()
    }

    /// Returns the freeze of the group, if it has not ended at `at`.
    pub(super) fn freeze_at(&self, at: WallTime) -> Option<&Paused> {
        self.frozen.as_ref().filter(|frozen| frozen.ended(at).is_none())
    }

    /// Returns the status of the job called `name` at `now`. `last` are the newest entries of the job's
    /// history.
    pub(super) fn into_status(self, name: Arc<str>, now: WallTime, last: Vec<HistoryEntry>) -> JobStatus {
        let next = self.next(now);
        let frozen = self.freeze_at(now).cloned();
        // The leader may have noted it by the time that has elapsed, before the clock shows that time.
        let noted = || self.row.health.as_ref()?.overdue.filter(|since| self.row.deadline() == Some(*since));
        let overdue_since = self.row.overdue_since(now).or_else(noted).filter(|_| frozen.is_none());
        let JobRow { schedule, rules, any_worker, since, paused, expect_within, health, .. } = self.row;
        let health = health.unwrap_or_default();
        // A job that is paused until a time runs no earlier than at the end of the freeze.
        let until = match (&paused, &frozen) {
            (Some(paused), Some(frozen)) => paused.until.zip(frozen.until).map(|(own, end)| own.max(end)),
            (one, other) => one.as_ref().or(other.as_ref()).and_then(|paused| paused.until),
        };
        let paused = paused.as_ref().or(frozen.as_ref());
        JobStatus {
            name,
            schedule,
            rules,
            placement: if any_worker { Placement::AnyWorker } else { Placement::Leader },
            registered: since,
            paused_at: paused.map(|paused| paused.at),
            paused_by: paused.map(|paused| Arc::clone(&paused.by)),
            pause_reason: paused.and_then(|paused| paused.reason.clone()),
            paused_until: until,
            frozen: frozen.is_some(),
            expect_within,
            overdue_since,
            failing_since: health.failing,
            alerts: health.alerts,
            next,
            running: self.running,
            last,
        }
    }
}

/// Returns the schedule that a row contains.
pub(super) fn schedule(row: &JobRow) -> Result<Schedule, InvalidSchedule> {
    row.spec.as_ref().map_or(Err(InvalidSchedule::NotStored), Schedule::from_spec)
}

/// Returns the row that counts, of those that nodes store for one job. `None` if they store none, or if the job was
/// removed.
pub(super) fn newest_row<'a>(records: impl Iterator<Item = &'a Record>) -> Option<JobRow> {
    let rows = records.filter_map(|record| Some((record, JobRow::parse(&record.value).ok()?)));
    let (record, row) = rows.max_by_key(|(record, row)| (record.term, row.rev))?;
    is_kept(record).then_some(row)
}

/// Returns whether the job of a row exists. When a job is removed, its row is written with a time, so that pruning
/// removes it. The row of any other job has the time `FOR_EVER`.
fn is_kept(record: &Record) -> bool {
    record.at == FOR_EVER.as_micros()
}

/// Returns the jobs in the ledger, by name. If the nodes have several rows of a job, the row with the highest
/// term and revision counts.
pub(super) fn jobs(answers: &[Answered]) -> BTreeMap<Arc<str>, RegisteredJob> {
    let mut rows: BTreeMap<&str, ((FencingToken, u64), JobRow, bool)> = BTreeMap::new();
    for (key, record) in records(answers) {
        let Some(name) = key.strip_prefix(JobRow::PREFIX) else { continue };
        // This version cannot read rows that a later version wrote. Such a row is left out.
        let Ok(row) = JobRow::parse(&record.value) else { continue };
        let rank = (record.term, row.rev);
        let found = (rank, row, is_kept(record));
        match rows.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(found)),
            Entry::Occupied(mut entry) if entry.get().0 < rank => drop(entry.insert(found)),
            Entry::Occupied(_) => {}
        }
    }
    let mut running = running(answers);
    let frozen = freeze(answers);
    rows.into_iter()
        .filter(|(_, (_, _, is_kept))| *is_kept)
        .map(|(name, (_, row, _))| {
            let running = running.remove(name).unwrap_or_default();
            let frozen = frozen.clone();
            (name.into(), RegisteredJob { row, frozen, running, waiting: Vec::new(), decided: None })
        })
        .collect()
}

/// Returns the last freeze of the group, which may have ended.
fn freeze(answers: &[Answered]) -> Option<Paused> {
    let rows = records(answers).filter(|(key, _)| *key == JobRow::FREEZE);
    newest_freeze(rows.map(|(_, record)| record))
}

/// Returns the time up to which a leader has decided on all ticks, by its mark.
pub(super) fn decided(answers: &[Answered]) -> Option<WallTime> {
    let marks = records(answers).filter(|(key, _)| *key == MARK);
    let (_, newest) = marks.max_by_key(|(_, record)| record.term)?;
    newest.value.parse().ok().map(WallTime::from_micros)
}

/// Returns the freeze in the row that counts, of the rows that nodes store.
pub(super) fn newest_freeze<'a>(rows: impl Iterator<Item = &'a Record>) -> Option<Paused> {
    let rows = rows.filter_map(|record| Some((record.term, JobRow::parse(&record.value).ok()?)));
    rows.max_by_key(|(term, row)| (*term, row.rev)).and_then(|(_, row)| row.paused)
}

/// Returns the deciding record of each key: the record of the highest [`rank`] that a node has.
fn newest(answers: &[Answered]) -> BTreeMap<&str, &Record> {
    let mut newest: BTreeMap<&str, &Record> = BTreeMap::new();
    for (key, record) in records(answers) {
        let known = newest.entry(key).or_insert(record);
        if rank(record) > rank(known) {
            *known = record;
        }
    }
    newest
}

/// Returns the active runs that a leader executes itself, by job. The ledger has a start of such a run, and no
/// end.
fn running(answers: &[Answered]) -> BTreeMap<Arc<str>, Vec<RunStatus>> {
    let sealed_by = answers.iter().map(|answer| answer.state.term).max().unwrap_or_default();
    let mut running: BTreeMap<Arc<str>, Vec<RunStatus>> = BTreeMap::new();
    for (key, record) in newest(answers) {
        let Some((request, RunKey { job, tick })) = run_of(key) else { continue };
        let Ok(RunRecord::Started { worker }) = RunRecord::parse(&record.value) else { continue };
        let orphaned = record.term < sealed_by;
        running.entry(job).or_default().push(RunStatus {
            tick,
            request,
            worker,
            term: record.term,
            orphaned,
        });
    }
    for runs in running.values_mut() {
        runs.sort_by_key(|run| (run.tick, run.request));
    }
    running
}

/// A run that the leader has opened to workers.
#[derive(Debug, PartialEq)]
pub(super) struct OpenTick {
    pub(super) run: Arc<str>,
    pub(super) job: Arc<str>,
    pub(super) tick: WallTime,
    pub(super) request: Option<RequestId>,
    pub(super) open: OpenRun,
}

/// Returns the runs that the leader has opened to workers, including those that a worker has taken.
pub(super) fn open(answers: &[Answered]) -> Vec<OpenTick> {
    let open = newest(answers).into_iter().filter_map(|(key, record)| {
        let (request, RunKey { job, tick }) = run_of(key)?;
        let Ok(RunRecord::Open(open)) = RunRecord::parse(&record.value) else { return None };
        Some(OpenTick { run: key.into(), job, tick, request, open })
    });
    open.collect()
}

fn records(answers: &[Answered]) -> impl Iterator<Item = (&str, &Record)> {
    answers.iter().flat_map(|answer| &answer.state.records).map(|(key, record)| (&**key, record))
}

/// Returns the run to which a key of the ledger belongs. The key of a tick's run is `tick/JOB/MICROS`, and the
/// key of a requested run is `run/ID/JOB/MICROS`. Returns `None` for other keys.
fn run_of(key: &str) -> Option<(Option<RequestId>, RunKey)> {
    if let Some(rest) = key.strip_prefix("run/") {
        let (id, rest) = rest.split_once('/')?;
        let key = RunKey::parse(&format!("tick/{rest}")).ok()??;
        return Some((Some(RequestId::parse(id)?), key));
    }
    Some((None, RunKey::parse(key).ok()??))
}

/// Returns the name of `names` that is most similar to `word`. Returns `None` if no name is similar enough to
/// be suggested.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
    // A long word is not compared, because a caller can choose `word`, and the cost of a comparison grows with
    // the product of the two lengths.
    if word.len() > 64 {
        return None;
    }
    let fold = |name: &str| name.to_lowercase().replace('_', "-");
    let word = fold(word);
    let distance = |name: &Arc<str>| strsim::damerau_levenshtein(&fold(name), &word);
    let (near, distance) = names.map(|name| (name, distance(name))).min_by_key(|(_, distance)| *distance)?;
    (distance <= 3 && distance * 2 < word.len().max(2)).then(|| Arc::clone(near))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::Memory,
        node::LedgerState,
        scheduler::{
            schedule::{at, delay, every},
            store::Paused,
        },
    };

    fn term(number: u64) -> FencingToken {
        FencingToken::new(number)
    }

    fn row(rev: u64, schedule: &str, at: u64) -> (Arc<str>, Record) {
        let value = format!(r#"{{"since":7,"rev":{rev},"schedule":"{schedule}","rules":""}}"#).into();
        (JobRow::key("j"), Record { at: FOR_EVER.as_micros(), term: term(at), last: false, value })
    }

    fn tick(at: u64, record: RunRecord, by: u64) -> (Arc<str>, Record) {
        let tick = WallTime::from_micros(at);
        (RunKey::new("j", tick).key(), record.into_record(tick, term(by)))
    }

    fn node(sealed_by: u64, records: &[(Arc<str>, Record)]) -> Answered {
        let mut records = records.to_vec();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let memory = Memory { since: WallTime::default(), max_clock_offset: Duration::ZERO };
        Answered { memory, state: LedgerState { term: term(sealed_by), records, ..LedgerState::default() } }
    }

    #[test]
    fn of_several_rows_the_highest_term_and_then_revision_counts() {
        let schedule = |answers: &[Answered]| jobs(answers)["j"].row.schedule.to_string();
        assert_eq!(schedule(&[node(1, &[row(9, "old", 1)]), node(1, &[row(2, "new", 2)])]), "new");
        assert_eq!(schedule(&[node(1, &[row(2, "old", 2)]), node(1, &[row(3, "new", 2)])]), "new");
        assert_eq!(schedule(&[node(1, &[row(3, "new", 2)]), node(1, &[row(2, "old", 2)])]), "new");
        let mut removed = row(5, "gone", 2);
        removed.1.at = 7;
        assert_eq!(
            jobs(&[node(1, &[row(4, "old", 2)]), node(1, &[removed])]).len(),
            0,
            "a job that was removed"
        );
        let garbage = (JobRow::key("k"), Record { value: "?".into(), ..row(1, "", 1).1 });
        assert_eq!(jobs(&[node(1, &[garbage])]).len(), 0);
    }

    #[test]
    fn a_row_that_is_read_alone_is_the_one_that_counts_among_all() {
        let newest = |rows: &[(Arc<str>, Record)]| {
            let alone = newest_row(rows.iter().map(|(_, record)| record)).map(|row| row.schedule);
            let answers: Vec<_> = rows.iter().map(|row| node(1, std::slice::from_ref(row))).collect();
            let among_all = jobs(&answers).remove("j").map(|job| job.row.schedule);
            assert_eq!(alone, among_all);
            alone.map(|schedule| schedule.to_string())
        };
        assert_eq!(newest(&[row(9, "old", 1), row(2, "new", 2)]).as_deref(), Some("new"));
        assert_eq!(newest(&[row(3, "new", 2), row(2, "old", 2)]).as_deref(), Some("new"));
        let mut removed = row(5, "gone", 2);
        removed.1.at = 7;
        assert_eq!(newest(&[row(4, "old", 2), removed]), None, "a job that was removed");
        let garbage = (JobRow::key("j"), Record { value: "?".into(), ..row(9, "", 9).1 });
        assert_eq!(newest(&[row(1, "readable", 1), garbage]).as_deref(), Some("readable"));
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn the_record_of_the_highest_term_decides_which_runs_are_active() {
        let (started, done) = (RunRecord::started("a"), RunRecord::done("a", Duration::ZERO, ""));
        let run = jobs(&[
            node(
                5,
                &[
                    row(1, "s", 5),
                    tick(1, started.clone(), 5),
                    tick(2, started.clone(), 5),
                    tick(3, started.clone(), 4),
                    tick(4, started.clone(), 5),
                ],
            ),
            node(5, &[tick(1, done.clone(), 5), tick(3, started, 3), tick(4, done, 4)]),
        ]);
        let runs: Vec<_> = run["j"].running.iter().map(|run| (run.tick.as_micros(), run.orphaned)).collect();
        assert_eq!(
            runs,
            [(2, false), (3, true), (4, false)],
            "the term of the third is older than that of the seal"
        );
        assert_eq!(&*run["j"].running[0].worker, "a");
    }

    #[test]
    fn a_requested_run_is_shown_with_its_request() {
        let id = RequestId::from_u128(5);
        let (_, record) = tick(9, RunRecord::started("a"), 5);
        let found = jobs(&[node(5, &[row(1, "s", 5), (format!("run/{id}/j/{:020}", 9).into(), record)])]);
        assert_eq!(found["j"].running[0].request, Some(id));
        assert_eq!(found["j"].running[0].tick, WallTime::from_micros(9));
    }

    #[test]
    fn a_similar_name_is_suggested() {
        let names: Vec<Arc<str>> = vec!["nightly-report".into(), "beat".into()];
        let near = |word: &str| nearest(word, names.iter()).map(|name| name.to_string());
        assert_eq!(near("nightly_reprot").as_deref(), Some("nightly-report"));
        assert_eq!(near("baet").as_deref(), Some("beat"));
        assert_eq!(near("weekly"), None);
        assert_eq!(near(&"b".repeat(100)), None);
    }

    #[test]
    fn the_status_has_the_next_tick_unless_the_job_is_paused_or_waits_for_an_end() {
        let second = Duration::from_secs(1);
        let (since, now) = (WallTime::from_micros(500), WallTime::from_micros(2_500_000));
        let next = |schedule: &Schedule, ended: Option<WallTime>, paused: bool, runs: bool| {
            let paused = paused.then(|| Paused { by: "me".into(), at: now, ..Paused::default() });
            let row = JobRow { since, spec: schedule.spec(), ended, paused, ..JobRow::default() };
            let (tick, worker, term) = (now, "a".into(), term(1));
            let run = RunStatus { tick, request: None, worker, term, orphaned: false };
            let running = if runs { vec![run] } else { Vec::new() };
            RegisteredJob { row, frozen: None, running, waiting: Vec::new(), decided: None }
                .into_status("j".into(), now, Vec::new())
                .next
                .map(WallTime::as_micros)
        };
        let often = every(second).unwrap();
        assert_eq!(next(&often, None, false, false), Some(3_000_000));
        assert_eq!(next(&often, None, false, true), Some(3_000_000), "also while a run is active");
        assert_eq!(next(&often, None, true, false), None, "a paused job has none");
        assert_eq!(next(&at(WallTime::from_micros(7)), None, false, false), None, "it was due before");
        let after_end = delay(second).unwrap();
        assert_eq!(next(&after_end, None, false, false), Some(500), "no run has ended yet");
        assert_eq!(next(&after_end, Some(now), false, false), Some(3_500_000));
        assert_eq!(next(&after_end, Some(now), false, true), None, "it depends on the end of the active run");
        let row = JobRow { since: now + second, spec: often.spec(), ..JobRow::default() };
        let later =
            RegisteredJob { row, frozen: None, running: Vec::new(), waiting: Vec::new(), decided: None }
                .into_status("j".into(), now, Vec::new());
        assert_eq!(later.next.map(WallTime::as_micros), Some(4_000_000), "no tick before the registration");
        let no_spec = RegisteredJob {
            row: JobRow::default(),
            frozen: None,
            running: Vec::new(),
            waiting: Vec::new(),
            decided: None,
        };
        assert_eq!(no_spec.schedule(), Err(InvalidSchedule::NotStored));
        assert_eq!(no_spec.into_status("j".into(), now, Vec::new()).next, None);
    }
}
