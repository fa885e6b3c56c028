//! The ticks of a job that come due.

use super::LedJob;
use crate::{
    env::WallTime,
    scheduler::{
        job::RunCause,
        plan::active_run::SkippedTick,
        policy::{DUE_MAX, DueTicks, Misfire, Overlap, Placement, due_with},
        run::pending_run::PendingRun,
        store::{
            RunKey,
            record_life::{LATE_AFTER, record_from},
            snapshot::LedgerSnapshot,
            verdict::{Decision, SkipReason},
        },
    },
};
use std::time::Duration;

/// The largest number of ticks that `LedJob::open_ahead` plans in one call.
const AHEAD_RUNS: usize = 1_000;

/// The decisions on the ticks of one job that are now due.
#[derive(Debug, Default, PartialEq)]
pub(in crate::scheduler) struct DueDecisions {
    pub(in crate::scheduler) skipped: Vec<SkippedTick>,
    /// The tick because of which the active runs must be cancelled. `None` unless the overlap rule says so.
    pub(in crate::scheduler) cancel_for: Option<WallTime>,
}

impl LedJob {
    /// Plans the next tick of a schedule that counts from the ends of runs. If `ended` is `None`, this is the
    /// first tick of the job. Otherwise the tick follows a run that ended at `ended`. While the run of a tick waits or
    /// is active, its end is not known yet, and this function plans nothing. Requested runs do not matter: this function
    /// is not called when they end.
    pub(in crate::scheduler) fn begin_after_end(&mut self, since: WallTime, ended: Option<WallTime>) {
        let schedule = &self.job.schedule;
        let is_open = self.active.iter().any(|run| run.request().is_none())
            || self.postponed.iter().any(|(_, run)| run.request().is_none());
        if schedule.is_after_end() && self.waiting.is_empty() && !is_open {
            self.after_end = ended.map_or_else(|| schedule.first(since), |end| schedule.next_after_end(end));
            self.next = self.next_due(self.after_end);
        }
    }

    /// Decides on the ticks that are due at `now` and not planned yet.
    pub(in crate::scheduler) fn plan_due(&mut self, sealed: &LedgerSnapshot, now: WallTime) -> DueDecisions {
        self.resume_postponed(now);
        if self.is_paused() {
            return DueDecisions::default();
        }
        if self.job.schedule.is_after_end() {
            return self.plan_after_end(sealed, now);
        }
        let (schedule, misfire) = (&self.job.schedule, self.job.misfire_rule());
        let DueTicks { run, skipped, next } =
            due_with(schedule, misfire, self.jitter, self.planned, now, LATE_AFTER);
        self.planned = self.planned.max(self.jitter.upto(schedule, now));
        self.next = self.next_due(next);
        let behind = self.is_busy() || !self.waiting.is_empty();
        // If a tick has a record, or the record of a later tick closes it, an earlier leader decided on it. Such a
        // tick was not missed, so it gets no entry as missed.
        let missed = skipped
            .into_iter()
            .flat_map(|span| span.without(schedule, sealed.recorded(&self.job.name, span.first, span.last)));
        let skipped = missed.map(SkippedTick::Missed).collect();
        let mut decisions = DueDecisions { skipped, cancel_for: None };
        for tick in run {
            self.decide(sealed, tick, now, behind, &mut decisions);
        }
        if behind {
            self.overtake(&mut decisions.skipped);
        }
        self.open_ahead(sealed, now, &mut decisions);
        decisions
    }

    /// Decides on the tick of a schedule that counts from the ends of runs. Even a late tick of this
    /// kind is not skipped, because the next tick of the schedule follows only after the run of this tick.
    fn plan_after_end(&mut self, sealed: &LedgerSnapshot, now: WallTime) -> DueDecisions {
        let mut decisions = DueDecisions::default();
        if let Some(tick) = self.after_end.filter(|tick| self.jitter.ripe(*tick) <= now) {
            (self.after_end, self.next) = (None, None);
            self.planned = self.planned.max(tick);
            self.decide(sealed, tick, now, false, &mut decisions);
        }
        decisions
    }

    pub(super) fn next_due(&self, tick: Option<WallTime>) -> Option<WallTime> {
        tick.filter(|_| !self.is_paused()).map(|tick| self.jitter.ripe(tick))
    }

    /// Decides on ticks before they are due, so that their runs are open to workers early. Workers can then
    /// execute these runs even while there is no leader.
    fn open_ahead(&mut self, sealed: &LedgerSnapshot, now: WallTime, decisions: &mut DueDecisions) {
        let upto = now + self.ahead;
        for _ in 0..AHEAD_RUNS {
            let Some(tick) = self.next_ahead().filter(|tick| self.jitter.ripe(*tick) <= upto) else { break };
            self.planned = tick;
            self.decide(sealed, tick, now, false, decisions);
            self.next = self.next_due(self.job.schedule.next_after(tick));
        }
    }

    /// Returns the next tick, if its run may be opened before the tick is due. If runs of the job must not
    /// overlap, this is so only while the job has no active and no waiting run.
    pub(super) fn next_ahead(&self) -> Option<WallTime> {
        let idle = || {
            !self.is_busy()
                && self.waiting.is_empty()
                && self.requested.is_empty()
                && self.postponed.is_empty()
        };
        let may = !self.ahead.is_zero()
            && self.job.rules.placement == Placement::AnyWorker
            && !self.job.schedule.is_after_end()
            && self.job.rules.concurrency.is_none()
            && (self.job.rules.overlap == Overlap::Allow || idle());
        self.next.filter(|_| may).and_then(|_| self.job.schedule.next_after(self.planned))
    }

    fn decide(
        &mut self,
        sealed: &LedgerSnapshot,
        tick: WallTime,
        now: WallTime,
        behind: bool,
        decisions: &mut DueDecisions,
    ) {
        let key = RunKey::new(&self.job.name, tick).key();
        let at = record_from(&self.job, tick, self.row.since);
        let decided = sealed.decide(self.job.rules.delivery, &key, at, tick);
        match decided.decision {
            // The tick has a record. If that record is not closed, the run was added to the plan when the
            // leader took the job over, and must not be added again.
            _ if decided.seen.is_some() => {}
            Decision::Run | Decision::Skip(SkipReason::Unknown)
                if sealed.is_closed_with_later(&self.job.name, tick) =>
            {
                decisions.skipped.push(SkippedTick::Decided(tick, SkipReason::Final));
            }
            Decision::Skip(why) => decisions.skipped.push(SkippedTick::Decided(tick, why)),
            Decision::Run => {
                let catch_up = decided.unknown || self.jitter.ripe(tick) + LATE_AFTER < now;
                let is_behind = behind && !catch_up && self.job.rules.overlap == Overlap::Skip;
                if is_behind && !self.is_catching_up() {
                    decisions.skipped.push(SkippedTick::Overlapped(tick));
                    return;
                }
                if self.is_busy() && !catch_up && self.job.rules.overlap == Overlap::CancelOld {
                    decisions.cancel_for = Some(tick);
                }
                let place =
                    if is_behind { self.clear_way(&mut decisions.skipped) } else { self.waiting.len() };
                let run = PendingRun {
                    tick,
                    cause: if catch_up { RunCause::CatchUp } else { RunCause::Scheduled },
                    key,
                    at,
                    not_before: self.jitter.ripe(tick),
                    seen: None,
                    unknown: decided.unknown,
                    interruptions: 0,
                    payload: None,
                };
                self.waiting.insert(place, run);
            }
        }
    }

    /// Returns whether the job is busy only because of catch-up runs. Under the overlap rule skip, a tick that comes
    /// due then is not skipped: otherwise a backlog would keep the job from its present ticks.
    fn is_catching_up(&self) -> bool {
        let waits = || self.waiting.iter().any(|run| run.cause == RunCause::CatchUp);
        self.active.iter().all(|run| run.cause == RunCause::CatchUp) && (self.is_busy() || waits())
    }

    /// Skips the waiting ticks that came due during catch-up runs, because a later tick now replaces them. Returns the
    /// place of that tick: it runs before the remaining catch-up runs, but after runs that may have been started before.
    fn clear_way(&mut self, skipped: &mut Vec<SkippedTick>) -> usize {
        let is_live = |run: &PendingRun| run.cause == RunCause::Scheduled && !run.is_unfinished();
        self.waiting.retain(|run| {
            let goes = is_live(run);
            skipped.extend(goes.then_some(SkippedTick::Overtaken(run.tick)));
            !goes
        });
        let place = self.waiting.iter().position(|run| !run.is_unfinished());
        place.unwrap_or(self.waiting.len())
    }

    /// Skips waiting ticks that are replaced by a later tick, but never unfinished runs. By default only the
    /// latest tick stays. Under the misfire rule run-all, the latest [`DUE_MAX`] ticks stay, unless the overlap
    /// rule is cancel-old.
    fn overtake(&mut self, skipped: &mut Vec<SkippedTick>) {
        let most = match (self.job.misfire_rule(), self.job.rules.overlap) {
            (Misfire::RunAll { .. }, Overlap::Queue | Overlap::Skip | Overlap::Allow) => DUE_MAX,
            _ => 1,
        };
        let waiting = self.waiting.iter().filter(|run| !run.is_unfinished()).map(|run| run.tick);
        let mut ticks: Vec<WallTime> = waiting.collect();
        let excess = ticks.len().saturating_sub(most);
        if excess == 0 {
            return;
        }
        ticks.sort_unstable();
        let first_kept = ticks.get(excess).copied();
        self.waiting.retain(|run| {
            let goes = !run.is_unfinished() && first_kept.is_none_or(|first| run.tick < first);
            skipped.extend(goes.then_some(SkippedTick::Overtaken(run.tick)));
            !goes
        });
    }

    /// Returns the time up to which this leader has made decisions on all ticks. This time is `now`, unless a
    /// due tick is not planned yet. In that case it is just before the first such tick.
    pub(in crate::scheduler) fn decided(&self, now: WallTime) -> WallTime {
        let first = self.job.schedule.next_after(self.planned).filter(|tick| *tick <= now);
        // After a backward step of the clock, `planned` may be later than `now`. All ticks up to `planned` have
        // a decision.
        first.map_or(now.max(self.planned), |tick| tick - Duration::from_micros(1))
    }
}
