//! What the leader makes of ticks that have ended, or will not run: entries of the history, and what follows.

use crate::scheduler::{
    leader::event_loop::{Completion, Leader},
    plan::job_plan::{PendingRun, SkippedTick, ToClose, record_from},
    run::on_leader::{RunEnd, RunSummary},
    store::{history_writer::Close, run_writer::RunId},
};
use crate::{
    env::WallTime,
    ledger::LedgerError,
    node::Record,
    scheduler::{
        Delivery, HistoryEntry, Job, RunCause, RunKey, RunOutcome, RunRecord, SkipReason, inherited,
        run::ExecutionResult,
    },
};
use std::{sync::Arc, time::Duration};

/// Why a run of the job's old schedule or placement does not start.
pub(in crate::scheduler) const CHANGED: &str = "the job's schedule or placement was changed while it waited";

impl Leader<'_> {
    /// A run has ended.
    pub(in crate::scheduler) fn ended(&mut self, ended: Completion) {
        let Completion { job: index, key, tick, cause, outcome, .. } = ended;
        self.began.remove(&key);
        let now = self.now();
        let Some(entry) = self.entries[index].as_mut() else { return };
        let at = entry.plan.running.iter().find(|going| going.key == key).map(|going| going.at);
        entry.plan.running.retain(|going| going.key != key);
        let job = Arc::clone(&entry.plan.job);
        let over = match outcome {
            Ok(RunEnd::Ended(end, ran)) => {
                self.ran(&job, tick, cause, end, ran);
                true
            }
            Ok(RunEnd::Interrupted(ran, _)) if self.term.step_down_token().is_cancelled() => {
                let reason = &ran.worked.reason;
                let reason =
                    format!("told to stop at step-down; it is left to the next leader: {reason}").into();
                let worked = ExecutionResult { reason, ..ran.worked };
                self.ran(&job, tick, cause, RunOutcome::Cancelled, RunSummary { worked, ..ran });
                false
            }
            Ok(RunEnd::Interrupted(ran, again)) => {
                let until = entry.plan.again(*again, now).map(|at| job.schedule.format(at));
                let (name, reason) = (&*job.name, &*ran.worked.reason);
                tracing::warn!(
                    job = name,
                    until,
                    "interrupted, though the term goes on: it runs again: {reason}"
                );
                false
            }
            Ok(RunEnd::NotStarted(error)) => self.not_started(&job, tick, cause, &error),
            Ok(RunEnd::Left) => false,
            Ok(RunEnd::Met(met, start)) => {
                self.meet(index, met, *start);
                false
            }
            Ok(RunEnd::Abandoned) => {
                let tick = job.schedule.format(tick);
                tracing::warn!(job = &*job.name, tick, "not started: the term ended before");
                false
            }
            Err(_) => {
                tracing::error!(
                    job = &*job.name,
                    tick = job.schedule.format(tick),
                    "its run was torn down by a panic; it is left to the next leader"
                );
                at.into_iter().for_each(|at| entry.plan.leave(at));
                // Where ticks hang on ends, there is no other end than this.
                cause.request().is_none()
            }
        };
        match cause.request() {
            Some(id) if over => self.ask_ended(id),
            None if over => self.link(index),
            _ => {}
        }
        self.settle(index);
    }

    /// Whether that was the end of it.
    fn not_started(&mut self, job: &Job, tick: WallTime, cause: RunCause, error: &LedgerError) -> bool {
        let shown = job.schedule.format(tick);
        match error {
            LedgerError::Superseded { .. } => {
                tracing::error!(job = &*job.name, tick = shown, "resigning: {error}");
                self.superseded = true;
                false
            }
            // Somebody has done it, whom the seal did not show.
            LedgerError::Standing(standing) if standing.last => {
                tracing::info!(job = &*job.name, tick = shown, "not started: its record is final");
                true
            }
            // At most once: it was started, or may have been; nobody will start it now.
            LedgerError::Standing(_) | LedgerError::Forgotten(_) => {
                self.enter(job, tick, None, cause, RunOutcome::Lost, &format!("not started: {error}"), None);
                true
            }
            LedgerError::NoMajority(_) => {
                tracing::warn!(job = &*job.name, tick = shown, "not started: {error}");
                false
            }
        }
    }

    fn ran(&mut self, job: &Job, tick: WallTime, cause: RunCause, end: RunOutcome, ran: RunSummary) {
        let RunSummary { began, worked, worker, term } = ran;
        if let Some(began) = began.filter(|_| cause == RunCause::Scheduled && worker.is_none()) {
            let late = job.jitters().ripe(tick).until(began);
            self.leading.registry.counts().late(&job.name, late);
        }
        let entry = self.entry_of(job, tick, cause, end);
        let history = HistoryEntry {
            reason: worked.reason,
            worker: worker.unwrap_or(entry.worker),
            term: term.unwrap_or(entry.term),
            started: began,
            took: began.map(|_| worked.took),
            attempts: worked.attempts,
            attempt_error: worked.error,
            output: worked.output,
            ..entry
        };
        self.history_writer.enter(job, history, None);
    }

    /// What runs are left are dropped: they did not stop in time.
    pub(in crate::scheduler) fn torn(&mut self) {
        for (key, (index, tick, cause, began)) in std::mem::take(&mut self.began) {
            let (Some(entry), Some((started, since, record))) = (self.entries[index].as_ref(), began.get())
            else {
                continue;
            };
            let job = Arc::clone(&entry.plan.job);
            let reason = "did not stop within the grace of the step-down, and was dropped";
            let history = HistoryEntry {
                reason: reason.into(),
                started: Some(*started),
                took: Some(self.env.now().since(*since)),
                attempts: 1,
                ..self.entry_of(&job, tick, cause, RunOutcome::Cancelled)
            };
            // Under at-most-once that was its end.
            let close = (job.delivery == Delivery::AtMostOnce).then(|| {
                let run = RunId { key, at: WallTime::from_micros(record.at), remembering: true };
                self.close(run, Some(record.clone()), RunOutcome::Cancelled, reason)
            });
            self.history_writer.enter(&job, history, close);
        }
    }

    /// Closes a run of an earlier term under this one: started by a leader that left no word of its end, or ended by a record
    /// that is not known to have had a majority.
    pub(in crate::scheduler) fn close_found(&mut self, job: &Job, found: ToClose) {
        let ToClose { start, end, why } = found;
        let seen = start.seen.as_ref();
        let written = seen.and_then(|seen| RunRecord::parse(&seen.value).ok());
        let worker = written.as_ref().and_then(RunRecord::worker).cloned();
        let worker = worker.unwrap_or_else(|| "an earlier leader".into());
        let lost = || format!("it was started by {worker}, who left no word of its end").into();
        let reason: Arc<str> = why.unwrap_or_else(lost);
        let (under, took) = match written {
            Some(RunRecord::Closed { term, took, .. }) => (term, took),
            _ => (None, None),
        };
        let under = under.or(seen.map(|seen| seen.term)).unwrap_or(self.term.token());
        let run = start.run();
        let record =
            RunRecord::ended(&worker, end, took, &reason).remembered(self.writer.memory(&run), under);
        let close = Close { record: self.writer.record(&run, record), run, seen: start.seen.clone() };
        let cause = if start.cause == RunCause::CatchUp { RunCause::Scheduled } else { start.cause };
        let entry = self.entry_of(job, start.tick, cause, end);
        let attempts = u32::from(took.is_some());
        self.history_writer.enter(
            job,
            HistoryEntry { worker, term: under, reason, took, attempts, ..entry },
            Some(close),
        );
    }

    /// A later record than the seal found decides on a run: it goes on from there.
    fn meet(&mut self, index: usize, met: Record, start: PendingRun) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        let job = Arc::clone(&entry.plan.job);
        let again = PendingRun { seen: Some(met.clone()), unknown: false, ..start };
        match (RunRecord::parse(&met.value), job.delivery) {
            (Ok(RunRecord::Closed { end, outcome, .. }), _) => {
                let end = inherited(end, again.remembering);
                self.close_found(&job, ToClose { start: again, end, why: Some(outcome) });
            }
            (Ok(RunRecord::Started { .. }) | Err(_), Delivery::AtMostOnce) => {
                self.close_found(&job, ToClose { start: again, end: RunOutcome::Lost, why: None });
            }
            _ => drop(entry.plan.again(again, self.term.quorum().wall())),
        }
    }

    /// Ticks that will not run.
    pub(in crate::scheduler) fn not_run(&mut self, job: &Job, not: SkippedTick) {
        let scheduled = RunCause::Scheduled;
        match not {
            SkippedTick::Missed(missed) => {
                let until = (missed.last != missed.first).then_some(missed.last);
                let why = missed.why.to_string();
                self.enter(job, missed.first, until, scheduled, RunOutcome::SkippedMisfire, &why, None);
            }
            SkippedTick::Overtaken(tick) => {
                let why = "it came due while the job ran or waited, and a later one did too";
                self.enter(job, tick, None, scheduled, RunOutcome::SkippedOverlap, why, None);
            }
            SkippedTick::Overlapped(tick) => {
                let why = "it came due while an earlier run of the job went on";
                // Without a last word the next leader might take it for one that nobody looked at.
                let run = self.unseen(job, tick);
                let close = self.close(run, None, RunOutcome::SkippedOverlap, why);
                self.enter(job, tick, None, scheduled, RunOutcome::SkippedOverlap, why, Some(close));
            }
            SkippedTick::TooLate(tick) => {
                let why = "it waited for longer than the misfire window";
                self.enter(job, tick, None, scheduled, RunOutcome::SkippedMisfire, why, None);
            }
            SkippedTick::Changed(tick) => {
                self.enter(job, tick, None, scheduled, RunOutcome::SkippedMisfire, CHANGED, None);
            }
            SkippedTick::Paused(start) => {
                let why = "the job was paused while it waited";
                let close = start
                    .seen
                    .is_some()
                    .then(|| self.close(start.run(), start.seen.clone(), RunOutcome::SkippedPaused, why));
                self.enter(job, start.tick, None, start.cause, RunOutcome::SkippedPaused, why, close);
            }
            // Done by an earlier leader: nothing to tell.
            SkippedTick::Decided(_, SkipReason::Final) => {}
            SkippedTick::Decided(tick, why @ SkipReason::Pruned) => {
                self.enter(job, tick, None, scheduled, RunOutcome::SkippedMisfire, &why.to_string(), None);
            }
            SkippedTick::Decided(tick, why) => {
                let why = why.to_string();
                let close = self.close(self.unseen(job, tick), None, RunOutcome::Lost, &why);
                self.enter(job, tick, None, scheduled, RunOutcome::Lost, &why, Some(close));
            }
        }
    }

    /// Enters a tick, or a span of them, that has not run.
    #[expect(clippy::too_many_arguments, reason = "each is a field of the entry")]
    pub(in crate::scheduler) fn enter(
        &self,
        job: &Job,
        tick: WallTime,
        until: Option<WallTime>,
        cause: RunCause,
        end: RunOutcome,
        why: &str,
        close: Option<Close>,
    ) {
        let entry = HistoryEntry { until, reason: why.into(), ..self.entry_of(job, tick, cause, end) };
        self.history_writer.enter(job, entry, close);
    }

    fn entry_of(&self, job: &Job, tick: WallTime, cause: RunCause, end: RunOutcome) -> HistoryEntry {
        HistoryEntry {
            job: Arc::clone(&job.name),
            tick,
            until: None,
            cause,
            end,
            reason: "".into(),
            worker: self.worker().into(),
            term: self.term.token(),
            started: None,
            took: None::<Duration>,
            attempts: 0,
            attempt_error: None,
            output: None,
        }
    }

    /// A run of which no record was found.
    fn unseen(&self, job: &Job, tick: WallTime) -> RunId {
        let at = record_from(job, tick, WallTime::default());
        RunId { key: RunKey::new(&job.name, tick).key(), at, remembering: self.sealed.remembers(at) }
    }

    fn close(&self, run: RunId, seen: Option<Record>, end: RunOutcome, why: &str) -> Close {
        let record = RunRecord::closed(self.worker(), end, why);
        let record = record.remembered(self.writer.memory(&run), self.term.token());
        Close { record: self.writer.record(&run, record), run, seen }
    }

    fn worker(&self) -> &str {
        &self.term.quorum().config().worker
    }
}
