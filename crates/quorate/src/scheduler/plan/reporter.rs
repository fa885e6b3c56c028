//! Creates history entries from the leader's decisions. Also creates the closed records of runs that the leader
//! ends without executing them to their end.

use crate::{
    env::WallTime,
    node::{FencingToken, Record},
    scheduler::{
        job::{Job, RunCause, RunOutcome},
        plan::active_run::{RunToClose, SkippedTick},
        policy::Delivery,
        run::{on_leader::RunSummary, pending_run::PendingRun},
        store::{
            HistoryEntry, RunKey, RunRecord,
            history_writer::{Close, RunReport},
            record_life::{is_kept, record_from},
            recorded_ends::recorded_end,
            run_writer::RunId,
            snapshot::LedgerSnapshot,
            verdict::{SkipReason, memory_needed},
        },
    },
};
use std::{sync::Arc, time::Duration};

/// The reason in the history if a run does not start because the job's schedule or placement was changed.
pub(in crate::scheduler) const CHANGED: &str = "the job's schedule or placement was changed while it waited";
/// The reason in the history if a run does not start because its job was removed.
pub(in crate::scheduler) const REMOVED: &str = "dropped before it began: the job was removed";
/// The reason in the history if a run does not start because its job was paused.
pub(in crate::scheduler) const PAUSED: &str = "the job was paused while it waited";
/// The reason in the history if a run does not start because the group was frozen. The entry of all ticks of a freeze
/// begins with it.
pub(in crate::scheduler) const FROZEN: &str = "the group was frozen";

/// The data for the history entry of ticks that did not run.
pub(in crate::scheduler) struct NotRun {
    pub(in crate::scheduler) tick: WallTime,
    /// The last of the ticks, if there are several.
    pub(in crate::scheduler) until: Option<WallTime>,
    pub(in crate::scheduler) cause: RunCause,
    pub(in crate::scheduler) end: RunOutcome,
    pub(in crate::scheduler) why: Arc<str>,
}

/// Creates reports in the name of one leader and its term.
#[derive(Debug)]
pub(in crate::scheduler) struct Reporter {
    worker: Arc<str>,
    term: FencingToken,
    began: WallTime,
}

impl Reporter {
    /// Creates the reporter of a worker whose term began at `began`.
    pub(in crate::scheduler) fn new(worker: Arc<str>, term: FencingToken, began: WallTime) -> Self {
        Self { worker, term, began }
    }

    pub(in crate::scheduler) fn worker(&self) -> &Arc<str> {
        &self.worker
    }

    /// Returns the report of a run that the leader or a worker executed.
    pub(in crate::scheduler) fn ran(
        &self,
        job: &Arc<Job>,
        tick: WallTime,
        cause: RunCause,
        end: RunOutcome,
        ran: RunSummary,
    ) -> RunReport {
        let RunSummary { began, worked, worker, term } = ran;
        let entry = self.entry(job, tick, cause, end);
        let entry = HistoryEntry {
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
        RunReport { job: Arc::clone(job), entry, close: None, ended: None }
    }

    /// Returns the report of ticks that did not run and have no record to close.
    pub(in crate::scheduler) fn not_run(&self, job: &Arc<Job>, ticks: NotRun) -> RunReport {
        let NotRun { tick, until, cause, end, why } = ticks;
        let entry = HistoryEntry { until, reason: why, ..self.entry(job, tick, cause, end) };
        RunReport { job: Arc::clone(job), entry, close: None, ended: None }
    }

    /// Returns the report of a run that the leader dropped because the run did not stop within the grace
    /// period. `started` is the run's record.
    pub(in crate::scheduler) fn aborted(
        &self,
        job: &Arc<Job>,
        (tick, cause): (WallTime, RunCause),
        key: Arc<str>,
        (began, took): (WallTime, Duration),
        started: Record,
    ) -> RunReport {
        let reason = "did not stop within the grace of the step-down, and was dropped";
        let entry = HistoryEntry {
            reason: reason.into(),
            started: Some(began),
            took: Some(took),
            attempts: 1,
            ..self.entry(job, tick, cause, RunOutcome::Cancelled)
        };
        // An at-most-once run has ended now, so its record is closed. The record of an at-least-once run stays
        // *started*, so that the next leader executes the run again.
        let close = (job.delivery == Delivery::AtMostOnce).then(|| {
            let run = RunId { key, at: WallTime::from_micros(started.at), remembering: true };
            self.close(run, Some(started), RunOutcome::Cancelled, reason)
        });
        RunReport { job: Arc::clone(job), entry, close, ended: None }
    }

    /// Returns the report that closes a run of an earlier term under this term. Either the end of this run is
    /// not recorded, or the record of its end may be stored on a minority of the nodes only.
    pub(in crate::scheduler) fn closed(&self, job: &Arc<Job>, found: RunToClose) -> RunReport {
        let RunToClose { run, end, why } = found;
        let seen = run.seen.as_ref();
        let written = seen.and_then(|seen| RunRecord::parse(&seen.value).ok());
        let worker = written.as_ref().and_then(RunRecord::worker).cloned();
        let worker = worker.unwrap_or_else(|| "an earlier leader".into());
        let lost = || match seen {
            Some(_) => format!("it was started by {worker}, who left no word of its end").into(),
            None => "too few nodes remember its time, so an earlier leader may have started it".into(),
        };
        let reason: Arc<str> = why.unwrap_or_else(lost);
        let (term, took, from, ended) = match (written, seen) {
            (Some(RunRecord::Closed { term, took, from, .. }), Some(seen)) => {
                (term, took, from, Some(recorded_end(seen, took)))
            }
            _ => (None, None, None, None),
        };
        let term = term.or(seen.map(|seen| seen.term)).unwrap_or(self.term);
        let record = RunRecord::ended(&worker, end, took, &reason).closing_from(from);
        let cause = if run.cause == RunCause::CatchUp { RunCause::Scheduled } else { run.cause };
        let entry = self.entry(job, from.unwrap_or(run.tick), cause, end);
        let (attempts, until) = (u32::from(took.is_some()), from.map(|_| run.tick));
        let entry = HistoryEntry { until, worker, term, reason, took, attempts, ..entry };
        let close = self.record(run.run(), run.seen, record, term);
        RunReport { job: Arc::clone(job), entry, close: Some(close), ended }
    }

    /// Returns the report of a tick that was skipped, or `None` if the record of the tick is already closed.
    ///
    /// The report closes the tick in the ledger as long as a later leader may still look at the tick. Otherwise that
    /// leader would find no decision on the tick, and enter it again, or run it. For ticks that a change of the job
    /// left out, the job's row shows the decision to later leaders.
    pub(in crate::scheduler) fn skipped(
        &self,
        job: &Arc<Job>,
        skipped: SkippedTick,
        now: WallTime,
        sealed: &LedgerSnapshot,
    ) -> Option<RunReport> {
        let not_run = |tick, end, why: &str| {
            let (until, cause) = (None, RunCause::Scheduled);
            self.not_run(job, NotRun { tick, until, cause, end, why: why.into() })
        };
        let closed = |report: RunReport| {
            let HistoryEntry { tick, until, end, reason, .. } = &report.entry;
            let run = unseen(job, until.unwrap_or(*tick), sealed);
            let record = RunRecord::closed(&self.worker, *end, reason).closing_from(until.map(|_| *tick));
            let close = is_kept(job, run.at, now).then(|| self.record(run, None, record, self.term));
            RunReport { close, ..report }
        };
        Some(match skipped {
            SkippedTick::Missed(missed) => {
                let until = (missed.last != missed.first).then_some(missed.last);
                let report = not_run(missed.first, RunOutcome::SkippedMisfire, &missed.why.to_string());
                closed(RunReport { entry: HistoryEntry { until, ..report.entry }, ..report })
            }
            SkippedTick::Overtaken(tick) => {
                let why = "it came due while the job ran or waited, and a later one did too";
                closed(not_run(tick, RunOutcome::SkippedOverlap, why))
            }
            SkippedTick::Overlapped(tick) => {
                let why = "it came due while an earlier run of the job went on";
                closed(not_run(tick, RunOutcome::SkippedOverlap, why))
            }
            SkippedTick::TooLate(tick) => {
                let why = "it waited for longer than the misfire window";
                closed(not_run(tick, RunOutcome::SkippedMisfire, why))
            }
            SkippedTick::Changed(tick) => not_run(tick, RunOutcome::SkippedMisfire, CHANGED),
            SkippedTick::Paused(run) => self.left_out(job, run, now, (RunOutcome::SkippedPaused, PAUSED)),
            SkippedTick::Frozen(run) => self.left_out(job, run, now, (RunOutcome::SkippedFrozen, FROZEN)),
            SkippedTick::Decided(_, SkipReason::Final) => return None,
            SkippedTick::Decided(tick, why @ SkipReason::Pruned) => {
                not_run(tick, RunOutcome::SkippedMisfire, &why.to_string())
            }
            SkippedTick::Decided(tick, why) => closed(not_run(tick, RunOutcome::Lost, &why.to_string())),
        })
    }

    /// Returns the report of a waiting tick that a pause of the job or a freeze of the group left out.
    fn left_out(
        &self,
        job: &Arc<Job>,
        run: PendingRun,
        now: WallTime,
        (end, why): (RunOutcome, &str),
    ) -> RunReport {
        let closes = run.seen.is_some() || is_kept(job, run.at, now);
        let close = closes.then(|| self.close(run.run(), run.seen.clone(), end, why));
        let ticks = NotRun { tick: run.tick, until: None, cause: run.cause, end, why: why.into() };
        RunReport { close, ..self.not_run(job, ticks) }
    }

    fn entry(&self, job: &Job, tick: WallTime, cause: RunCause, end: RunOutcome) -> HistoryEntry {
        HistoryEntry::new(&job.name, tick, cause, end, &self.worker, self.term)
    }

    fn close(&self, run: RunId, seen: Option<Record>, end: RunOutcome, why: &str) -> Close {
        self.record(run, seen, RunRecord::closed(&self.worker, end, why), self.term)
    }

    /// Returns the closed record of a run, which this leader then writes. `term` is the term in the run's
    /// history entry. The record also stores a time for rule R13 of `docs/design/scheduler.md`: a node counts
    /// for the record only if the node's memory began before this time.
    fn record(&self, run: RunId, seen: Option<Record>, record: RunRecord, term: FencingToken) -> Close {
        let record = record.remembered(memory_needed(run.at, self.began), term);
        Close { record: record.into_record(run.at, self.term), run, seen }
    }
}

/// Returns the id of the run of a tick for which the seal found no record.
fn unseen(job: &Job, tick: WallTime, sealed: &LedgerSnapshot) -> RunId {
    let at = record_from(job, tick, WallTime::default());
    RunId { key: RunKey::new(&job.name, tick).key(), at, remembering: sealed.remembers(at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{
        plan::takeover::unfinished,
        policy::{Misfire, MisfireReason, MisfiredTicks},
        schedule::every,
        store::{
            recorded_ends::recorded_entries,
            snapshot::tests::{SECOND, at, node, sealed},
        },
    };

    fn job(delivery: Delivery) -> Arc<Job> {
        let job = Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        Arc::new(job.delivery(delivery))
    }

    fn reporter() -> Reporter {
        Reporter::new("me".into(), FencingToken::new(9), at(100))
    }

    fn closed(close: &Close) -> (u64, RunRecord) {
        (close.record.term.get(), RunRecord::parse(&close.record.value).unwrap())
    }

    #[test]
    fn a_lost_run_is_closed_under_this_term_and_reported_under_the_term_that_started_it() {
        let most = job(Delivery::AtMostOnce);
        let (_, mut closes) = unfinished(&most, &sealed(&[12], &[]));
        let report = reporter().closed(&most, closes.remove(0));
        assert_eq!((&*report.entry.worker, report.entry.term.get()), ("old", 1));
        assert_eq!((report.entry.end, report.entry.cause), (RunOutcome::Lost, RunCause::Scheduled));
        assert_eq!(&*report.entry.reason, "it was started by old, who left no word of its end");
        let (term, record) = closed(&report.close.unwrap());
        let RunRecord::Closed { memory, term: under, end, .. } = record else { panic!("{record:?}") };
        assert_eq!((term, end, under.map(FencingToken::get)), (9, RunOutcome::Lost, Some(1)));
        assert_eq!(memory, Some(at(100)), "the later of the tick and the beginning of the term (R13)");
        assert_eq!(report.ended, None, "this leader ends it now");
    }

    #[test]
    fn the_report_of_an_end_that_an_earlier_leader_recorded_has_the_time_of_that_end() {
        let most = job(Delivery::AtMostOnce);
        let (_, mut closes) = unfinished(&most, &sealed(&[12], &[]));
        let RunToClose { run, .. } = closes.remove(0);
        let done = RunRecord::done("old", 3 * SECOND, "").into_record(at(12), FencingToken::new(1));
        let run = PendingRun { seen: Some(done), ..run };
        let found = RunToClose { run, end: RunOutcome::Done, why: Some("".into()) };
        assert_eq!(reporter().closed(&most, found).ended, Some(at(15)));
    }

    #[test]
    fn a_skipped_tick_is_closed_as_long_as_a_later_leader_looks_at_it() {
        let once = Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        let most = Arc::new(once.delivery(Delivery::AtMostOnce).misfire(Misfire::run_once(10 * SECOND)));
        let sealed = sealed(&[], &[]);
        let at_time = |tick, now| reporter().skipped(&most, tick, now, &sealed);
        let skipped = |tick| at_time(tick, at(17));
        let missed = || MisfiredTicks { first: at(5), last: at(7), why: MisfireReason::Rule };
        for (tick, end, from) in [
            (SkippedTick::Overlapped(at(7)), RunOutcome::SkippedOverlap, None),
            (SkippedTick::Overtaken(at(7)), RunOutcome::SkippedOverlap, None),
            (SkippedTick::TooLate(at(7)), RunOutcome::SkippedMisfire, None),
            (SkippedTick::Missed(missed()), RunOutcome::SkippedMisfire, Some(at(5))),
        ] {
            let report = skipped(tick).unwrap();
            let close = report.close.unwrap();
            assert_eq!((close.run.at, close.run.remembering, close.seen.is_none()), (at(7), true, true));
            assert_eq!(close.run.key, RunKey::new("j", at(7)).key());
            let RunRecord::Closed { end: stored, from: first, .. } = closed(&close).1 else { panic!() };
            assert_eq!((stored, first, report.entry.end), (end, from, end));
        }
        assert!(skipped(SkippedTick::Changed(at(7))).unwrap().close.is_none(), "the row says it");
        let late = at_time(SkippedTick::Missed(missed()), at(23)).unwrap();
        assert!(late.close.is_none(), "the ledger may have pruned that time");
        assert!(skipped(SkippedTick::Decided(at(7), SkipReason::Final)).is_none());
        let lost = skipped(SkippedTick::Decided(at(7), SkipReason::Unknown)).unwrap();
        assert!(lost.entry.end == RunOutcome::Lost && lost.close.is_some());
    }

    #[test]
    fn the_next_leader_enters_and_closes_all_ticks_that_one_record_closes() {
        let most = job(Delivery::AtMostOnce);
        let skipped = RunRecord::closed("old", RunOutcome::SkippedMisfire, "late").closing_from(Some(at(3)));
        let skipped =
            skipped.remembered(at(7), FencingToken::new(1)).into_record(at(7), FencingToken::new(1));
        let answers = |stored: [bool; 2]| {
            let records = |stored: bool| stored.then(|| (RunKey::new("j", at(7)).key(), skipped.clone()));
            let node = |stored| node(at(0), records(stored).into_iter().collect());
            LedgerSnapshot::new(stored.map(node).into(), 2, SECOND)
        };
        let (_, mut closes) = unfinished(&most, &answers([true, false]));
        let report = reporter().closed(&most, closes.remove(0));
        assert_eq!((report.entry.tick, report.entry.until), (at(3), Some(at(7))));
        let (term, RunRecord::Closed { from, end, .. }) = closed(&report.close.unwrap()) else { panic!() };
        assert_eq!((term, from, end), (9, Some(at(3)), RunOutcome::SkippedMisfire));
        let [(entry, _)] = &recorded_entries(&most.name, &answers([true, true]))[..] else { panic!() };
        assert_eq!((entry.tick, entry.until, entry.key()), (at(3), Some(at(7)), report.entry.key()));
    }

    #[test]
    fn a_run_that_was_dropped_is_closed_only_under_at_most_once() {
        for (delivery, closes) in [(Delivery::AtMostOnce, true), (Delivery::AtLeastOnce, false)] {
            let started = RunRecord::started("me").into_record(at(7), FencingToken::new(9));
            let times = (at(8), SECOND);
            let report =
                reporter().aborted(&job(delivery), (at(7), RunCause::Scheduled), "k".into(), times, started);
            assert_eq!((report.entry.end, report.close.is_some()), (RunOutcome::Cancelled, closes));
            assert_eq!((report.entry.started, report.entry.attempts), (Some(at(8)), 1));
        }
    }
}
