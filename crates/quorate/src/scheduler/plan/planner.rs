//! The leader's decisions, as a pure state machine: the planner takes each event with its time, and returns
//! the effects that the event loop carries out.

use crate::{
    env::WallTime,
    measure::JobsMeasures,
    node::FencingToken,
    scheduler::{
        alert::JobAlert,
        job::Job,
        plan::{
            effect::{Effect, RunCompletion, RunOwner},
            group_freeze::GroupFreeze,
            job_entry::StoredInfo,
            known_jobs::{NeededRecords, jobs_in_ledger, warn_unreadable},
            led_jobs::{AfterRun, LedJobs},
            reporter::Reporter,
            requests::{Asked, Granted, Requests, close_requests_of},
            unknown_runs::UnknownRuns,
        },
        run::on_leader::RunEnd,
        store::{
            JobRequest, JobResponse, JobRow,
            record_life::{AHEAD_MAX, held, kept, low_water, window},
            snapshot::LedgerSnapshot,
        },
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

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
}

/// The planner of one term.
#[derive(Debug)]
pub(in crate::scheduler) struct Planner {
    group: Arc<str>,
    jobs: LedJobs,
    requests: Requests,
    unknown_runs: UnknownRuns,
    needed: NeededRecords,
    /// Jobs that wait to be taken over, or to replace the leader's job of the same name.
    to_take: VecDeque<Arc<Job>>,
    /// Jobs that were added to this leader during its term, while it watched open runs of them as runs of
    /// unknown jobs. The leader takes each job over once the tasks that watch these runs have ended.
    deferred: BTreeMap<Arc<str>, Arc<Job>>,
    /// True once the leader has taken over the open requests, and the jobs that it had when its term began.
    is_complete: bool,
    /// The time up to which this leader has made decisions on all ticks.
    decided: Option<WallTime>,
    /// True once the warning was logged that the ledger drops records of unfinished runs. The leader logs this
    /// warning only once.
    warned: bool,
    max_clock_offset: Duration,
}

impl Planner {
    pub(in crate::scheduler) fn new(sealed: LedgerSnapshot, settings: LeaderSettings) -> Self {
        let LeaderSettings { group, worker, term, ttl, max_clock_offset, max_running, measures } = settings;
        let marked = sealed.row(MARK).and_then(|at| at.parse().ok()).map(WallTime::from_micros);
        if let (_, Some(why)) = GroupFreeze::find(&sealed) {
            warn_unreadable(&group, JobRow::FREEZE, &why);
        }
        let reporter = Reporter::new(worker, term);
        Self {
            group,
            jobs: LedJobs::new(sealed, reporter, marked, (ttl * 2).min(AHEAD_MAX), max_running, measures),
            requests: Requests::default(),
            unknown_runs: UnknownRuns::default(),
            needed: NeededRecords::default(),
            to_take: VecDeque::new(),
            deferred: BTreeMap::new(),
            is_complete: false,
            decided: None,
            warned: false,
            max_clock_offset,
        }
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

    /// Returns the number of runs that the leader executes.
    pub(in crate::scheduler) fn executing(&self) -> usize {
        self.jobs.table().executing()
    }

    /// Returns whether the leader executes as many runs as it may. Runs that are due then wait for the end of others.
    pub(in crate::scheduler) fn is_full(&self) -> bool {
        self.jobs.table().is_full()
    }

    /// Returns the time when the next job is due.
    pub(in crate::scheduler) fn next_due(&self) -> Option<WallTime> {
        self.jobs.table().next_due()
    }

    /// Returns the time at which the next jobs are handled. Jobs that are due within [`GROUPED`] are handled together.
    /// A job that is due alone is not delayed.
    pub(in crate::scheduler) fn next_group(&self) -> Option<WallTime> {
        self.jobs.table().next_group(GROUPED)
    }

    /// Returns the reporter, which creates the reports for the history.
    pub(in crate::scheduler) fn reporter(&self) -> &Reporter {
        self.jobs.reporter()
    }

    /// Compares the leader's jobs with those of the registry. Removes the jobs that are not in the registry.
    /// New and changed jobs then wait until [`Planner::take_over`] takes them over.
    pub(in crate::scheduler) fn change(
        &mut self,
        jobs: &BTreeMap<Arc<str>, Arc<Job>>,
        now: WallTime,
    ) -> Vec<Effect> {
        let mut out = Vec::new();
        let names = self.jobs.table().names();
        let gone: Vec<_> = names.filter(|(name, _)| !jobs.contains_key(*name)).collect();
        let gone: Vec<(Arc<str>, usize)> =
            gone.into_iter().map(|(name, place)| (Arc::clone(name), place)).collect();
        for (name, place) in gone {
            let active = self.jobs.remove(place, now, &mut out);
            self.requests.drop_job(&name, &active, &self.jobs, now, &mut out);
            self.jobs.close_ended(&mut out);
        }
        self.to_take = jobs.values().cloned().collect();
        self.deferred.clear();
        out
    }

    /// Takes over some of the waiting jobs. Once no job waits, takes over the open requests too, and starts to
    /// watch the open runs of jobs that the leader does not have.
    pub(in crate::scheduler) fn take_over(&mut self, now: WallTime) -> Vec<Effect> {
        let mut out = Vec::new();
        for _ in 0..JOBS_AT_ONCE {
            let Some(job) = self.to_take.pop_front() else { break };
            if self.unknown_runs.release(&job.name, &mut out) {
                self.deferred.insert(Arc::clone(&job.name), job);
            } else {
                let name = Arc::clone(&job.name);
                let StoredInfo { window, unreadable } = self.jobs.take_over(job, now, &mut out);
                self.needed.add_window(window);
                if let Some(why) = unreadable {
                    warn_unreadable(&self.group, &JobRow::key(&name), &why);
                }
            }
        }
        if self.to_take.is_empty() && !mem::replace(&mut self.is_complete, true) {
            self.needed.add_unknown(&self.group, self.jobs.sealed(), |job| self.jobs.knows(job));
            self.requests.resume(&mut self.jobs, now, &mut out);
            self.unknown_runs.watch(self.jobs.sealed(), |job| self.jobs.knows(job), &mut out);
        }
        out
    }

    /// Decides on the ticks of the jobs that are due. The flag is true if more jobs are due.
    pub(in crate::scheduler) fn plan_due(&mut self, now: WallTime) -> (Vec<Effect>, bool) {
        let mut out = Vec::new();
        for _ in 0..JOBS_AT_ONCE {
            if !self.jobs.plan_next(now, &mut out) {
                break;
            }
        }
        let more = self.next_due().is_some_and(|at| at <= now);
        if !more && self.to_take.is_empty() && self.deferred.is_empty() {
            self.decided = self.decided.max(Some(now));
        }
        (out, more)
    }

    /// Notes the jobs that are overdue at `now`. Call this while the clock by which jobs are due stands behind the time
    /// that has elapsed; otherwise [`Planner::plan_due`] does the same.
    pub(in crate::scheduler) fn note_overdue(&mut self, now: WallTime) -> Vec<Effect> {
        let mut out = Vec::new();
        self.jobs.note_overdue(now, &mut out);
        out
    }

    /// Starts waiting runs in their order, up to the limit of concurrent runs.
    pub(in crate::scheduler) fn start_ready(&mut self, now: WallTime) -> Vec<Effect> {
        let mut out = Vec::new();
        while self.jobs.start_next(now, &mut out) {}
        out
    }

    /// Handles the end of the write of a new job's row. `place` is the place of the job.
    pub(in crate::scheduler) fn registered(&mut self, place: usize) -> Vec<Effect> {
        let mut out = Vec::new();
        self.jobs.registered(place);
        self.jobs.close_ended(&mut out);
        out
    }

    /// Handles the end of the task of a run. `stepping_down` is true once the term must end.
    pub(in crate::scheduler) fn run_ended(
        &mut self,
        ended: RunCompletion,
        stepping_down: bool,
        now: WallTime,
    ) -> Vec<Effect> {
        let mut out = Vec::new();
        let (RunOwner::Job(place), cause) = (ended.owner, ended.cause) else {
            self.watch_ended(ended, &mut out);
            return out;
        };
        match (self.jobs.end_run(place, ended, stepping_down, now, &mut out), cause.request()) {
            (AfterRun::Finished, Some(id)) => self.requests.on_run_end(id, &mut self.jobs, now, &mut out),
            (AfterRun::Finished, None) => self.jobs.on_end(place, now, &mut out),
            (AfterRun::Unfinished, _) => {}
        }
        self.jobs.close_ended(&mut out);
        out
    }

    /// Handles the end of the task that watches an open run of a job that the leader does not have.
    fn watch_ended(&mut self, ended: RunCompletion, out: &mut Vec<Effect>) {
        let RunCompletion { key, tick, cause, end, .. } = ended;
        let Some(job) = self.unknown_runs.end(&key) else { return };
        match end {
            Some(RunEnd::Ended(end, ran)) => {
                let report = self.jobs.reporter().ran(&job, tick, cause, end, ran);
                out.push(Effect::Report(Box::new(report)));
                self.jobs.settle(&key, end);
                self.needed.refresh(&job.name, self.jobs.sealed());
            }
            None => tracing::error!(job = &*job.name, run = &*key, "the watch of an open run panicked"),
            // The run stays open, and a leader that has the job will continue it.
            Some(_) => {}
        }
        if !self.unknown_runs.jobs().contains(&job.name) {
            self.to_take.extend(self.deferred.remove(&job.name));
        }
    }

    /// Decides on a request. `is_open` is false if the leader starts no more runs, because it is stepping down
    /// or its scheduler is being drained.
    pub(in crate::scheduler) fn ask(
        &mut self,
        request: JobRequest,
        is_open: bool,
        now: WallTime,
    ) -> (Vec<Effect>, Asked) {
        let mut out = Vec::new();
        let asked = self.requests.ask(request, is_open, &mut self.jobs, now, &mut out);
        (out, asked)
    }

    /// Handles the event that a majority has stored the row of a request. Returns the answer to the request.
    pub(in crate::scheduler) fn stored(
        &mut self,
        granted: Granted,
        now: WallTime,
    ) -> (Vec<Effect>, JobResponse) {
        let mut out = Vec::new();
        let answer = self.requests.stored(granted, &mut self.jobs, now, &mut out);
        (out, answer)
    }

    /// Handles the event that an alert was reported.
    pub(in crate::scheduler) fn alert_reported(&mut self, alert: &JobAlert) -> Vec<Effect> {
        let mut out = Vec::new();
        self.jobs.alert_reported(alert, &mut out);
        out
    }

    /// Handles the event that the row of a request could not be stored. The request gets no answer for now.
    pub(in crate::scheduler) fn not_stored(&mut self) {
        self.requests.not_stored();
    }

    /// Returns the effect that writes the mark, or `None` if the leader has not yet decided on all ticks that
    /// are due. The next leader reports a tick as missed if the tick is later than the mark, older than the
    /// misfire window, and has no record.
    pub(in crate::scheduler) fn mark(&self) -> Option<Effect> {
        let waiting = self.jobs.table().entries().filter_map(|entry| entry.plan().first_waiting()).min();
        let waits = waiting.map(|tick| tick - Duration::from_micros(1));
        let decided = self.decided?;
        let value = waits.map_or(decided, |tick| tick.min(decided)).as_micros().to_string().into();
        Some(Effect::PutRow { key: MARK.into(), value })
    }

    /// Returns the low-water mark. The ledger may prune the records before this time, because no job needs
    /// them. There is one exception: the ledger keeps the record of an unfinished run only for a limited time,
    /// and then prunes it too.
    pub(in crate::scheduler) fn low_water(&mut self, now: WallTime) -> WallTime {
        let jobs = &self.jobs;
        let unfinished = jobs.table().entries().filter_map(|entry| entry.plan().oldest());
        // For its own jobs, the leader computes which records they need. For all other jobs, it keeps the
        // unfinished records that it found at the seal, because a later leader may have these jobs.
        let of_others = self.needed.unfinished().filter(|(job, _)| !jobs.knows(job)).map(|(_, at)| at);
        let oldest = unfinished.chain(self.requests.oldest()).chain(of_others).min();
        let led = || jobs.table().entries().map(|entry| &**entry.job());
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

    /// Handles the event that the nodes have pruned the records before `mark`.
    pub(in crate::scheduler) fn pruned(&mut self, mark: WallTime) {
        for job in self.jobs.forget_removed(mark) {
            self.needed.release(&job);
        }
    }

    /// Returns the jobs that the ledger has and the leader does not have. The leader checks which of them have
    /// ended, and calls [`Planner::jobs_ended`] with these.
    pub(in crate::scheduler) fn unknown_jobs(&self) -> Vec<Arc<str>> {
        let mut unknown = jobs_in_ledger(self.jobs.sealed(), |job| !self.jobs.knows(job));
        unknown.extend(self.unknown_runs.jobs().into_iter().filter(|job| !self.jobs.knows(job)));
        unknown.into_iter().collect()
    }

    /// Closes the ledger's records of jobs that have ended. A job has ended when its data was not refreshed by
    /// any worker during the ledger's retention.
    pub(in crate::scheduler) fn jobs_ended(&mut self, ended: Vec<Arc<str>>, now: WallTime) -> Vec<Effect> {
        let mut out = Vec::new();
        for job in ended {
            if self.jobs.knows(&job) || self.deferred.contains_key(&job) {
                continue;
            }
            tracing::info!(
                group = &*self.group,
                job = &*job,
                "forgotten: no worker has had this job for the ledger's retention"
            );
            self.jobs.end_unknown(&job, now, &mut out);
            out.extend(close_requests_of(&job, &self.jobs, now));
            self.unknown_runs.end_job(&job, &mut out);
        }
        out
    }
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
