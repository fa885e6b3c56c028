//! The choice of the run of a job that starts next.

use super::JobPlan;
use crate::{
    env::WallTime,
    scheduler::{
        Overlap, RunCause,
        plan::{
            pending_run::{PendingRun, SkippedTick},
            record_life::LATE_AFTER,
        },
    },
};
use std::collections::VecDeque;

impl JobPlan {
    /// Returns the waiting run that may start now, if there is one. A run that an earlier leader has opened
    /// comes first: a worker may already execute it, so this leader must watch its slot from the beginning of
    /// the term.
    ///
    /// If runs of the job must not overlap, the open runs start one after another, in the order of
    /// [`open_first`].
    pub(in crate::scheduler) fn head(&self) -> Option<&PendingRun> {
        let beside = self.job.overlap == Overlap::Allow;
        if let Some(open) = self.open_queue() {
            return open.front().filter(|_| beside || !self.is_busy());
        }
        let waiting = self.waiting.front().filter(|_| beside || !self.is_busy());
        let requested =
            || self.requested.front().filter(|_| self.may_start_requested() && (beside || !self.is_busy()));
        if self.requested_next { requested().or(waiting) } else { waiting.or_else(requested) }
    }

    /// Returns whether a requested run may start. Under every overlap rule, only one requested run is active at
    /// a time.
    fn may_start_requested(&self) -> bool {
        !self.active.iter().any(|run| run.request.is_some())
    }

    /// Returns the queue whose first run was opened to workers by an earlier leader, if there is such a queue.
    fn open_queue(&self) -> Option<&VecDeque<PendingRun>> {
        [&self.waiting, &self.requested]
            .into_iter()
            .find(|runs| runs.front().is_some_and(PendingRun::is_open))
    }

    /// Removes and returns the run that [`JobPlan::head`] returns. Requested runs and ticks start alternately.
    /// Otherwise no requested run would start if each run takes longer than the gap between two ticks.
    fn pop(&mut self) -> Option<PendingRun> {
        for runs in [&mut self.waiting, &mut self.requested] {
            if runs.front().is_some_and(PendingRun::is_open) {
                return runs.pop_front();
            }
        }
        let requested = self.requested_next && self.may_start_requested() && !self.requested.is_empty();
        if self.waiting.is_empty() || requested {
            self.requested_next = false;
            return self.requested.pop_front();
        }
        self.requested_next = true;
        self.waiting.pop_front()
    }

    /// Removes and returns the run that starts now, if there is one. Also returns the ticks that are skipped
    /// because they waited for longer than the misfire window.
    pub(in crate::scheduler) fn start(&mut self, now: WallTime) -> (Option<PendingRun>, Vec<SkippedTick>) {
        let mut too_late = Vec::new();
        while self.head().is_some() {
            let Some(run) = self.pop() else { break };
            let window = self.job.misfire.within().max(LATE_AFTER);
            // Only a scheduled run can be too late. A catch-up run was within the misfire window when the
            // leader decided to run it. An unfinished run may have been started before. Its slot or its record
            // shows how it ends, so the leader must not skip it (rule R7 of `docs/design/scheduler.md`).
            let after_end = self.job.schedule.is_after_end();
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
