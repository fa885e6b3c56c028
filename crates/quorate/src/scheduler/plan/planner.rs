//! The leader's decisions, as a pure state machine: the planner takes each event with its time, and collects the
//! effects that the event loop carries out.

use crate::{
    env::WallTime,
    measure::JobsMeasures,
    node::FencingToken,
    scheduler::{
        alert::JobAlert,
        job::{Job, RequestId},
        plan::{
            definitions::Definitions,
            effect::Effect,
            every_jobs::EveryJobs,
            job_id::JobId,
            job_table::JobTable,
            known_jobs::{NeededRecords, jobs_in_ledger, row_keys, warn_unreadable},
            led_job::{LedJob, RemovedJob},
            reporter::Reporter,
            requests::Requests,
            unknown_runs::UnknownRuns,
        },
        run::assign::LiveWorker,
        store::{
            GroupFreeze, JobRow, LackedJobs,
            record_life::{AHEAD_MAX, held, kept, low_water, window},
            snapshot::LedgerSnapshot,
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

mod definitions;
mod every;
mod followers;
mod jobs;
mod pauses;
mod reports;
mod requests;
mod run_end;

/// The largest number of jobs that the planner handles in one call. Between two calls other tasks can run, such
/// as the renewal of the lease.
const JOBS_AT_ONCE: usize = 100;
/// The longest time for which a due job waits for jobs that are due shortly after it. Runs that start together share
/// the calls to the nodes, and a call costs much more than one run in it.
const GROUPED: Duration = Duration::from_millis(4);
/// The key of the mark. The mark is a row that stores the time up to which the leader has made decisions on all
/// ticks.
pub(in crate::scheduler) const MARK: &str = "looked";

/// The leader's settings, which the planner needs.
#[derive(Debug)]
pub(in crate::scheduler) struct LeaderSettings {
    pub(in crate::scheduler) group: Arc<str>,
    pub(in crate::scheduler) worker: Arc<str>,
    pub(in crate::scheduler) term: FencingToken,
    pub(in crate::scheduler) max_clock_offset: Duration,
    /// The TTL of the leader's lease.
    pub(in crate::scheduler) ttl: Duration,
    /// The largest number of runs that the leader executes at once.
    pub(in crate::scheduler) max_running: usize,
    pub(in crate::scheduler) measures: JobsMeasures,
    /// The mechanisms that a test leaves out.
    pub(in crate::scheduler) left_out: LeftOut,
}

/// The mechanisms of the planner that a test leaves out.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct LeftOut {
    /// The limits of concurrency keys.
    pub(in crate::scheduler) keys: bool,
    /// The records of runs that follow others.
    pub(in crate::scheduler) followed: bool,
    /// The failed runs in a row that an earlier leader has counted.
    pub(in crate::scheduler) failures: bool,
    /// The removal of the rows of stored jobs.
    pub(in crate::scheduler) removals: bool,
}

/// The planner of one term.
#[derive(Debug)]
pub(in crate::scheduler) struct Planner {
    group: Arc<str>,
    sealed: LedgerSnapshot,
    table: JobTable,
    /// The jobs that are stored on the nodes.
    definitions: Definitions,
    /// The jobs whose definitions a majority has not confirmed yet, with the requests that store them. A new one starts no run.
    unconfirmed: BTreeMap<Arc<str>, RequestId>,
    /// The names of the jobs of this process.
    own: BTreeSet<Arc<str>>,
    every: EveryJobs,
    /// The jobs that the leader removed in this term.
    removed: BTreeMap<Arc<str>, RemovedJob>,
    freeze: GroupFreeze,
    requests: Requests,
    unknown_runs: UnknownRuns,
    needed: NeededRecords,
    reporter: Reporter,
    /// Jobs that wait to be taken over, or to replace the leader's job of the same name.
    to_take: VecDeque<Arc<Job>>,
    /// Jobs that were added to this leader during its term, while it watched open runs of them as runs of
    /// unknown jobs. The leader takes each job over once the tasks that watch these runs have ended.
    deferred: BTreeMap<Arc<str>, Arc<Job>>,
    /// True once the leader has taken over the open requests, and the jobs that it had when its term began.
    is_complete: bool,
    /// The time up to which the previous leader made decisions on all ticks.
    marked: Option<WallTime>,
    /// The time up to which this leader has made decisions on all ticks.
    decided: Option<WallTime>,
    /// The leader opens a run to workers this long before the run's tick.
    ahead: Duration,
    /// True if the limit of a concurrency key has changed.
    limits_changed: bool,
    /// True if the row with the jobs that the leader lacks must be looked at.
    lacks_stale: bool,
    /// The row with the jobs that the leader lacks, as the ledger has it.
    lacks: Option<Arc<str>>,
    /// True once the warning was logged that the ledger drops records of unfinished runs. The leader logs this
    /// warning only once.
    warned: bool,
    left_out: LeftOut,
    max_clock_offset: Duration,
    measures: JobsMeasures,
    /// The effects that the event loop has not taken yet.
    effects: Vec<Effect>,
}

impl Planner {
    pub(in crate::scheduler) fn new(
        sealed: LedgerSnapshot,
        definitions: Definitions,
        settings: LeaderSettings,
    ) -> Self {
        let LeaderSettings { group, worker, term, ttl, max_clock_offset, max_running, measures, left_out } =
            settings;
        let freeze = sealed
            .row(GroupFreeze::KEY)
            .map_or_else(|| Ok(GroupFreeze::default()), |row| GroupFreeze::parse(row));
        let freeze = freeze.unwrap_or_else(|why| {
            warn_unreadable(&group, GroupFreeze::KEY, &why);
            GroupFreeze::default()
        });
        let lacks = sealed.row(LackedJobs::KEY).filter(|row| !row.is_empty()).cloned();
        Self {
            group,
            every: EveryJobs::new(LiveWorker::of_ledger(&sealed)),
            marked: sealed.row(MARK).and_then(|at| at.parse().ok()).map(WallTime::from_micros),
            sealed,
            table: JobTable::new(max_running, left_out.keys, measures.clone()),
            left_out,
            definitions,
            unconfirmed: BTreeMap::new(),
            own: BTreeSet::new(),
            removed: BTreeMap::new(),
            freeze,
            requests: Requests::default(),
            unknown_runs: UnknownRuns::default(),
            needed: NeededRecords::default(),
            reporter: Reporter::new(worker, term),
            to_take: VecDeque::new(),
            deferred: BTreeMap::new(),
            is_complete: false,
            decided: None,
            ahead: (ttl * 2).min(AHEAD_MAX),
            limits_changed: false,
            lacks_stale: true,
            lacks,
            warned: false,
            max_clock_offset,
            measures,
            effects: Vec::new(),
        }
    }

    /// Takes the effects of the decisions since the last call, in the order in which they must be carried out.
    #[must_use]
    pub(in crate::scheduler) fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.effects)
    }

    /// Returns the jobs of the leader, with their timers and the runs that wait.
    pub(in crate::scheduler) fn table(&self) -> &JobTable {
        &self.table
    }

    /// Returns whether jobs wait to be taken over.
    pub(in crate::scheduler) fn has_jobs_to_take(&self) -> bool {
        !self.to_take.is_empty()
    }

    /// Returns whether the leader has taken over the jobs and the requests that existed when its term began.
    /// Before that, the leader must not accept requests, because it may not have their jobs yet. It must not
    /// prune either, because a job may still need old records.
    pub(in crate::scheduler) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the time at which the next jobs are handled. Jobs that are due within [`GROUPED`] are handled together.
    /// A job that is due alone is not delayed.
    pub(in crate::scheduler) fn next_group(&self) -> Option<WallTime> {
        self.table.timers().next_group(GROUPED)
    }

    /// Returns the jobs that are stored on the nodes.
    pub(in crate::scheduler) fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Compares the leader's jobs with those of the registry and those on the nodes. Removes the jobs that are in neither.
    /// If both have a job of one name, that of the nodes counts. New and changed jobs then wait until [`Planner::take_over`] takes them over.
    pub(in crate::scheduler) fn change(&mut self, jobs: &BTreeMap<Arc<str>, Arc<Job>>, now: WallTime) {
        let (definitions, worker) = (&self.definitions, self.reporter.worker());
        let (refused, own): (Vec<_>, Vec<_>) = jobs.values().partition(|job| definitions.contains(&job.name));
        for job in refused {
            tracing::error!(
                group = &*self.group,
                job = &*job.name,
                "the job of this worker {worker} (its configuration or program) is not run: a job of this name is stored on the \
                 nodes; remove one of them, or rename it"
            );
        }
        self.own = own.iter().map(|job| Arc::clone(&job.name)).collect();
        let jobs: Vec<Arc<Job>> = own.into_iter().chain(definitions.jobs()).cloned().collect();
        self.every.clear();
        let jobs: Vec<Arc<Job>> = jobs.iter().flat_map(|job| self.every.put(job)).collect();
        let is_present = |name: &Arc<str>| {
            self.own.contains(name) || self.definitions.contains(name) || self.every.has_part(name)
        };
        let gone = self.table.names().filter(|(name, _)| !is_present(name)).map(|(_, id)| id);
        let gone: Vec<JobId> = gone.collect();
        for id in gone {
            self.remove(id, now);
        }
        self.to_take.clear();
        self.take(jobs);
        self.deferred.clear();
        self.lacks_stale = true;
    }

    /// Writes which jobs of the ledger the leader does not have. Their ticks do not run while it leads, so clients show it.
    fn note_lacked(&mut self) {
        let mut jobs = self.unknown_jobs();
        self.measures.not_led(jobs.len());
        let row = (!jobs.is_empty()).then(|| {
            tracing::warn!(
                group = &*self.group,
                jobs = jobs.len(),
                "this leader does not have {}: no tick of a job that only other workers have runs while it leads; give all \
                 workers the same jobs, or store the jobs on the nodes",
                jobs.iter().take(5).map(|job| &**job).collect::<Vec<_>>().join(", ")
            );
            jobs.truncate(LackedJobs::NAMED_MAX);
            LackedJobs { leader: Arc::clone(self.reporter.worker()), jobs }.to_value()
        });
        let key = || LackedJobs::KEY.into();
        match &row {
            same if *same == self.lacks => return,
            Some(value) => self.effects.push(Effect::PutRow { key: key(), value: Arc::clone(value) }),
            None => self.effects.push(Effect::RemoveRow { key: key() }),
        }
        self.lacks = row;
    }

    /// Takes over some of the waiting jobs. Once no job waits, takes over the open requests too, and starts to
    /// watch the open runs of jobs that the leader does not have.
    pub(in crate::scheduler) fn take_over(&mut self, now: WallTime) {
        for _ in 0..JOBS_AT_ONCE {
            let Some(job) = self.to_take.pop_front() else { break };
            if self.unknown_runs.release(&job.name, &mut self.effects) {
                self.deferred.insert(Arc::clone(&job.name), job);
            } else if let Some(id) = self.table.id(&job.name) {
                self.replace(id, job, now);
            } else {
                self.register(job, now);
            }
        }
        if self.to_take.is_empty() && mem::take(&mut self.lacks_stale) {
            self.note_lacked();
        }
        if self.to_take.is_empty() && !mem::replace(&mut self.is_complete, true) {
            let is_known = |job: &str| knows(&self.table, &self.removed, job);
            self.needed.add_unknown(&self.group, &self.sealed, is_known);
            for (job, row) in self.definitions.not_run() {
                self.needed.add_not_run(job, row, &self.sealed);
            }
            self.resume_requests(now);
            let is_known = |job: &str| knows(&self.table, &self.removed, job);
            for key in self.unknown_runs.watch(&self.sealed, is_known, &mut self.effects) {
                self.table.use_key(&key);
            }
            self.settle_parts(now);
        }
    }

    /// Decides on the ticks of the jobs that are due. Returns true if more jobs are due.
    pub(in crate::scheduler) fn plan_due(&mut self, now: WallTime) -> bool {
        for _ in 0..JOBS_AT_ONCE {
            let Some(id) = self.table.pop_due(now) else { break };
            self.plan(id, now);
        }
        let more = self.table.timers().next().is_some_and(|at| at <= now);
        if !more && self.to_take.is_empty() && self.deferred.is_empty() {
            self.decided = self.decided.max(Some(now));
        }
        more
    }

    /// Notes the jobs that are overdue at `now`. Call this while the clock by which jobs are due stands behind the time
    /// that has elapsed; otherwise [`Planner::plan_due`] does the same. One call notes some of the jobs, and the next
    /// call the others.
    pub(in crate::scheduler) fn note_overdue(&mut self, now: WallTime) {
        let overdue = self.table.names().map(|(_, id)| id);
        let overdue = overdue.filter(|id| self.table.get(*id).is_some_and(|job| job.becomes_overdue(now)));
        let overdue: Vec<JobId> = overdue.take(JOBS_AT_ONCE).collect();
        for id in overdue {
            self.change_row(id, |job| job.note_overdue(now));
        }
    }

    /// Starts waiting runs in their order, up to the limit of concurrent runs.
    pub(in crate::scheduler) fn start_ready(&mut self, now: WallTime) {
        // A job that is not taken over yet may have open runs.
        if mem::take(&mut self.limits_changed) {
            self.table.wake_keys();
        }
        let is_taking = !self.is_complete || !self.to_take.is_empty();
        self.table.hold_keys(is_taking);
        self.table.hold_wholes(is_taking || !self.every.is_known(), self.every.names());
        while let Some(id) = self.table.pop_ready() {
            self.start(id, now);
        }
    }

    /// Handles the end of the write of a new job's row.
    pub(in crate::scheduler) fn registered(&mut self, id: JobId) {
        self.table.registered(id);
    }

    /// Handles the event that an alert was reported: removes it from the job's row.
    pub(in crate::scheduler) fn alert_reported(&mut self, alert: &JobAlert) {
        if let Some(id) = self.table.id(&alert.job) {
            self.change_row(id, |job| job.alert_reported(alert));
        }
    }

    /// Writes the mark, unless the leader has not yet decided on all ticks that are due. The next leader reports a
    /// tick as missed if the tick is later than the mark, older than the misfire window, and has no record.
    pub(in crate::scheduler) fn mark(&mut self) {
        let Some(decided) = self.decided else { return };
        let waiting = self.table.jobs().filter_map(LedJob::first_waiting).min();
        let waits = waiting.map(|tick| tick - Duration::from_micros(1));
        let value = waits.map_or(decided, |tick| tick.min(decided)).as_micros().to_string().into();
        self.effects.push(Effect::PutRow { key: MARK.into(), value });
    }

    /// Returns the low-water mark. The ledger may prune the records before this time, because no job needs
    /// them. There is one exception: the ledger keeps the record of an unfinished run only for a limited time,
    /// and then prunes it too.
    pub(in crate::scheduler) fn low_water(&mut self, now: WallTime) -> WallTime {
        let unfinished = self.table.jobs().filter_map(LedJob::oldest);
        // For its own jobs, the leader computes which records they need. For all other jobs, it keeps the
        // unfinished records that it found at the seal, because a later leader may have these jobs.
        let of_others = self.needed.unfinished().filter(|(job, _)| !self.knows(job)).map(|(_, at)| at);
        let oldest = unfinished.chain(self.requests.oldest()).chain(of_others).min();
        let led = || self.table.jobs().map(|led| &**led.job());
        let offset = self.max_clock_offset;
        let kept_here = kept(led().map(window).max().unwrap_or_default(), offset);
        let wanted = oldest.unwrap_or(now).min(now - kept(self.needed.window(), offset));
        let mark = low_water(now, kept_here, Some(wanted), held(led()));
        if oldest.is_some_and(|oldest| oldest < mark) && !mem::replace(&mut self.warned, true) {
            tracing::warn!(
                group = &*self.group,
                "the ledger forgets runs that have been unfinished for too long: the next leader does not run them again"
            );
        }
        mark
    }

    /// Handles the event that the nodes have pruned the records before `mark`. Drops the data of each removed job that
    /// has no records left and no active run.
    pub(in crate::scheduler) fn pruned(&mut self, mark: WallTime) {
        let running: BTreeSet<&str> = self.table.jobs().map(|led| &*led.job().name).collect();
        let is_over = |(job, removed): &(&Arc<str>, &RemovedJob)| {
            removed.is_forgotten(mark) && !running.contains(&***job)
        };
        let over: Vec<Arc<str>> =
            self.removed.iter().filter(is_over).map(|(job, _)| Arc::clone(job)).collect();
        for job in over {
            let rows = row_keys(&self.sealed, &job);
            self.sealed.forget(&job, &rows);
            self.removed.remove(&job);
            self.needed.release(&job);
        }
    }

    /// Returns the jobs that the ledger has and the leader does not have. The leader checks which of them have
    /// ended, and calls [`Planner::jobs_ended`] with these.
    pub(in crate::scheduler) fn unknown_jobs(&self) -> Vec<Arc<str>> {
        let lacks =
            |job: &str| !self.knows(job) && !self.definitions.contains(job) && !self.every.is_part(job);
        let mut unknown = jobs_in_ledger(&self.sealed, lacks);
        unknown.extend(self.unknown_runs.jobs().into_iter().filter(|job| lacks(job)));
        unknown.into_iter().collect()
    }

    /// Closes the ledger's records of jobs that have ended. A job has ended when its data was not refreshed by
    /// any worker during the ledger's retention.
    pub(in crate::scheduler) fn jobs_ended(&mut self, ended: Vec<Arc<str>>, now: WallTime) {
        self.end_jobs(ended, "forgotten: no worker has had this job for the ledger's retention", now);
    }

    fn end_jobs(&mut self, ended: Vec<Arc<str>>, why: &str, now: WallTime) {
        for job in ended {
            if self.knows(&job) || self.deferred.contains_key(&job) {
                continue;
            }
            tracing::info!(group = &*self.group, job = &*job, "{why}");
            let removed = RemovedJob::of_ended(&self.sealed, &job, now);
            self.effects.push(Effect::RemoveRow { key: JobRow::key(&job) });
            self.removed.insert(Arc::clone(&job), removed);
            self.remove_state(&job);
            self.close_requests_of(&job, now);
            self.unknown_runs.end_job(&job, &mut self.effects);
            self.lacks_stale = true;
        }
    }

    /// Returns whether the leader has the job, or has removed it in this term.
    fn knows(&self, job: &str) -> bool {
        knows(&self.table, &self.removed, job)
    }
}

fn knows(table: &JobTable, removed: &BTreeMap<Arc<str>, RemovedJob>, job: &str) -> bool {
    table.id(job).is_some() || removed.contains_key(job)
}

#[cfg(test)]
mod every_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
