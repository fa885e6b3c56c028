//! The runs of a job that runs after another one.

use super::{LedJob, ticks::DueDecisions};
use crate::{
    env::WallTime,
    scheduler::{
        job::RunCause,
        plan::active_run::{SkippedTick, Withdrawal},
        policy::{DUE_MAX, Overlap},
        run::pending_run::PendingRun,
        store::{RunKey, recorded_ends::FollowedEnd, snapshot::LedgerSnapshot, verdict::Decision},
    },
};

impl LedJob {
    /// Adds the run that follows the end of another job's run at `now`. Its record has the same time as that of the other
    /// run, so both are kept for as long. If the ledger or this leader has the run already, does nothing. A test sets `again`
    /// to leave the ledger out.
    pub(in crate::scheduler) fn follow(
        &mut self,
        sealed: &LedgerSnapshot,
        end: &FollowedEnd,
        again: bool,
        now: WallTime,
    ) -> DueDecisions {
        let mut decisions = DueDecisions::default();
        let (tick, at) = (end.tick, end.at);
        let key = RunKey::new(&self.job.name, tick).key();
        let mut decided = sealed.decide(self.job.rules.delivery, &key, at, tick);
        if again {
            (decided.decision, decided.seen) = (Decision::Run, None);
        }
        let postponed = self.postponed.iter().map(|(_, run)| run);
        let is_planned = self.waiting.iter().chain(postponed).any(|run| run.key == key)
            || self.active.iter().any(|run| run.key == key);
        if is_planned || decided.seen.is_some() {
            return decisions;
        }
        if let Decision::Skip(why) = decided.decision {
            decisions.skipped.push(SkippedTick::Decided(tick, why));
            return decisions;
        }
        let run = PendingRun {
            tick,
            cause: RunCause::Scheduled,
            key,
            at,
            not_before: now,
            seen: None,
            unknown: decided.unknown,
            interruptions: 0,
            payload: None,
        };
        match self.left_out_at(now) {
            Some(Withdrawal::Frozen) => decisions.skipped.push(SkippedTick::Frozen(run)),
            Some(_) => decisions.skipped.push(SkippedTick::Paused(run)),
            None if self.job.rules.overlap == Overlap::Skip
                && (self.is_busy() || !self.waiting.is_empty()) =>
            {
                decisions.skipped.push(SkippedTick::Followed(run));
            }
            None => {
                if self.job.rules.overlap == Overlap::CancelOld && self.is_busy() {
                    decisions.cancel_for = Some(tick);
                }
                self.waiting.push_back(run);
                if self.waiting.len() > DUE_MAX
                    && let Some(oldest) = self.waiting.iter().position(|run| !run.is_unfinished())
                {
                    decisions.skipped.extend(self.waiting.remove(oldest).map(SkippedTick::Followed));
                }
            }
        }
        decisions
    }

    /// Returns whether a run of this job follows the end of a run of the job before it.
    pub(in crate::scheduler) fn follows(&self, end: &FollowedEnd) -> bool {
        self.job.schedule.follows().is_some_and(|after| end.is_followed(after.on))
    }

    /// Returns whether the end of another job's run, found by a new leader, counts for this job.
    pub(in crate::scheduler) fn counts(&self, end: &FollowedEnd) -> bool {
        self.follows(end) && end.ended > self.row.since
    }
}
