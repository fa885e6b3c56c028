//! Computes the status of jobs from the records of the nodes. All functions here are pure.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{
        control::request::RequestId,
        plan::verdict::rank,
        policy::Placement,
        schedule::{InvalidSchedule, Schedule},
        store::{FOR_EVER, HistoryEntry, JobRow, OpenRun, RunKey, RunRecord},
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
    /// The schedule, as a text for people. [`Jobs::schedule`](super::Jobs::schedule) returns the schedule
    /// itself.
    pub schedule: Arc<str>,
    /// The rules of the job, such as its misfire and overlap rules, as a text for people.
    pub rules: Arc<str>,
    /// The workers that may run the job's ticks.
    pub placement: Placement,
    /// The time from which the job's ticks count. It is the time at which the job, or its present schedule or
    /// placement, was first registered, or at which the job was last resumed.
    pub registered: WallTime,
    /// The time since when the job has been paused. `None` if it is not paused.
    pub paused_at: Option<WallTime>,
    /// The requester of the pause: the name of a worker, or USER@HOST.
    pub paused_by: Option<Arc<str>>,
    /// The reason of the pause, in the words of its requester.
    pub pause_reason: Option<Arc<str>>,
    /// The time at which the pause ends; `None` if the job stays paused until it is resumed.
    pub paused_until: Option<WallTime>,
    /// The next tick. `None` if the job is paused without an end, is never due again, has a timetable that only its workers
    /// can compute, or if the tick depends on the end of a run that is active.
    pub next: Option<WallTime>,
    /// The active runs, oldest first: those that have started and not ended.
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

/// A run whose start is recorded and whose end is not.
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
    /// The term under which the run was started, or first opened to workers.
    pub term: FencingToken,
    /// True if the term or the claim under which a worker executed the run has ended, so that no worker
    /// executes it any more. A leader then repeats the run or records it as lost.
    pub orphaned: bool,
}

/// A job as the rows and records of the ledger describe it.
#[derive(Debug)]
pub(super) struct RegisteredJob {
    pub(super) row: JobRow,
    pub(super) running: Vec<RunStatus>,
    /// The ticks that are open to workers, and that no worker has taken.
    pub(super) waiting: Vec<WallTime>,
}

impl RegisteredJob {
    /// Returns the schedule that the row contains.
    pub(super) fn schedule(&self) -> Result<Schedule, InvalidSchedule> {
        self.row.spec.as_ref().map_or(Err(InvalidSchedule::NotStored), Schedule::from_spec)
    }

    /// Returns the next tick after `now`. Returns `None` if there is none, or if the ledger does not show it.
    fn next(&self, now: WallTime) -> Option<WallTime> {
        let row = &self.row;
        let schedule = self.schedule().ok()?;
        let resumed = match &row.paused {
            Some(paused) => paused.until? - Duration::from_micros(1),
            None => row.since,
        };
        if !schedule.is_after_end() {
            return schedule.next_after(now.max(row.since).max(resumed));
        }
        let tick = match row.ended {
            _ if !self.running.is_empty() => None,
            Some(end) => schedule.next_after_end(end),
            None => schedule.first(row.since),
        };
        tick.map(|tick| if row.paused.is_some() { tick.max(resumed) } else { tick })
    }

    /// Returns the status of the job called `name` at `now`. `last` are the newest entries of its history.
    pub(super) fn into_status(self, name: Arc<str>, now: WallTime, last: Vec<HistoryEntry>) -> JobStatus {
        let next = self.next(now);
        let JobRow { schedule, rules, any_worker, since, paused, .. } = self.row;
        let paused = paused.as_ref();
        JobStatus {
            name,
            schedule,
            rules,
            placement: if any_worker { Placement::AnyWorker } else { Placement::Leader },
            registered: since,
            paused_at: paused.map(|paused| paused.at),
            paused_by: paused.map(|paused| Arc::clone(&paused.by)),
            pause_reason: paused.and_then(|paused| paused.reason.clone()),
            paused_until: paused.and_then(|paused| paused.until),
            next,
            running: self.running,
            last,
        }
    }
}

/// Returns the jobs in the ledger, by name. If there are several rows of one job, the one with the highest
/// term and revision counts.
pub(super) fn jobs(answers: &[Answered]) -> BTreeMap<Arc<str>, RegisteredJob> {
    let mut rows: BTreeMap<&str, ((FencingToken, u64), JobRow, bool)> = BTreeMap::new();
    for (key, record) in records(answers) {
        let Some(name) = key.strip_prefix(JobRow::PREFIX) else { continue };
        // A row that this version cannot read, because a later version wrote it, is left out.
        let Ok(row) = JobRow::parse(&record.value) else { continue };
        let rank = (record.term, row.rev);
        // At the removal of a job, its row is written with a time that pruning will reach. The row of any other
        // job has the time `FOR_EVER`.
        let found = (rank, row, record.at == FOR_EVER.as_micros());
        match rows.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(found)),
            Entry::Occupied(mut entry) if entry.get().0 < rank => drop(entry.insert(found)),
            Entry::Occupied(_) => {}
        }
    }
    let mut running = running(answers);
    rows.into_iter()
        .filter(|(_, (_, _, is_kept))| *is_kept)
        .map(|(name, (_, row, _))| {
            let running = running.remove(name).unwrap_or_default();
            (name.into(), RegisteredJob { row, running, waiting: Vec::new() })
        })
        .collect()
}

/// Returns, for each key, the record that decides: the one of the highest [`rank`] among the nodes' records.
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

/// Returns the runs that a leader executes itself: runs that have a start in the ledger and no end. The runs
/// are grouped by job.
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

/// Returns the runs that are open to workers, whether or not a worker has taken them.
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

/// Returns the run to which a key of the ledger belongs: `tick/JOB/MICROS`, or `run/ID/JOB/MICROS` for a
/// requested run. Returns `None` for other keys.
fn run_of(key: &str) -> Option<(Option<RequestId>, RunKey)> {
    if let Some(rest) = key.strip_prefix("run/") {
        let (id, rest) = rest.split_once('/')?;
        let key = RunKey::parse(&format!("tick/{rest}")).ok()??;
        return Some((Some(RequestId::parse(id)?), key));
    }
    Some((None, RunKey::parse(key).ok()??))
}

/// Returns the name among `names` that is most similar to `word`, if it is similar enough to be suggested.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
    // A long word is not compared. The time and memory to compute a distance grow with the product of the two
    // lengths, and callers choose `word`.
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
    use crate::scheduler::{
        schedule::{at, delay, every},
        store::Paused,
    };
    use crate::{ledger::Memory, node::LedgerState};

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
            RegisteredJob { row, running, waiting: Vec::new() }
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
        let later = RegisteredJob { row, running: Vec::new(), waiting: Vec::new() }.into_status(
            "j".into(),
            now,
            Vec::new(),
        );
        assert_eq!(later.next.map(WallTime::as_micros), Some(4_000_000), "no tick before the registration");
        let no_spec = RegisteredJob { row: JobRow::default(), running: Vec::new(), waiting: Vec::new() };
        assert_eq!(no_spec.schedule(), Err(InvalidSchedule::NotStored));
        assert_eq!(no_spec.into_status("j".into(), now, Vec::new()).next, None);
    }
}
