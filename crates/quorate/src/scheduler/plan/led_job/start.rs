//! The choice of the run of a job that starts next.

use super::LedJob;
use crate::{
    env::WallTime,
    scheduler::{
        job::RunCause, plan::active_run::SkippedTick, policy::Overlap, run::pending_run::PendingRun,
        store::record_life::LATE_AFTER,
    },
};
use std::collections::VecDeque;

/// A queue of a job's waiting runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Ticks,
    Requested,
}

impl LedJob {
    /// Returns the waiting run that may start now, if there is one.
    pub(in crate::scheduler) fn head(&self) -> Option<&PendingRun> {
        match self.turn()? {
            Queue::Ticks => self.waiting.front(),
            Queue::Requested => self.requested.front(),
        }
    }

    /// Returns the queue whose first run may start now. A run that an earlier leader has opened comes first: a worker may
    /// already execute it, so this leader must watch the run from the beginning of the term. If runs of the job must not
    /// overlap, the open runs start one after another, in the order of [`open_first`](super::open_first).
    ///
    /// Requested runs and ticks start alternately. Otherwise no requested run would start if each run takes longer than
    /// the gap between two ticks. Under every overlap rule, only one requested run is active at a time.
    fn turn(&self) -> Option<Queue> {
        if self.is_busy() && self.job.rules.overlap != Overlap::Allow {
            return None;
        }
        let is_open = |runs: &VecDeque<PendingRun>| runs.front().is_some_and(PendingRun::is_open);
        if is_open(&self.waiting) {
            return Some(Queue::Ticks);
        }
        let is_active = || self.active.iter().any(|run| run.request().is_some());
        let requested = is_open(&self.requested) || !self.requested.is_empty() && !is_active();
        let first = is_open(&self.requested) || self.requested_next || self.waiting.is_empty();
        if requested && first {
            return Some(Queue::Requested);
        }
        (!self.waiting.is_empty()).then_some(Queue::Ticks)
    }

    /// Removes and returns the run that [`LedJob::head`] returns.
    fn pop(&mut self) -> Option<PendingRun> {
        let queue = self.turn()?;
        let run = match queue {
            Queue::Ticks => self.waiting.pop_front(),
            Queue::Requested => self.requested.pop_front(),
        }?;
        if !run.is_open() {
            self.requested_next = queue == Queue::Ticks;
        }
        Some(run)
    }

    /// Returns the time at which a decision on the job may need the end of `run`, which starts now: the next tick is
    /// then due. Returns `None` if the end is needed at once: another run or a request waits for it, or the schedule
    /// counts from it.
    pub(in crate::scheduler) fn end_needed_at(&self, run: &PendingRun) -> Option<WallTime> {
        let nothing_waits = self.waiting.is_empty() && self.requested.is_empty() && self.postponed.is_empty();
        let is_plain =
            run.cause == RunCause::Scheduled && !run.is_unfinished() && self.job.rules.concurrency.is_none();
        self.next.filter(|_| nothing_waits && is_plain && !self.job.schedule.is_after_end())
    }

    /// Removes and returns the run that starts now, if there is one. Also returns the ticks that are skipped
    /// because they waited for longer than the misfire window.
    pub(in crate::scheduler) fn start(&mut self, now: WallTime) -> (Option<PendingRun>, Vec<SkippedTick>) {
        let mut too_late = Vec::new();
        while let Some(run) = self.pop() {
            let window = self.job.misfire_rule().within().max(LATE_AFTER);
            // Only a scheduled run can be too late. A catch-up run was within the misfire window when the
            // leader decided to run it. An unfinished run may have been started before. Its worker or its
            // record shows how it ends, so the leader must not skip it (rule R7 of `docs/design/scheduler.md`).
            let after_end = self.job.schedule.is_after_end() || self.job.schedule.follows().is_some();
            let may_skip = run.cause == RunCause::Scheduled && !run.is_unfinished() && !after_end;
            if may_skip && self.jitter.ripe(run.tick) + window < now {
                too_late.push(SkippedTick::TooLate(run.tick));
                continue;
            }
            return (Some(run), too_late);
        }
        (None, too_late)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::takeover::unfinished, *};
    use crate::scheduler::{
        job::{Job, RequestId},
        policy::Misfire,
        schedule::Schedule,
        store::{
            JobRow,
            snapshot::tests::{SECOND, at, sealed},
        },
    };
    use std::sync::Arc;

    fn job(schedule: Schedule) -> Job {
        let job = Job::new("j", schedule, |_| async { Ok::<(), String>(()) });
        job.misfire(Misfire::run_all(10 * SECOND))
    }

    fn plan(job: Job, unfinished: Vec<PendingRun>) -> LedJob {
        let row = JobRow { since: at(10), ..JobRow::default() };
        let mut plan = LedJob::new(Arc::new(job), row, at(10), unfinished);
        plan.plan_due(&sealed(&[], &[]), at(11));
        plan
    }

    /// Starts the next run at 11 s. Returns the time at which its end is needed.
    fn needed(plan: &mut LedJob) -> Option<WallTime> {
        let (run, _) = plan.start(at(11));
        plan.end_needed_at(&run.expect("a run that may start"))
    }

    #[test]
    fn the_end_of_a_run_is_needed_at_the_next_tick_of_its_job() {
        assert_eq!(needed(&mut plan(job(Schedule::every(SECOND).unwrap()), Vec::new())), Some(at(12)));
    }

    #[test]
    fn the_end_of_a_run_is_needed_at_once_if_something_waits_for_it() {
        let counts_from_ends = plan(job(Schedule::delay(SECOND).unwrap()), Vec::new());
        let mut requested = plan(job(Schedule::every(SECOND).unwrap()), Vec::new());
        let (run, _) = requested.start(at(11));
        let run = run.expect("the run of a tick");
        let cause = RunCause::Triggered { id: RequestId::from_u128(1) };
        requested.waiting.push_back(run.clone());
        requested.add_requested(PendingRun { cause, key: "run/1".into(), ..run });
        let mut catching_up = plan(job(Schedule::every(SECOND).unwrap()), Vec::new());
        catching_up.plan_due(&sealed(&[], &[]), at(13));
        let again = job(Schedule::every(SECOND).unwrap());
        let (runs, _) = unfinished(&again, &sealed(&[3], &[]));
        let repeated = plan(again, runs);
        for (mut plan, why) in [
            (counts_from_ends, "the schedule counts from it"),
            (requested, "a request waits"),
            (catching_up, "later ticks wait"),
            (repeated, "an earlier leader may have started it"),
        ] {
            assert_eq!(needed(&mut plan), None, "{why}");
        }
    }
}
