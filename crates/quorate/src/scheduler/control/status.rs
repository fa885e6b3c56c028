//! Computes the status of jobs from the records of the nodes. All functions here are pure.

use crate::{
    env::WallTime,
    ledger::LedgerView,
    node::FencingToken,
    plain::plain,
    scheduler::{
        alert::{AlertKind, JobAlert},
        control::stored::{StoredDefinition, definitions},
        job::{Payload, RequestId},
        plan::planner::MARK,
        policy::Placement,
        schedule::{InvalidSchedule, Schedule, Zone},
        store::{
            Announcement, GroupFreeze, HistoryEntry, JobRow, LackedJobs, OpenRun, Paused, RunKey, RunRecord,
            WorkRow,
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The status of a job, from [`Jobs::list`](super::Jobs::list) and [`Jobs::show`](super::Jobs::show).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobStatus {
    /// The name.
    pub name: Arc<str>,
    /// The schedule, as a text for people. [`Jobs::schedule`](super::Jobs::schedule) returns it as a
    /// [`Schedule`].
    pub schedule: Arc<str>,
    /// The zone of the schedule. It is UTC also for a schedule that cannot be read from the ledger.
    pub zone: Zone,
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
    /// The handler and the last change of a job that is stored on the nodes. `None` for a job of a configuration or a
    /// program.
    pub stored: Option<StoredDefinition>,
    /// The reason why no worker can run the job now: no live worker has its handler or its labels, the leader does not have it, or no
    /// version here understands it. `None` if there is none.
    pub waits_for: Option<Arc<str>>,
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
    /// The concurrency key of the run, if a worker executes it and it has one.
    pub concurrency_key: Option<Arc<str>>,
}

/// A job, read from the rows and records of the ledger.
#[derive(Debug)]
pub(super) struct RegisteredJob {
    pub(super) row: JobRow,
    /// The last freeze of the group, which may have ended.
    pub(super) frozen: Option<Paused>,
    pub(super) running: Vec<RunStatus>,
    /// The ticks whose runs are open to workers, and that no worker has started.
    pub(super) waiting: Vec<WallTime>,
    /// The definition, if the job is stored on the nodes.
    pub(super) stored: Option<StoredDefinition>,
    /// The reason why no worker can run the job now.
    pub(super) waits_for: Option<Arc<str>>,
    /// The time up to which a leader has decided on all ticks, if the quorum's clock is behind that time because it was
    /// set back.
    pub(super) decided: Option<WallTime>,
}

impl RegisteredJob {
    /// Returns the concurrency key of the runs with the job's own payload, which is that of `whole` if the job is a part of it.
    pub(super) fn concurrency_key(&self, whole: Option<&Self>) -> Option<Arc<str>> {
        let stored = self.stored.as_ref().or(whole.and_then(|whole| whole.stored.as_ref()));
        let stored = stored.and_then(|stored| stored.job.as_ref().ok());
        let payload = stored.and_then(|job| job.payload.as_ref()).map(Payload::bytes);
        self.row.concurrency.as_ref().map(|of| of.key_of(payload))
    }

    pub(super) fn new(row: JobRow) -> Self {
        let (running, waiting) = (Vec::new(), Vec::new());
        Self { row, frozen: None, running, waiting, stored: None, waits_for: None, decided: None }
    }

    /// Returns the schedule that the job's row contains.
    pub(super) fn schedule(&self) -> Result<Schedule, InvalidSchedule> {
        schedule(&self.row)
    }

    /// Returns the zone in which people read the ticks of the job.
    pub(super) fn zone(&self) -> Zone {
        self.schedule().map(|schedule| schedule.zone().clone()).unwrap_or_default()
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
        let (next, zone) = (self.next(now), self.zone());
        let frozen = self.freeze_at(now).cloned();
        // The leader may have noted it by the time that has elapsed, before the clock shows that time.
        let noted = || self.row.health.as_ref()?.overdue.filter(|since| self.row.deadline() == Some(*since));
        let overdue_since = self.row.overdue_since(now).or_else(noted).filter(|_| frozen.is_none());
        let JobRow { schedule, rules, placement, since, paused, expect_within, health, .. } = self.row;
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
            zone,
            rules,
            placement,
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
            stored: self.stored,
            waits_for: self.waits_for,
            running: self.running,
            last,
        }
    }
}

pub(super) fn schedule(row: &JobRow) -> Result<Schedule, InvalidSchedule> {
    row.spec.as_ref().map_or(Err(InvalidSchedule::NotStored), Schedule::from_spec)
}

/// Returns the jobs in the ledger, by name. Rows of a later version, which this version cannot read, are left out.
pub(super) fn jobs(ledger: &LedgerView) -> BTreeMap<Arc<str>, RegisteredJob> {
    let mut running = running(ledger);
    let frozen = ledger.records.get(GroupFreeze::KEY).and_then(|row| GroupFreeze::parse(row).ok()?.last);
    let mut stored = definitions(ledger);
    let mut rows: BTreeMap<Arc<str>, JobRow> =
        stored.iter().map(|(name, job)| (Arc::clone(name), row_of(job))).collect();
    rows.extend(ledger.records.iter().filter_map(|(key, value)| {
        Some((key.strip_prefix(JobRow::PREFIX)?.into(), JobRow::parse(value).ok()?))
    }));
    let registered = |(name, row): (Arc<str>, JobRow)| {
        let running = running.remove(&name).unwrap_or_default();
        let (frozen, stored) = (frozen.clone(), stored.remove(&name));
        (name, RegisteredJob { frozen, running, stored, ..RegisteredJob::new(row) })
    };
    let mut jobs: BTreeMap<Arc<str>, RegisteredJob> = rows.into_iter().map(registered).collect();
    note_lacked(&mut jobs, ledger);
    note_labels(&mut jobs, ledger);
    jobs
}

/// Adds that jobs wait because no worker has the labels that they require.
fn note_labels(jobs: &mut BTreeMap<Arc<str>, RegisteredJob>, ledger: &LedgerView) {
    let mut picky = jobs.values_mut().filter(|job| !job.row.labels.is_empty()).peekable();
    if picky.peek().is_none() {
        return;
    }
    let workers = ledger.records.iter().filter(|(key, _)| key.starts_with(WorkRow::prefix()));
    let workers: Vec<Announcement> = workers.filter_map(|(_, row)| Some(WorkRow::parse(row)?.who)).collect();
    for job in picky {
        let labels = &job.row.labels;
        if job.waits_for.is_none() && !workers.iter().any(|who| labels.are_in(&who.worker, &who.labels)) {
            let why = format!(
                "no live worker has the labels that it requires: {}",
                plain(&labels.to_string(), 128)
            );
            job.waits_for = Some(why.into());
        }
    }
}

/// Returns the row of a stored job that has nothing beside its definition. One that this version cannot run has an empty row.
fn row_of(stored: &StoredDefinition) -> JobRow {
    stored.job.as_ref().map(|job| JobRow::of_stored(job, stored.since)).unwrap_or_default()
}

/// Adds why jobs wait: the leader does not have them, this version cannot run them, or no worker has their handlers.
fn note_lacked(jobs: &mut BTreeMap<Arc<str>, RegisteredJob>, ledger: &LedgerView) {
    let lacking = ledger.records.get(LackedJobs::KEY).and_then(|row| LackedJobs::parse(row));
    if let Some(LackedJobs { leader, jobs: lacked }) = &lacking {
        for job in lacked {
            if let Some(job) = jobs.get_mut(job) {
                job.waits_for = Some(format!("the leader {} does not have it", plain(leader, 128)).into());
            }
        }
    }
    if jobs.values().all(|job| job.stored.is_none()) {
        return;
    }
    let workers = ledger.records.iter().filter(|(key, _)| key.starts_with(WorkRow::prefix()));
    let workers = workers.filter_map(|(_, row)| WorkRow::parse(row));
    let handlers: BTreeSet<Arc<str>> = workers.flat_map(|row| row.who.handlers).collect();
    for job in jobs.values_mut() {
        let Some(stored) = &job.stored else { continue };
        let lacks = match &stored.job {
            Err(why) => Some(format!("it is kept on the nodes, and this version cannot run it: {why}")),
            Ok(job) => job
                .handler_name()
                .filter(|name| !handlers.contains(*name))
                .map(|name| format!("no live worker has its handler {:?}", plain(name, 128))),
        };
        job.waits_for = lacks.map(Into::into);
    }
}

/// Returns the time up to which a leader has decided on all ticks, by its mark.
pub(super) fn decided(ledger: &LedgerView) -> Option<WallTime> {
    ledger.records.get(MARK)?.parse().ok().map(WallTime::from_micros)
}

/// Returns the runs of the ledger, each with its request, if it has one.
fn runs(ledger: &LedgerView) -> impl Iterator<Item = (&Arc<str>, Option<RequestId>, RunKey, RunRecord)> {
    ledger.records.iter().filter_map(|(key, value)| {
        let (request, of) = run_of(key)?;
        Some((key, request, of, RunRecord::parse(value).ok()?))
    })
}

/// Returns the active runs that a leader executes itself, by job. The ledger has a start of such a run, and no
/// end.
fn running(ledger: &LedgerView) -> BTreeMap<Arc<str>, Vec<RunStatus>> {
    let mut running: BTreeMap<Arc<str>, Vec<RunStatus>> = BTreeMap::new();
    for (_, request, RunKey { job, tick }, record) in runs(ledger) {
        if let RunRecord::Started { worker, term, .. } = record {
            let orphaned = term < ledger.sealed_by;
            running.entry(job).or_default().push(RunStatus {
                tick,
                request,
                worker,
                term,
                orphaned,
                concurrency_key: None,
            });
        }
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
pub(super) fn open(ledger: &LedgerView) -> Vec<OpenTick> {
    let open = runs(ledger).filter_map(|(run, request, RunKey { job, tick }, record)| {
        let RunRecord::Open(open) = record else { return None };
        Some(OpenTick { run: Arc::clone(run), job, tick, request, open })
    });
    open.collect()
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
    use crate::scheduler::{Schedule, job::RunOutcome, store::StoredJob};

    fn term(number: u64) -> FencingToken {
        FencingToken::new(number)
    }

    fn row(schedule: &str) -> (Arc<str>, Arc<str>) {
        let row = JobRow { schedule: schedule.into(), ..JobRow::default() };
        (JobRow::key("j"), row.to_value())
    }

    fn run(at: u64, record: &RunRecord) -> (Arc<str>, Arc<str>) {
        (RunKey::new("j", WallTime::from_micros(at)).key(), record.to_value())
    }

    fn started(by: u64) -> RunRecord {
        RunRecord::started("a", (term(by), WallTime::default()))
    }

    fn ledger<const N: usize>(sealed_by: u64, records: [(Arc<str>, Arc<str>); N]) -> LedgerView {
        LedgerView { sealed_by: term(sealed_by), records: records.into(), ..LedgerView::default() }
    }

    #[test]
    fn each_row_that_can_be_read_is_a_job() {
        let unreadable = (JobRow::key("k"), "?".into());
        let frozen = GroupFreeze { last: Some(Paused::default()), ..GroupFreeze::default() };
        let found = jobs(&ledger(1, [row("s"), unreadable, (GroupFreeze::KEY.into(), frozen.to_value())]));
        assert_eq!(found.keys().map(|name| &**name).collect::<Vec<_>>(), ["j"]);
        assert_eq!((&*found["j"].row.schedule, &found["j"].frozen), ("s", &frozen.last));
    }

    #[test]
    fn a_stored_job_is_listed_by_its_definition_until_it_has_a_row() {
        let every = Schedule::every(Duration::from_secs(60)).unwrap();
        let job = crate::scheduler::Job::named("j", every.clone(), "h");
        let (at, id) = (WallTime::from_micros(5), RequestId::from_u128(9));
        let definition = StoredJob::new(&"me".into(), at, id, (&job.definition().unwrap(), &job));
        let definition = (StoredJob::key("j"), definition.to_value());
        let found = &jobs(&ledger(1, [definition.clone(), run(2, &started(1))]))["j"];
        assert_eq!((found.row.since, found.schedule().unwrap(), found.running.len()), (at, every, 1));
        assert!(
            found.stored.is_some() && found.waits_for.as_ref().is_some_and(|why| why.contains("handler"))
        );
        let found = &jobs(&ledger(1, [definition, row("s")]))["j"];
        assert_eq!((&*found.row.schedule, found.stored.is_some()), ("s", true));
    }

    #[test]
    fn a_run_is_active_until_its_end_is_recorded_and_orphaned_once_a_later_term_has_begun() {
        let under = (term(5), WallTime::default());
        let done = RunRecord::closed("a", (RunOutcome::Done, ""), None, under);
        let records = [row("s"), run(1, &done), run(2, &started(5)), run(3, &started(4))];
        let found = jobs(&ledger(5, records));
        let runs = found["j"].running.iter().map(|run| (run.tick.as_micros(), run.orphaned));
        assert_eq!(runs.collect::<Vec<_>>(), [(2, false), (3, true)]);
        assert_eq!(&*found["j"].running[0].worker, "a");
    }

    #[test]
    fn a_requested_run_is_shown_with_its_request() {
        let id = RequestId::from_u128(5);
        let requested = (format!("run/{id}/j/{:020}", 9).into(), started(5).to_value());
        let found = jobs(&ledger(5, [row("s"), requested]));
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
            let run = RunStatus { tick, request: None, worker, term, orphaned: false, concurrency_key: None };
            let running = if runs { vec![run] } else { Vec::new() };
            RegisteredJob { running, ..RegisteredJob::new(row) }
                .into_status("j".into(), now, Vec::new())
                .next
                .map(WallTime::as_micros)
        };
        let often = Schedule::every(second).unwrap();
        assert_eq!(next(&often, None, false, false), Some(3_000_000));
        assert_eq!(next(&often, None, false, true), Some(3_000_000), "also while a run is active");
        assert_eq!(next(&often, None, true, false), None, "a paused job has none");
        assert_eq!(
            next(&Schedule::at(WallTime::from_micros(7)), None, false, false),
            None,
            "it was due before"
        );
        let after_end = Schedule::delay(second).unwrap();
        assert_eq!(next(&after_end, None, false, false), Some(500), "no run has ended yet");
        assert_eq!(next(&after_end, Some(now), false, false), Some(3_500_000));
        assert_eq!(next(&after_end, Some(now), false, true), None, "it depends on the end of the active run");
        let row = JobRow { since: now + second, spec: often.spec(), ..JobRow::default() };
        let later = RegisteredJob::new(row).into_status("j".into(), now, Vec::new());
        assert_eq!(later.next.map(WallTime::as_micros), Some(4_000_000), "no tick before the registration");
        let no_spec = RegisteredJob::new(JobRow::default());
        assert_eq!(no_spec.schedule(), Err(InvalidSchedule::NotStored));
        assert_eq!(no_spec.into_status("j".into(), now, Vec::new()).next, None);
    }
}
