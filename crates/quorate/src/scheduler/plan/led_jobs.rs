//! The decisions on the jobs that the leader has: what follows when a job is taken over, replaced, removed, due
//! or paused, and when its run starts or ends.

use crate::scheduler::{
    plan::{
        effect::{Effect, RunCompletion, RunOwner, RunStart},
        job_entry::{EndedPause, FoundJob, JobEntry, RemovedJob, find},
        job_plan::is_before,
        job_table::JobTable,
        known_jobs::row_keys,
        pending_run::{ActiveRun, PendingRun, RecordedRun, RunToClose, SkippedTick},
        reporter::{CHANGED, NotRun, PAUSED, REMOVED, Reporter},
    },
    run::on_leader::{RunEnd, RunSummary},
    store::snapshot::LedgerSnapshot,
};
use crate::{
    env::WallTime,
    ledger::LedgerError,
    measure::JobsMeasures,
    node::Record,
    scheduler::{Job, JobRow, Paused, RequestId, RunCause, RunOutcome, run::ExecutionResult},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The jobs that the leader has, the jobs that it removed in this term, and the sealed ledger, on which the
/// decisions are based.
#[derive(Debug)]
pub(in crate::scheduler) struct LedJobs {
    sealed: LedgerSnapshot,
    table: JobTable,
    removed: BTreeMap<Arc<str>, RemovedJob>,
    reporter: Reporter,
    /// The time up to which the previous leader decided on all ticks.
    marked: Option<WallTime>,
    /// The time by which the leader opens a run to workers before the run's tick.
    ahead: Duration,
}

/// The consequence of the end of a run's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum AfterRun {
    /// The run has ended, or counts as ended. The next run of its job or its request may start.
    Finished,
    /// The run has not ended: a worker still executes it, or it starts again, or the next leader decides on it.
    Unfinished,
    /// A later term has sealed the ledger, so this leader cannot start any further run.
    Superseded,
}

impl LedJobs {
    pub(in crate::scheduler) fn new(
        sealed: LedgerSnapshot,
        reporter: Reporter,
        marked: Option<WallTime>,
        ahead: Duration,
        max_executing: usize,
        measures: JobsMeasures,
    ) -> Self {
        Self {
            sealed,
            table: JobTable::new(max_executing, measures),
            removed: BTreeMap::new(),
            reporter,
            marked,
            ahead,
        }
    }

    pub(in crate::scheduler) fn sealed(&self) -> &LedgerSnapshot {
        &self.sealed
    }

    /// Notes in the snapshot that this leader has closed the run under `key`, so that it does not decide on the
    /// run again.
    pub(in crate::scheduler) fn settle(&mut self, key: &str) {
        self.sealed.settle(key);
    }

    pub(in crate::scheduler) fn table(&self) -> &JobTable {
        &self.table
    }

    pub(in crate::scheduler) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// Returns whether the leader has the job, or has removed it in this term.
    pub(in crate::scheduler) fn knows(&self, job: &str) -> bool {
        self.table.place(job).is_some() || self.removed.contains_key(job)
    }

    /// Takes a job over from the ledger. If the leader already has a job of this name, replaces it.
    pub(in crate::scheduler) fn take_over(&mut self, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        match self.table.place(&job.name) {
            Some(place) => self.replace(place, job, now, out),
            None => self.register(job, now, out),
        }
    }

    /// Looks the job up in the ledger, plans its ticks, and emits the effects that write the job's row and
    /// close its ended runs.
    fn register(&mut self, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        let removed = self.removed.remove(&job.name);
        let again = removed.is_some();
        let found = find(Arc::clone(&job), &self.sealed, self.marked, removed, now);
        let FoundJob { mut entry, closes, is_new, write } = found;
        entry.plan_mut().open_ahead_by(self.ahead);
        let next = entry.plan().next().map(|at| job.schedule.format(at));
        tracing::debug!(job = &*job.name, next, since = ?entry.row().since, "found");
        let (key, value) = (JobRow::key(&job.name), entry.row().to_value());
        let state = again.then(|| entry.state().clone());
        let place = self.table.add(entry, write && is_new);
        match (write, is_new) {
            (true, true) => out.push(Effect::Register { place, job: Arc::clone(&job.name), key, value }),
            (true, false) => out.push(Effect::PutRow { key, value }),
            _ => {}
        }
        out.extend(state.map(Effect::KeepState));
        let any = !closes.is_empty();
        for close in closes {
            self.close(&job, close, out);
        }
        if any {
            self.on_end(place, now, out);
        }
    }

    fn replace(&mut self, place: usize, job: Arc<Job>, now: WallTime, out: &mut Vec<Effect>) {
        let Some(Some(replaced)) = self.table.change(place, |entry| entry.replace(job, now)) else { return };
        if replaced.write {
            self.put_row(place, out);
        }
        if replaced.moved {
            self.withdraw(place, |_| true, RunOutcome::SkippedMisfire, CHANGED, out);
        }
        self.skip(&replaced.before, replaced.skipped, out);
    }

    /// Removes a job, so that none of its runs starts from now on. The job's row is closed, and pruning removes
    /// it later. A job of this name that is added then starts as a new one. Returns the requests that have an
    /// active run of the job.
    pub(in crate::scheduler) fn remove(
        &mut self,
        place: usize,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> BTreeSet<RequestId> {
        let requests = self.active_requests(place);
        self.table.change(place, |entry| entry.plan_mut().drop_requested());
        self.withdraw(place, |_| true, RunOutcome::Cancelled, REMOVED, out);
        let Some(entry) = self.table.get(place) else { return requests };
        let (name, removed) = (Arc::clone(&entry.job().name), entry.remove(now));
        let (key, value) = (JobRow::key(&name), removed.row().to_value());
        out.push(Effect::CloseRow { key, value, at: now, last: false });
        self.removed.insert(name, removed);
        self.table.remove(place);
        requests
    }

    /// Closes the ledger's records of a job that the leader does not have and that has ended: no worker has had
    /// the job for the ledger's retention.
    pub(in crate::scheduler) fn end_unknown(&mut self, job: &Arc<str>, now: WallTime, out: &mut Vec<Effect>) {
        let removed = RemovedJob::of_ended(&self.sealed, job, now);
        let (key, value) = (JobRow::key(job), removed.row().to_value());
        out.push(Effect::CloseRow { key, value, at: now, last: false });
        out.push(Effect::CloseState(removed.state().clone(), now));
        self.removed.insert(Arc::clone(job), removed);
    }

    /// Drops the data of removed jobs once the nodes have pruned all their records, which are older than
    /// `mark`. Returns the names of these jobs.
    pub(in crate::scheduler) fn forget_removed(&mut self, mark: WallTime) -> Vec<Arc<str>> {
        let running = |job: &Arc<str>| self.table.entries().any(|entry| entry.job().name == *job);
        let forgotten: Vec<Arc<str>> = self
            .removed
            .iter()
            .filter(|(job, removed)| removed.is_forgotten(mark) && !running(job))
            .map(|(job, _)| Arc::clone(job))
            .collect();
        for job in &forgotten {
            let rows = row_keys(&self.sealed, job);
            self.sealed.forget(job, &rows);
            self.removed.remove(job);
        }
        forgotten
    }

    /// Handles the end of the write that registers the job at `place`.
    pub(in crate::scheduler) fn registered(&mut self, place: usize) {
        self.table.registered(place);
    }

    /// Closes the state and the history of each removed job whose last run has ended. A job that was added
    /// again keeps both.
    pub(in crate::scheduler) fn close_ended(&mut self, now: WallTime, out: &mut Vec<Effect>) {
        for entry in self.table.take_ended() {
            let name = &entry.job().name;
            if self.table.place(name).is_none() {
                out.push(Effect::CloseState(entry.state().clone(), now));
                out.push(Effect::CloseHistory(Arc::clone(name)));
            }
        }
    }

    /// Decides on the due ticks of the job that is due first. Returns false if no job is due.
    pub(in crate::scheduler) fn plan_next(&mut self, now: WallTime, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.table.pop_due(now) else { return false };
        self.end_pause(place, now, out);
        let sealed = &self.sealed;
        let decide = |entry: &mut JobEntry| (Arc::clone(entry.job()), entry.plan_mut().plan_due(sealed, now));
        let Some((job, decisions)) = self.table.change(place, decide) else { return true };
        if let Some(tick) = decisions.cancel_for {
            let why: Arc<str> = format!("for the tick {}", job.schedule.format(tick)).into();
            self.cancel(place, |_| true, &why, out);
        }
        let skipped = !decisions.skipped.is_empty();
        self.skip(&job, decisions.skipped, out);
        if skipped {
            self.on_end(place, now, out);
        }
        true
    }

    /// Starts the first waiting run, if the limit of concurrent runs permits it. Returns false if no run can
    /// start.
    pub(in crate::scheduler) fn start_next(&mut self, now: WallTime, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.table.pop_ready() else { return false };
        let start = |entry: &mut JobEntry| {
            (Arc::clone(entry.job()), entry.state().clone(), entry.plan_mut().start(now))
        };
        let Some((job, state, (run, too_late))) = self.table.change(place, start) else { return true };
        if let Some(run) = run {
            let active = ActiveRun::new(&run, &job);
            let (here, key) = (active.here, Arc::clone(&active.key));
            // An earlier leader accepted a pause of the job, and may have ended before it withdrew this open
            // run. So this leader withdraws the run.
            let scheduled = run.is_open() && run.request().is_none();
            let tick = run.tick;
            let paused = scheduled && self.table.get(place).is_some_and(|entry| entry.is_paused_at(tick));
            self.table.begin(place, active);
            let start = RunStart { owner: RunOwner::Job(place), job: Arc::clone(&job), state, run };
            out.push(if here { Effect::Execute(start) } else { Effect::Open(start) });
            if paused {
                out.push(Effect::Withdraw { key, end: RunOutcome::SkippedPaused, why: PAUSED.into() });
            }
        }
        self.skip(&job, too_late, out);
        true
    }

    /// Handles the end of a run of the job at `place`.
    pub(in crate::scheduler) fn end_run(
        &mut self,
        place: usize,
        ended: RunCompletion,
        stepping_down: bool,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> AfterRun {
        let Some(job) = self.table.get(place).map(|entry| Arc::clone(entry.job())) else {
            return AfterRun::Unfinished;
        };
        let RunCompletion { key, tick, cause, end, .. } = ended;
        let again = |jobs: &mut Self, run: PendingRun| {
            jobs.table.end(place, &key, |entry, _| entry.plan_mut().again(run, now)).flatten()
        };
        let shown = || job.schedule.format(tick);
        match end {
            Some(RunEnd::Interrupted(ran, run)) if !stepping_down => {
                let until = again(self, *run).map(|at| job.schedule.format(at));
                let reason = &*ran.worked.reason;
                tracing::warn!(
                    job = &*job.name,
                    until,
                    "interrupted within the term; it runs again: {reason}"
                );
                return AfterRun::Unfinished;
            }
            Some(RunEnd::Met(met, run)) => {
                let decided = self.on_met(&job, met, *run, out);
                return match decided {
                    Some(run) => {
                        again(self, run);
                        AfterRun::Unfinished
                    }
                    None => {
                        self.table.end(place, &key, |_, _| ());
                        AfterRun::Finished
                    }
                };
            }
            None => {
                let leave = |entry: &mut JobEntry, run: &ActiveRun| entry.plan_mut().leave_to_next(run.at);
                self.table.end(place, &key, leave);
                tracing::error!(
                    job = &*job.name,
                    tick = shown(),
                    "its run panicked; the next leader decides on it"
                );
                // This leader leaves the run to the next one. A scheduled run counts as ended, so that a
                // schedule that counts from ends can continue. A request does not continue with its next run:
                // the next leader must first decide on this run.
                let scheduled = cause.request().is_none();
                return if scheduled { AfterRun::Finished } else { AfterRun::Unfinished };
            }
            _ => self.table.end(place, &key, |_, _| ()),
        };
        match end {
            Some(RunEnd::Ended(end, ran)) => {
                self.ran(&job, tick, cause, end, ran, out);
                AfterRun::Finished
            }
            Some(RunEnd::Interrupted(ran, _)) => {
                let reason = &ran.worked.reason;
                let reason =
                    format!("interrupted by the step-down; the next leader runs it again: {reason}").into();
                let worked = ExecutionResult { reason, ..ran.worked };
                self.ran(&job, tick, cause, RunOutcome::Cancelled, RunSummary { worked, ..ran }, out);
                AfterRun::Unfinished
            }
            Some(RunEnd::NotStarted(error)) => self.not_started(&job, tick, cause, &error, out),
            Some(RunEnd::Abandoned) => {
                tracing::warn!(job = &*job.name, tick = shown(), "not started: the term ended before");
                AfterRun::Unfinished
            }
            _ => AfterRun::Unfinished,
        }
    }

    fn not_started(
        &self,
        job: &Arc<Job>,
        tick: WallTime,
        cause: RunCause,
        error: &LedgerError,
        out: &mut Vec<Effect>,
    ) -> AfterRun {
        let shown = job.schedule.format(tick);
        match error {
            LedgerError::Superseded { .. } => {
                tracing::error!(job = &*job.name, tick = shown, "resigning: {error}");
                AfterRun::Superseded
            }
            // A later leader has ended the run. This leader's seal did not show that record yet.
            LedgerError::Standing(stored) if stored.last => {
                tracing::info!(job = &*job.name, tick = shown, "not started: its record is final");
                AfterRun::Finished
            }
            // The job is at-most-once, and the run was started or may have been started. So no leader starts it
            // now, and it is lost.
            LedgerError::Standing(_) | LedgerError::Forgotten(_) => {
                let (end, why) = (RunOutcome::Lost, format!("not started: {error}").into());
                self.report_not_run(job, NotRun { tick, until: None, cause, end, why }, out);
                AfterRun::Finished
            }
            LedgerError::NoMajority(_) => {
                tracing::warn!(job = &*job.name, tick = shown, "not started: {error}");
                AfterRun::Unfinished
            }
        }
    }

    fn ran(
        &self,
        job: &Arc<Job>,
        tick: WallTime,
        cause: RunCause,
        end: RunOutcome,
        ran: RunSummary,
        out: &mut Vec<Effect>,
    ) {
        if let Some(began) = ran.began.filter(|_| cause == RunCause::Scheduled && ran.worker.is_none()) {
            let by = job.jitters().ripe(tick).until(began);
            out.push(Effect::CountLate { job: Arc::clone(&job.name), by });
        }
        out.push(Effect::Report(Box::new(self.reporter.ran(job, tick, cause, end, ran))));
    }

    /// Handles a record that is later than the one the seal found, and that now decides on the run. Closes the
    /// run, or returns the run for this leader to continue from that record.
    fn on_met(
        &self,
        job: &Arc<Job>,
        met: Record,
        run: PendingRun,
        out: &mut Vec<Effect>,
    ) -> Option<PendingRun> {
        match run.decided_by(met, job.delivery) {
            RecordedRun::Continue(run) => Some(run),
            RecordedRun::Close(close) => {
                self.close(job, close, out);
                None
            }
        }
    }

    /// Notes the end of a run or of skipped ticks. If the job's schedule counts from ends, its next tick
    /// follows from this end.
    pub(in crate::scheduler) fn on_end(&mut self, place: usize, now: WallTime, out: &mut Vec<Effect>) {
        let Some(entry) = self.table.get(place) else { return };
        // The row of a removed job is closed, and must not be written again.
        if self.table.place(&entry.job().name) != Some(place) {
            return;
        }
        if self.table.change(place, |entry| entry.on_end(now)) == Some(true) {
            self.put_row(place, out);
        }
    }

    /// Pauses a job on a request from `paused.at` on, unless this request has already changed the job's row, or the
    /// job is paused in the same way.
    pub(in crate::scheduler) fn pause(
        &mut self,
        place: usize,
        request: RequestId,
        paused: Paused,
        out: &mut Vec<Effect>,
    ) -> bool {
        let until = paused.until;
        let pause = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.pause(request, paused)?));
        let Some((job, skipped)) = self.table.change(place, pause).flatten() else { return false };
        // A pause skips ticks only. Runs that an operator has requested continue, and so do ticks from the end of the pause on.
        let is_left_out = |run: &ActiveRun| run.request.is_none() && is_before(run.tick, until);
        self.withdraw(place, is_left_out, RunOutcome::SkippedPaused, PAUSED, out);
        self.skip(&job, skipped, out);
        true
    }

    /// Resumes a job on a request. Does nothing if the job is not paused, or if its row names this request as
    /// carried out.
    pub(in crate::scheduler) fn resume(
        &mut self,
        place: usize,
        request: RequestId,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> bool {
        let resume = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.resume(request, now)?));
        let Some((job, ended)) = self.table.change(place, resume).flatten() else { return false };
        self.report_pause(&job, ended, out);
        true
    }

    /// Ends the pause of a job whose end has come.
    fn end_pause(&mut self, place: usize, now: WallTime, out: &mut Vec<Effect>) {
        let end = |entry: &mut JobEntry| Some((Arc::clone(entry.job()), entry.end_pause(now)?));
        let Some((job, ended)) = self.table.change(place, end).flatten() else { return };
        let until = ended.0.until.map(|until| job.schedule.format(until));
        tracing::info!(job = &*job.name, until, "the pause has ended");
        self.put_row(place, out);
        self.report_pause(&job, ended, out);
    }

    /// Reports the ticks that a pause left out.
    fn report_pause(&mut self, job: &Arc<Job>, (paused, span): EndedPause, out: &mut Vec<Effect>) {
        let Some((first, last)) = span else { return };
        let mut why = format!("the job was paused by {}", paused.by);
        why += &paused.reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let until = (first != last).then_some(last);
        let (cause, end) = (RunCause::Scheduled, RunOutcome::SkippedPaused);
        self.report_not_run(job, NotRun { tick: first, until, cause, end, why: why.into() }, out);
    }

    /// Cancels the active runs of a job for which `selects` returns true. Returns their number.
    pub(in crate::scheduler) fn cancel(
        &self,
        place: usize,
        selects: impl Fn(&ActiveRun) -> bool,
        why: &Arc<str>,
        out: &mut Vec<Effect>,
    ) -> usize {
        let Some(entry) = self.table.get(place) else { return 0 };
        let before = out.len();
        let runs = entry.plan().active().iter().filter(|run| selects(run));
        out.extend(runs.map(|run| Effect::Cancel { key: Arc::clone(&run.key), why: Arc::clone(why) }));
        out.len() - before
    }

    /// Adds a requested run to the waiting runs of the job at `place`.
    pub(in crate::scheduler) fn add_requested(&mut self, place: usize, run: PendingRun) {
        self.table.change(place, |entry| entry.plan_mut().add_requested(run));
    }

    /// Drops the waiting requested runs of a job.
    pub(in crate::scheduler) fn drop_requested(&mut self, place: usize) {
        self.table.change(place, |entry| entry.plan_mut().drop_requested());
    }

    /// Returns the requests that have an active run of the job.
    pub(in crate::scheduler) fn active_requests(&self, place: usize) -> BTreeSet<RequestId> {
        let active = self.table.get(place).into_iter().flat_map(|entry| entry.plan().active());
        active.filter_map(|run| run.request).collect()
    }

    /// Emits the effect that closes a run of an earlier term under this term, and reports the run's end.
    pub(in crate::scheduler) fn close(&self, job: &Arc<Job>, close: RunToClose, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Box::new(self.reporter.closed(job, close))));
    }

    /// Emits the effect that enters ticks that did not run in the history.
    pub(in crate::scheduler) fn report_not_run(&self, job: &Arc<Job>, ticks: NotRun, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Box::new(self.reporter.not_run(job, ticks))));
    }

    fn skip(&self, job: &Arc<Job>, skipped: Vec<SkippedTick>, out: &mut Vec<Effect>) {
        let reports = skipped.into_iter().filter_map(|tick| self.reporter.skipped(job, tick, &self.sealed));
        out.extend(reports.map(|report| Effect::Report(Box::new(report))));
    }

    /// Emits the effects that end the open runs of a job for which `selects` returns true, unless a worker has
    /// taken them.
    fn withdraw(
        &self,
        place: usize,
        selects: impl Fn(&ActiveRun) -> bool,
        end: RunOutcome,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.table.get(place) else { return };
        let open = entry.plan().active().iter().filter(|run| !run.here && selects(run));
        out.extend(open.map(|run| Effect::Withdraw { key: Arc::clone(&run.key), end, why: why.into() }));
    }

    fn put_row(&self, place: usize, out: &mut Vec<Effect>) {
        let Some(entry) = self.table.get(place) else { return };
        out.push(Effect::PutRow { key: JobRow::key(&entry.job().name), value: entry.row().to_value() });
    }
}
