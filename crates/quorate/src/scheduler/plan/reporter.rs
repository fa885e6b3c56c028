//! Creates history entries from the leader's decisions. Also creates the closed records of runs that the leader
//! ends without executing them to their end.

use crate::{
    env::WallTime,
    node::FencingToken,
    scheduler::{
        job::{Job, RunCause, RunOutcome},
        plan::active_run::{ActiveRun, SkippedTick, Withdrawal},
        policy::Delivery,
        run::pending_run::PendingRun,
        store::{
            HistoryEntry, RunKey, RunRecord,
            record_life::{is_kept, record_from},
            run_report::{Close, RunReport},
            verdict::SkipReason,
        },
    },
};
use std::{sync::Arc, time::Duration};

/// Creates reports in the name of one leader and its term.
#[derive(Debug)]
pub(in crate::scheduler) struct Reporter {
    worker: Arc<str>,
    term: FencingToken,
}

impl Reporter {
    pub(in crate::scheduler) fn new(worker: Arc<str>, term: FencingToken) -> Self {
        Self { worker, term }
    }

    pub(in crate::scheduler) fn worker(&self) -> &Arc<str> {
        &self.worker
    }

    /// Returns the report of the ticks from `first` to `last`, which did not run and have no record to close.
    pub(in crate::scheduler) fn not_run(
        &self,
        job: &Arc<Job>,
        (first, last): (WallTime, WallTime),
        cause: RunCause,
        end: RunOutcome,
        why: &str,
    ) -> RunReport {
        let until = (first != last).then_some(last);
        let entry = HistoryEntry { until, reason: why.into(), ..self.entry(job, first, cause, end) };
        RunReport { job: Arc::clone(job), entry, close: None }
    }

    /// Returns the report of a run that the leader dropped because the run did not stop within the grace
    /// period.
    pub(in crate::scheduler) fn aborted(
        &self,
        job: &Arc<Job>,
        run: ActiveRun,
        began: WallTime,
        took: Duration,
    ) -> RunReport {
        let reason = "did not stop within the grace of the step-down, and was dropped";
        let entry = HistoryEntry {
            reason: reason.into(),
            started: Some(began),
            took: Some(took),
            attempts: 1,
            ..self.entry(job, run.tick, run.cause, RunOutcome::Cancelled)
        };
        // An at-most-once run has ended now, so its record is closed. The record of an at-least-once run stays
        // *started*, so that the next leader executes the run again.
        let close = (job.rules.delivery == Delivery::AtMostOnce)
            .then(|| self.close(run.key, run.at, RunOutcome::Cancelled, reason));
        RunReport { job: Arc::clone(job), entry, close }
    }

    /// Returns the report that closes a run of an earlier leader as lost.
    pub(in crate::scheduler) fn lost(&self, job: &Arc<Job>, run: PendingRun) -> RunReport {
        let (term, worker) = run.seen.as_ref().map_or((self.term, None), |seen| (seen.term(), seen.worker()));
        let worker = worker.filter(|worker| !worker.is_empty()).cloned();
        let worker = worker.unwrap_or_else(|| "an earlier leader".into());
        let why: Arc<str> = match run.seen {
            Some(_) => format!("it was started by {worker}, who left no word of its end").into(),
            None => "a majority of the nodes has forgotten whether an earlier leader started it".into(),
        };
        let record = RunRecord::closed(&worker, (RunOutcome::Lost, &why), None, (term, run.at));
        let cause = if run.cause == RunCause::CatchUp { RunCause::Scheduled } else { run.cause };
        let entry = self.entry(job, run.tick, cause, RunOutcome::Lost);
        let entry = HistoryEntry { worker, term, reason: why, ..entry };
        let close = Some(Close { key: run.key, record });
        RunReport { job: Arc::clone(job), entry, close }
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
    ) -> Option<RunReport> {
        let not_run = |tick, end, why: &str| self.not_run(job, (tick, tick), RunCause::Scheduled, end, why);
        let closed = |report: RunReport| {
            let HistoryEntry { tick, until, end, reason, .. } = &report.entry;
            let last = until.unwrap_or(*tick);
            let at = record_from(job, last, WallTime::default());
            let close = is_kept(job, at, now).then(|| {
                let Close { key, record } = self.close(RunKey::new(&job.name, last).key(), at, *end, reason);
                Close { key, record: record.closing_from(until.map(|_| *tick)) }
            });
            RunReport { close, ..report }
        };
        Some(match skipped {
            SkippedTick::Missed(missed) => {
                let (span, end) = ((missed.first, missed.last), RunOutcome::SkippedMisfire);
                closed(self.not_run(job, span, RunCause::Scheduled, end, &missed.why.to_string()))
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
            SkippedTick::Changed(tick) => {
                not_run(tick, Withdrawal::Changed.end(), Withdrawal::Changed.reason())
            }
            SkippedTick::Paused(run) => self.left_out(job, run, now, Withdrawal::Paused.outcome()),
            SkippedTick::Frozen(run) => self.left_out(job, run, now, Withdrawal::Frozen.outcome()),
            SkippedTick::Followed(run) => {
                let why = "the run that it follows ended while an earlier run of the job went on";
                self.left_out(job, run, now, (RunOutcome::SkippedOverlap, why))
            }
            SkippedTick::Decided(_, SkipReason::Final) => return None,
            SkippedTick::Decided(tick, why @ SkipReason::Pruned) => {
                not_run(tick, RunOutcome::SkippedMisfire, &why.to_string())
            }
            SkippedTick::Decided(tick, why) => closed(not_run(tick, RunOutcome::Lost, &why.to_string())),
        })
    }

    /// Returns the report of a run that a pause of the job, a freeze of the group or the overlap rule left out. A later leader
    /// finds the end of a run that it follows for as long as the ledger has the record of that one, which may be older than
    /// the misfire window.
    fn left_out(
        &self,
        job: &Arc<Job>,
        run: PendingRun,
        now: WallTime,
        (end, why): (RunOutcome, &str),
    ) -> RunReport {
        let closes = run.seen.is_some() || is_kept(job, run.at, now) || job.schedule.follows().is_some();
        let close = closes.then(|| self.close(Arc::clone(&run.key), run.at, end, why));
        RunReport { close, ..self.not_run(job, (run.tick, run.tick), run.cause, end, why) }
    }

    fn entry(&self, job: &Job, tick: WallTime, cause: RunCause, end: RunOutcome) -> HistoryEntry {
        HistoryEntry::new(&job.name, tick, cause, end, &self.worker, self.term)
    }

    fn close(&self, key: Arc<str>, at: WallTime, end: RunOutcome, why: &str) -> Close {
        Close { key, record: RunRecord::closed(&self.worker, (end, why), None, (self.term, at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{
        plan::led_job::unfinished,
        policy::{Misfire, MisfireReason, MisfiredTicks},
        schedule::Schedule,
        store::{
            recorded_ends::{RecordedEnd, recorded_ends},
            snapshot::tests::{SECOND, at, sealed, snapshot},
        },
    };

    fn job(delivery: Delivery) -> Arc<Job> {
        let job = Job::new("j", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        Arc::new(job.delivery(delivery))
    }

    fn reporter() -> Reporter {
        Reporter::new("me".into(), FencingToken::new(9))
    }

    #[test]
    fn a_lost_run_is_reported_and_closed_under_the_term_that_started_it() {
        let most = job(Delivery::AtMostOnce);
        let (_, mut lost) = unfinished(&most, &sealed(&[12], &[]));
        let report = reporter().lost(&most, lost.remove(0));
        assert_eq!((&*report.entry.worker, report.entry.term.get()), ("old", 1));
        assert_eq!((report.entry.end, report.entry.cause), (RunOutcome::Lost, RunCause::Scheduled));
        assert_eq!(&*report.entry.reason, "it was started by old, who left no word of its end");
        let record = report.close.unwrap().record;
        let RunRecord::Closed { term, at: from, end, .. } = record else { panic!("{record:?}") };
        assert_eq!((term.get(), from, end), (1, at(12), RunOutcome::Lost));
    }

    #[test]
    fn a_run_that_may_have_started_before_the_founding_is_lost_under_this_term() {
        let most = job(Delivery::AtMostOnce);
        let (_, mut lost) = unfinished(&most, &sealed(&[12], &[]));
        let report = reporter().lost(&most, PendingRun { seen: None, unknown: true, ..lost.remove(0) });
        assert_eq!((&*report.entry.worker, report.entry.term.get()), ("an earlier leader", 9));
        assert!(report.entry.reason.contains("a majority of the nodes has forgotten"));
        assert_eq!(report.close.unwrap().record.term().get(), 9);
    }

    #[test]
    fn a_skipped_tick_is_closed_as_long_as_a_later_leader_looks_at_it() {
        let once = Job::new("j", Schedule::every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        let most = Arc::new(once.delivery(Delivery::AtMostOnce).misfire(Misfire::run_once(10 * SECOND)));
        let at_time = |tick, now| reporter().skipped(&most, tick, now);
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
            assert_eq!((close.key, close.record.at()), (RunKey::new("j", at(7)).key(), at(7)));
            let RunRecord::Closed { end: stored, from: first, .. } = close.record else { panic!() };
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
    fn the_next_leader_enters_all_ticks_that_one_record_closes() {
        let most = job(Delivery::AtMostOnce);
        let missed = MisfiredTicks { first: at(3), last: at(7), why: MisfireReason::Rule };
        let most = Arc::new((*most).clone().misfire(Misfire::run_once(10 * SECOND)));
        let report = reporter().skipped(&most, SkippedTick::Missed(missed), at(8)).unwrap();
        let Close { key, record } = report.close.unwrap();
        let sealed = snapshot([(key, record.to_value())]);
        assert_eq!(unfinished(&most, &sealed), (vec![], vec![]));
        let ends: Vec<_> = recorded_ends(&most.name, &sealed).collect();
        let [RecordedEnd { entry, .. }] = &ends[..] else { panic!() };
        assert_eq!((entry.tick, entry.until, entry.key()), (at(3), Some(at(7)), report.entry.key()));
        assert_eq!((entry.end, entry.term.get()), (RunOutcome::SkippedMisfire, 9));
    }

    #[test]
    fn a_run_that_was_dropped_is_closed_only_under_at_most_once() {
        for (delivery, closes) in [(Delivery::AtMostOnce, true), (Delivery::AtLeastOnce, false)] {
            let (key, cause, here) = ("k".into(), RunCause::Scheduled, true);
            let run = ActiveRun { key, tick: at(7), at: at(7), not_before: at(7), cause, here, uses: None };
            let report = reporter().aborted(&job(delivery), run, at(8), SECOND);
            assert_eq!((report.entry.end, report.close.is_some()), (RunOutcome::Cancelled, closes));
            assert_eq!((report.entry.started, report.entry.attempts), (Some(at(8)), 1));
        }
    }
}
