//! The event loop of one term. The loop waits for events, passes them to the [`Planner`], and carries out the
//! effects that the planner returns.

use crate::{
    env::{BootTime, Env, ScopedTask, WallTime},
    ledger::{LedgerError, TermLedger},
    node::FencingToken,
    sabotage::Sabotage,
    scheduler::{
        alert::JobAlert,
        control::IncomingRequest,
        job::Job,
        leader::{active_runs::ActiveRuns, history_writer::HistoryWriter, leading::Leading},
        plan::{
            active_run::Withdrawal,
            definitions::Definitions,
            effect::{Effect, RunCompletion},
            housekeeping::Housekeeping,
            job_id::JobId,
            planner::{LeaderSettings, LeftOut, Planner},
            requests::{Asked, Granted},
            stand_still::{ClockChange, StandStill},
        },
        registry::Phase,
        run::next_start::NextStart,
        store::{
            GroupFreeze, JobAction, JobResponse, RequestRow,
            retention::Retention,
            snapshot::{LOW_WATER, LedgerSnapshot, is_outdated},
        },
    },
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture, try_join_all},
    stream::FuturesUnordered,
};
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The longest sleep of the loop. The wall clock may step during a sleep, so the loop reads it at least this
/// often.
const WAKE_EVERY: Duration = Duration::from_millis(500);
/// The last part of the grace period, which is reserved for writing the ends of runs. It is a fifth of the
/// grace period, but at most this long.
const FLUSH: Duration = Duration::from_millis(100);

/// The rows of new jobs that are due within this time are written as fast as possible.
const SOON: Duration = Duration::from_secs(10);
/// The number of jobs that the warning about forgotten jobs names.
const FORGOTTEN_NAMED: usize = 5;

/// The event loop, and the tasks that it owns. The [`Planner`] makes all decisions.
pub(in crate::scheduler) struct EventLoop<'a> {
    leading: &'a Leading,
    env: &'a Env,
    planner: Planner,
    clock: StandStill,
    housekeeping: Housekeeping,
    retention: Retention,
    led: TermLedger,
    history: HistoryWriter,
    runs: ActiveRuns,
    /// The tasks that register jobs in the ledger. Each returns the id of its job.
    registering: FuturesUnordered<BoxFuture<'static, JobId>>,
    /// The tasks that write the rows of granted requests. The leader answers a request after the write.
    storing: FuturesUnordered<BoxFuture<'static, StoreEnd>>,
    /// The calls of jobs' functions for alerts. Each returns the alert that was reported, or `None` if the alert
    /// could not be stored.
    alerting: FuturesUnordered<BoxFuture<'static, Option<JobAlert>>>,
    /// The task that prunes the ledger. Its result is the time before which the leader has removed all records, or `None` if
    /// the term has ended.
    pruning: Option<ScopedTask<Option<WallTime>>>,
    /// The task that finds the jobs that have ended. A job has ended when its data was not refreshed by any
    /// worker during the ledger's retention.
    checking: Option<ScopedTask<Vec<Arc<str>>>>,
    /// True once that task was started in this term.
    has_checked: bool,
    /// True until the leader has noted in the registry that the ledger has the rows of its jobs.
    notes_stored: bool,
    /// The jobs that the ledger has lost: it had their rows in an earlier term of this scheduler.
    forgotten: Vec<Arc<str>>,
}

/// The result of the write of a request's row.
struct StoreEnd {
    granted: Box<Granted>,
    stored: bool,
    reply: oneshot::Sender<JobResponse>,
}

impl<'a> EventLoop<'a> {
    pub(in crate::scheduler) fn new(
        leading: &'a Leading,
        (mut sealed, definitions): (LedgerSnapshot, Definitions),
        led: TermLedger,
        history: HistoryWriter,
        next_start: NextStart,
    ) -> Self {
        let Leading { ledger, term, ttl, max_running, .. } = leading;
        let (env, retention) = (term.env(), Retention::new(ledger));
        let settings = LeaderSettings {
            group: Arc::clone(term.group()),
            worker: Arc::clone(&term.quorum().config().worker),
            term: term.unchecked_token(),
            max_clock_offset: term.quorum().config().max_clock_offset,
            ttl: *ttl,
            max_running: *max_running,
            measures: leading.registry.counts().measures().clone(),
            left_out: LeftOut {
                keys: term.quorum().config().sabotaged(Sabotage::KeyIgnored),
                followed: term.quorum().config().sabotaged(Sabotage::FollowedAgain),
                failures: term.quorum().config().sabotaged(Sabotage::FailuresForgotten),
                removals: term.quorum().config().sabotaged(Sabotage::StoredJobsNotRemoved),
            },
        };
        if term.quorum().config().sabotaged(Sabotage::FreezeNotTakenOver) {
            sealed.forget("", &[GroupFreeze::KEY.into()]);
        }
        Self {
            leading,
            env,
            runs: ActiveRuns::new(leading, &sealed, &led, next_start),
            planner: Planner::new(sealed, definitions, settings),
            clock: StandStill::new(term.quorum().config().max_clock_offset),
            housekeeping: Housekeeping::new(env.now(), retention.every()),
            retention,
            led,
            history,
            registering: FuturesUnordered::new(),
            storing: FuturesUnordered::new(),
            alerting: FuturesUnordered::new(),
            pruning: None,
            checking: None,
            has_checked: false,
            notes_stored: true,
            forgotten: Vec::new(),
        }
    }

    /// Runs the loop until the term must end, a later term has sealed the ledger, or the scheduler is being
    /// drained and the leader executes no run. Then waits until the runs that the leader still executes have
    /// ended. Returns the planner, which is of no use any more: the caller drops it when nothing waits for that.
    pub(in crate::scheduler) async fn run(
        mut self,
        mut requests: mpsc::Receiver<IncomingRequest>,
    ) -> Planner {
        self.jobs_changed();
        self.serve(&mut requests).await;
        self.runs.next_start().set(None);
        self.write_mark();
        self.await_last_runs().await;
        self.planner
    }

    async fn serve(&mut self, requests: &mut mpsc::Receiver<IncomingRequest>) {
        let step_down = self.leading.term.step_down_token().clone();
        let (mut changed, mut phase) = self.leading.registry.watch();
        let mut workers = self.runs.workers();
        let mut listens = true;
        while !step_down.is_cancelled() {
            let Some((wake, latest)) = self.decide() else { break };
            let decided = self.env.now();
            tokio::select! { biased;
                () = step_down.cancelled() => break,
                Some(ended) = self.runs.next() => self.run_ended(ended),
                Some(job) = self.registering.next() => self.planner.registered(job),
                Some(end) = self.storing.next() => self.store_ended(end),
                Some(reported) = self.alerting.next() => {
                    reported.iter().for_each(|alert| self.planner.alert_reported(alert));
                    self.carry_out();
                }
                // Requests are accepted only once all jobs are taken over, so that each request finds its
                // job.
                request = requests.recv(), if listens && self.planner.is_complete() => match request {
                    Some(request) => self.ask(request),
                    None => listens = false,
                },
                // `changed` fails only if the sender was dropped. The registry owns the senders and outlives
                // this loop.
                Ok(()) = changed.changed() => self.jobs_changed(),
                Ok(()) = phase.changed() => {}
                Ok(()) = workers.changed() => {
                    let live = workers.borrow_and_update().clone().unwrap_or_default();
                    self.planner.workers_changed(live, self.now());
                    self.carry_out();
                }
                Some(pruned) = OptionFuture::from(self.pruning.as_mut()) => {
                    self.pruning = None;
                    if let Ok(Some(mark)) = pruned {
                        self.planner.pruned(mark);
                    }
                }
                Some(ended) = OptionFuture::from(self.checking.as_mut()) => {
                    self.checking = None;
                    self.planner.jobs_ended(ended.unwrap_or_default(), self.now());
                    self.carry_out();
                }
                () = self.env.sleep_until_poll(decided, wake, latest) => {}
            }
            // Runs that ended at the same time are handled together, before the loop decides and waits again.
            while let Some(Some(ended)) = self.runs.next().now_or_never() {
                self.run_ended(ended);
            }
            if wake <= self.env.now() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Asks the planner for the decisions that are due, and carries them out. Returns the time at which the
    /// next decisions are due, and the time to which the loop may sleep if it is known that no clock steps. Returns
    /// `None` if the scheduler is being drained and the leader executes no run.
    fn decide(&mut self) -> Option<(BootTime, BootTime)> {
        self.look_at_clock();
        if self.planner.has_jobs_to_take() {
            // A job may be replaced by one that is due earlier.
            self.runs.next_start().change();
        }
        self.planner.take_over(self.now());
        self.carry_out();
        let is_open = self.leading.registry.phase() == Phase::Open;
        let mut more = self.planner.has_jobs_to_take();
        if is_open {
            let now = self.now();
            // Also without a job that is due, the planner notes that it has decided on all ticks up to now.
            let is_due = self.planner.table().timers().next().is_some_and(|at| at <= now);
            if !is_due || self.planner.next_group().is_some_and(|at| at <= now) {
                more |= self.planner.plan_due(now);
                self.carry_out();
            }
            self.planner.start_ready(self.now());
            self.carry_out();
        } else if self.executing() == 0 {
            // Runs that are open to workers may still be active. This leader does not wait for them, because
            // the next leader continues to watch them.
            return None;
        }
        let now = self.env.now();
        if self.planner.is_complete() && !self.planner.has_jobs_to_take() {
            self.note_stored();
        }
        // The ledger is pruned only once every job is taken over. Before that, a job may still need old records
        // to find its missed ticks.
        if self.planner.is_complete() && !more {
            self.keep_house(now);
        }
        let next = self.planner.next_group().filter(|_| is_open);
        // If runs wait for the end of others, these ends must be recorded at once.
        self.runs.next_start().set(next.filter(|_| !self.planner.table().has_blocked()));
        let due = next.map(|next| now + self.now().until(next));
        let wake = due.into_iter().chain([now + WAKE_EVERY]).min()?;
        let latest = due.into_iter().chain([self.housekeeping.next()]).min()?;
        Some(if more { (now, now) } else { (wake, if self.planner.is_complete() { latest } else { wake }) })
    }

    /// Reports that the quorum's clock was set back, and the jobs that become overdue by the time that has elapsed. By the
    /// clock itself they would be reported only after the jobs have stood still.
    fn look_at_clock(&mut self) {
        let (wall, now, group) = (self.now(), self.env.now(), &**self.leading.term.group());
        match self.clock.look(wall, now) {
            Some(ClockChange::SetBack { by, until }) => tracing::warn!(
                group,
                "the clocks of a majority of the nodes were set back by {by:.1?}: no tick runs twice, so no job is due \
                 before they show {until} again; set the clocks of the nodes by NTP"
            ),
            Some(ClockChange::CaughtUp) => {
                tracing::info!(group, "the clocks of the nodes have caught up: the jobs are due again");
            }
            None => {}
        }
        if let Some(elapsed) = self.clock.elapsed(now) {
            self.planner.note_overdue(elapsed);
            self.carry_out();
        }
    }

    /// Returns the time of the quorum's clock. A tick is due when this clock has reached it. If this clock
    /// steps back, no tick runs again, because each plan stores the time up to which its ticks are planned.
    fn now(&self) -> WallTime {
        self.leading.term.quorum().wall()
    }

    fn leaves_out(&self, mechanism: Sabotage) -> bool {
        self.leading.term.quorum().config().sabotaged(mechanism)
    }

    /// Reports the jobs that the ledger has lost, and notes that it has the rows of all jobs, once that is so.
    fn note_stored(&mut self) {
        if !self.forgotten.is_empty() {
            let jobs = std::mem::take(&mut self.forgotten);
            let named: Vec<&str> = jobs.iter().take(FORGOTTEN_NAMED).map(|job| &**job).collect();
            tracing::warn!(
                group = &**self.leading.term.group(),
                jobs = jobs.len(),
                "the nodes have lost what they stored of {}{}: these jobs start as new ones. Their ticks until now are neither \
                 run nor entered in the history, runs that had begun are not repeated, and pauses have ended",
                named.join(", "),
                if jobs.len() > named.len() { ", …" } else { "" }
            );
        }
        if self.registering.is_empty() && std::mem::take(&mut self.notes_stored) {
            self.leading.registry.note_stored();
        }
    }

    fn jobs_changed(&mut self) {
        self.notes_stored = true;
        self.runs.next_start().change();
        let jobs = self.leading.registry.jobs();
        let own = jobs.values().any(|job| job.rules.placement.needs_workers());
        self.runs.need_workers(own || self.planner.definitions().len() > 0);
        self.planner.change(&jobs, self.now());
        self.carry_out();
    }

    fn run_ended(&mut self, ended: RunCompletion) {
        let stepping_down = self.leading.term.step_down_token().is_cancelled();
        self.planner.run_ended(ended, stepping_down, self.now());
        self.carry_out();
    }

    /// Returns the number of runs that the leader executes.
    fn executing(&self) -> usize {
        self.planner.table().ready().executing()
    }

    fn ask(&mut self, request: IncomingRequest) {
        let IncomingRequest { mut request, reply } = request;
        self.runs.next_start().change();
        if let JobAction::Freeze { until, .. } = &mut request.what
            && self.leaves_out(Sabotage::FreezeWithoutEnd)
        {
            *until = WallTime::from_micros(FencingToken::MAX.get());
        }
        let is_open = self.leading.registry.phase() == Phase::Open;
        let asked = self.planner.ask(&request, is_open, self.now());
        self.carry_out();
        match asked {
            // The send fails if the caller has stopped waiting for the answer. This is not an error.
            Asked::Answer(answer) => drop(reply.send(answer)),
            Asked::Store(mut granted) => {
                let rows = granted.take_rows().into_iter();
                let written = try_join_all(rows.map(|(key, value)| self.led.write_or_remove(&key, value)));
                let end = written.map(move |written| StoreEnd { granted, stored: written.is_ok(), reply });
                self.storing.push(end.boxed());
            }
        }
        if matches!(request.what, JobAction::Put { .. }) {
            self.runs.need_workers(true);
        }
    }

    fn store_ended(&mut self, end: StoreEnd) {
        let StoreEnd { granted, stored, reply } = end;
        if !stored {
            // The leader does not know whether the write has reached a majority, so it sends no answer. The
            // inbox passes the request to the leader again later.
            return self.planner.not_stored();
        }
        self.runs.next_start().change();
        let answer = self.planner.stored(*granted, self.now());
        self.carry_out();
        let _ = reply.send(answer);
    }

    /// Carries out the effects of the planner's decisions.
    fn carry_out(&mut self) {
        for effect in self.planner.take_effects() {
            match effect {
                Effect::PutRow { key, value } => self.led.put(&key, Some(value)),
                Effect::Alert { job, key, value, alerts } => self.alert(&job, &key, value, alerts),
                Effect::Register { id, job, key, value, due } => {
                    if self.leading.registry.was_stored(&job) {
                        self.forgotten.push(Arc::clone(&job));
                    }
                    // The rows of new jobs may be many, so those that are not due soon give way to all other writes.
                    let written = match due <= self.now() + SOON {
                        true => self.led.write(&key, value).boxed(),
                        false => self.led.write_later(&key, value).boxed(),
                    };
                    self.register(id, job, written);
                }
                Effect::RemoveRow { key } => self.led.put(&key, None),
                Effect::Execute(start) => self.runs.execute(start),
                Effect::Open(start) => self.runs.open(start),
                Effect::Cancel { key, why } => self.runs.cancel(&key, &why),
                Effect::Withdraw { why: Withdrawal::Frozen, .. }
                    if self.leaves_out(Sabotage::FrozenRunsStayOpen) => {}
                Effect::Withdraw { key, why } => self.runs.withdraw(&key, why),
                Effect::Release { key } => self.runs.release(&key),
                Effect::Report(mut report) => {
                    if report.entry.end.is_skipped() && self.leaves_out(Sabotage::SkipsNotClosed) {
                        report.close = None;
                    }
                    self.history.enter(*report);
                }
                Effect::Audit(action) => self.leading.audit(*action),
                Effect::CountLate { job, by } => self.leading.registry.counts().late(&job, by),
                Effect::OnNodes { job, is_stored } => self.leading.registry.note_on_nodes(&job, is_stored),
                Effect::CloseHistory(job) => self.history.close(&job),
            }
        }
    }

    /// Reports alerts once a majority has stored them. So an alert of a leader that was replaced is not reported
    /// by it.
    fn alert(&mut self, job: &Job, key: &Arc<str>, value: Arc<str>, alerts: Vec<JobAlert>) {
        let written = self.led.write(key, value).map(|written| written.is_ok()).shared();
        for alert in alerts {
            let Some(hook) = job.on_alert.clone() else { continue };
            let written = written.clone();
            self.alerting.push(Box::pin(async move {
                if !written.await {
                    return None;
                }
                let called = AssertUnwindSafe(hook.call(alert.clone())).catch_unwind().await;
                // The next leader reports the alert again.
                if called.is_err() {
                    tracing::error!(job = &*alert.job, "the function for alerts panicked");
                    return None;
                }
                Some(alert)
            }));
        }
    }

    fn register(&mut self, id: JobId, job: Arc<str>, written: BoxFuture<'static, Result<(), LedgerError>>) {
        self.registering.push(Box::pin(async move {
            if let Err(error) = written.await {
                tracing::warn!(job = &*job, "not registered in the ledger yet: {error}");
            }
            id
        }));
    }

    /// Does the recurring work on the ledger that is due: prunes the ledger, writes the [mark](Planner::mark),
    /// or starts the task that finds the jobs that have ended.
    fn keep_house(&mut self, now: BootTime) {
        if self.pruning.is_none() && self.housekeeping.prune.take(now) {
            self.prune();
        }
        if self.housekeeping.mark.take(now) {
            self.write_mark();
        }
        if self.checking.is_none() && self.housekeeping.check.take(now) {
            self.check_unknown_jobs();
        }
    }

    /// Removes the records that no leader needs any more. A majority has the mark before: without it, a leader that does not
    /// find a record would take the run for one that has not started.
    fn prune(&mut self) {
        let mark = self.planner.low_water(self.now());
        let (led, key) = (self.led.clone(), LOW_WATER.into());
        let marked = led.write(&key, mark.as_micros().to_string().into());
        self.pruning = Some(self.leading.term.spawn_scoped(async move {
            marked.await.ok()?;
            led.prune(move |key, value| {
                is_outdated(key, value, mark) || RequestRow::is_outdated(key, value, mark)
            });
            Some(mark)
        }));
    }

    fn write_mark(&mut self) {
        self.planner.mark();
        self.carry_out();
    }

    fn check_unknown_jobs(&mut self) {
        let unknown = self.planner.unknown_jobs();
        // The nodes go through the times of all jobs for a pruning. A new leader has more urgent work for them.
        let prunes = std::mem::replace(&mut self.has_checked, true) || !unknown.is_empty();
        let (retention, group) = (self.retention.clone(), Arc::clone(self.leading.term.group()));
        self.checking = Some(self.leading.term.spawn_scoped(async move {
            let ended = retention.ended(unknown).await.unwrap_or_else(|error| {
                tracing::debug!(group = &*group, "cannot find the jobs that have ended: {error}");
                Vec::new()
            });
            if prunes && let Err(error) = retention.prune().await {
                tracing::debug!(group = &*group, "the times of ended jobs are not pruned: {error}");
            }
            ended
        }));
    }

    /// Waits until the runs that the leader executes have ended. The term allows them to work until
    /// `Term::work_until`. Shortly before that time, this function drops the runs that are still active. The
    /// time that remains is for writing the ends of runs. If the validity of the lease ends earlier, the
    /// campaign drops this future, and the active runs with it.
    async fn await_last_runs(&mut self) {
        let margin = FLUSH.min(self.leading.grace / 5);
        // Only the runs that the leader executes are counted. The runs that are open to workers continue, and
        // the next leader watches them.
        while self.executing() > 0 {
            let Some(until) = self.leading.term.work_until() else { break };
            let until = until - margin;
            let Some(Some(ended)) = self.env.before(until, self.runs.next()).await else {
                // No run ended before `until`. The lease may have been extended meanwhile, so the deadline is
                // computed again before runs are dropped.
                let work_until = self.leading.term.work_until();
                if work_until.is_none_or(|until| until - margin <= self.env.now()) {
                    break;
                }
                continue;
            };
            self.run_ended(ended);
        }
        self.runs.abort().into_iter().for_each(|aborted| self.run_ended(aborted));
    }
}
