//! The beginning and the end of a pause in the plan of a job.

use super::{JobPlan, is_before};
use crate::{env::WallTime, scheduler::plan::active_run::SkippedTick};
use std::{collections::VecDeque, mem};

impl JobPlan {
    /// Pauses the job: from now on no tick is due. Returns the waiting ticks before `until` as skipped,
    /// including ticks whose runs were interrupted. Ticks from `until` on keep waiting. Open runs stay in the
    /// plan too, because an open run ends only through the nodes: its worker may have started it.
    pub(in crate::scheduler) fn pause(&mut self, until: Option<WallTime>) -> Vec<SkippedTick> {
        self.paused = true;
        self.next = None;
        let (requested, ticks): (_, Vec<_>) =
            mem::take(&mut self.postponed).into_iter().partition(|(_, run)| run.request().is_some());
        self.postponed = requested;
        let (open, waiting): (_, VecDeque<_>) = mem::take(&mut self.waiting)
            .into_iter()
            .partition(|run| run.is_open() || !is_before(run.tick, until));
        self.waiting = open;
        waiting.into_iter().chain(ticks.into_iter().map(|(_, run)| run)).map(SkippedTick::Paused).collect()
    }

    /// Pauses a job that is being taken over. Unlike [`JobPlan::pause`], keeps the waiting runs of earlier terms.
    pub(in crate::scheduler) fn hold(&mut self) {
        self.paused = true;
        self.next = None;
    }

    /// Ends one of two pauses at `now`, while the other one continues. Returns the span of the ticks since `paused`
    /// that the ended pause left out.
    pub(in crate::scheduler) fn resume_into(
        &mut self,
        paused: WallTime,
        now: WallTime,
    ) -> Option<(WallTime, WallTime)> {
        let span = self.resume(paused, now);
        self.since = self.since.max(now);
        self.hold();
        span
    }

    /// Resumes the job, so that ticks after `now` are due. Returns the span of the ticks between `paused` and
    /// `now`, which were skipped. The span may begin before this leader's term.
    pub(in crate::scheduler) fn resume(
        &mut self,
        paused: WallTime,
        now: WallTime,
    ) -> Option<(WallTime, WallTime)> {
        self.paused = false;
        let schedule = &self.job.schedule;
        if schedule.is_after_end() {
            match self.after_end {
                Some(_) => self.next = self.next_due(self.after_end),
                None => self.begin_after_end(now, Some(now)),
            }
            return None;
        }
        let after = paused.max(self.since);
        let first = schedule.next_after(after).filter(|tick| *tick <= now);
        let span = first.and_then(|first| Some((first, schedule.last_within(after, now)?)));
        self.planned = self.planned.max(now);
        self.next = self.next_due(self.job.schedule.next_after(self.planned));
        span
    }
}
