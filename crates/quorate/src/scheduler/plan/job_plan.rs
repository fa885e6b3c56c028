//! The plan of one job: which of its ticks run, wait or are skipped, as a pure function of the sealed ledger and the time.

use crate::scheduler::{
    plan::{
        pending_run::{ActiveRun, PendingRun, SkippedTick},
        record_life::{LATE_AFTER, record_from},
    },
    store::snapshot::LedgerSnapshot,
};
use crate::{
    env::WallTime,
    scheduler::{
        DUE_MAX, Decision, DueTicks, Job, Misfire, Overlap, Placement, RunCause, RunKey, policy::Jitter,
        policy::due_with,
    },
};
use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

/// The number of interruptions after which a run is no longer started again at once.
const INTERRUPTED_MAX: u32 = 3;
/// The pause before such a run within one term: it doubles each time, from the first value to the second.
const POSTPONE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));
/// The most ticks of one job that are opened ahead at once.
const AHEAD_RUNS: usize = 1_000;

/// The ticks of one job that run or wait to be run.
#[derive(Debug)]
pub(in crate::scheduler) struct JobPlan {
    job: Arc<Job>,
    jitter: Jitter,
    /// All ticks up to this time have been planned.
    planned: WallTime,
    /// No tick before this is due: as in the job's row, but for what a pause left out.
    since: WallTime,
    waiting: VecDeque<PendingRun>,
    /// Requested runs. They start one after another, and take turns with the waiting ticks.
    requested: VecDeque<PendingRun>,
    /// Runs that were interrupted several times, and when each starts again.
    postponed: Vec<(WallTime, PendingRun)>,
    /// The earliest time of a record that stays as started, and that the next leader decides on.
    left_to_next: Option<WallTime>,
    /// A waiting tick has started since the last requested run: the next turn is a requested run's.
    requested_next: bool,
    active: Vec<ActiveRun>,
    /// When the run of the next tick is due.
    next: Option<WallTime>,
    /// The next tick of a schedule that counts from the end of the run before, once that has ended.
    after_end: Option<WallTime>,
    paused: bool,
    /// The time by which a run is opened to workers before its tick.
    ahead: Duration,
}

/// The decisions on the ticks of one job that have come due.
#[derive(Debug, Default, PartialEq)]
pub(in crate::scheduler) struct DueDecisions {
    pub(in crate::scheduler) skipped: Vec<SkippedTick>,
    /// The tick for which the active runs are to be cancelled.
    pub(in crate::scheduler) cancel_for: Option<WallTime>,
}

impl JobPlan {
    /// Creates the plan of a job whose ticks after `from` are due, and whose `unfinished` runs are still to be run.
    pub(in crate::scheduler) fn new(
        job: Arc<Job>,
        from: WallTime,
        mut unfinished: Vec<PendingRun>,
        paused: bool,
    ) -> Self {
        unfinished.sort_by_key(|run| !run.is_open());
        let jitter = job.jitters();
        let mut plan = Self {
            job,
            jitter,
            planned: from,
            since: WallTime::default(),
            waiting: unfinished.into(),
            requested: VecDeque::new(),
            postponed: Vec::new(),
            left_to_next: None,
            requested_next: false,
            active: Vec::new(),
            next: None,
            after_end: None,
            paused,
            ahead: Duration::ZERO,
        };
        if !plan.job.schedule.is_after_end() {
            plan.next = plan.next_due(plan.job.schedule.next_after(from));
        }
        plan
    }

    /// Sets the time before which no tick is due, and the last end from which such a schedule counts.
    pub(in crate::scheduler) fn due_since(mut self, since: WallTime, ended: Option<WallTime>) -> Self {
        self.since = since;
        self.begin_after_end(since, ended);
        self
    }

    /// Sets the time by which runs are opened to workers before their ticks.
    pub(in crate::scheduler) fn open_ahead_by(&mut self, ahead: Duration) {
        self.ahead = ahead;
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Returns when the run of the next tick is due.
    pub(in crate::scheduler) fn next(&self) -> Option<WallTime> {
        self.next
    }

    /// Returns the time up to which all ticks have been planned. A changed schedule counts from no earlier than this.
    pub(in crate::scheduler) fn planned(&self) -> WallTime {
        self.planned
    }

    pub(in crate::scheduler) fn active(&self) -> &[ActiveRun] {
        &self.active
    }

    pub(in crate::scheduler) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Plans the first tick of a schedule that counts from ends, or the one after an end at `ended`, unless a run of the
    /// job waits or is active.
    pub(in crate::scheduler) fn begin_after_end(&mut self, since: WallTime, ended: Option<WallTime>) {
        let schedule = &self.job.schedule;
        if schedule.is_after_end() && self.waiting.is_empty() && self.active.is_empty() {
            self.after_end = ended.map_or_else(|| schedule.first(since), |end| schedule.next_after_end(end));
            self.next = self.next_due(self.after_end);
        }
    }

    /// Decides on the ticks that have come due.
    pub(in crate::scheduler) fn plan_due(&mut self, sealed: &LedgerSnapshot, now: WallTime) -> DueDecisions {
        self.resume_postponed(now);
        if self.paused {
            return DueDecisions::default();
        }
        if self.job.schedule.is_after_end() {
            return self.plan_after_end(sealed, now);
        }
        let (schedule, misfire) = (&self.job.schedule, self.job.misfire);
        let DueTicks { run, skipped, next } =
            due_with(schedule, misfire, self.jitter, self.planned, now, LATE_AFTER);
        self.planned = self.planned.max(self.jitter.upto(schedule, now));
        self.next = self.next_due(next);
        let behind = self.is_busy() || !self.waiting.is_empty();
        // This leader did not plan them in time, but an earlier leader may have.
        let missed = skipped
            .into_iter()
            .flat_map(|span| span.without(schedule, sealed.stand(&self.job.name, span.first, span.last)));
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

    /// Decides on a tick that counts from the end of the run before it. Such a tick is never too late.
    fn plan_after_end(&mut self, sealed: &LedgerSnapshot, now: WallTime) -> DueDecisions {
        let mut decisions = DueDecisions::default();
        if let Some(tick) = self.after_end.filter(|tick| self.jitter.ripe(*tick) <= now) {
            (self.after_end, self.next) = (None, None);
            self.planned = self.planned.max(tick);
            self.decide(sealed, tick, now, false, &mut decisions);
        }
        decisions
    }

    fn next_due(&self, tick: Option<WallTime>) -> Option<WallTime> {
        tick.filter(|_| !self.paused).map(|tick| self.jitter.ripe(tick))
    }

    /// Decides on ticks of the near future, so that an election delays none of them for the workers.
    fn open_ahead(&mut self, sealed: &LedgerSnapshot, now: WallTime, decisions: &mut DueDecisions) {
        let upto = now + self.ahead;
        for _ in 0..AHEAD_RUNS {
            let Some(tick) = self.next_ahead().filter(|tick| self.jitter.ripe(*tick) <= upto) else { break };
            self.planned = tick;
            self.decide(sealed, tick, now, false, decisions);
            self.next = self.next_due(self.job.schedule.next_after(tick));
        }
    }

    /// Returns the next tick, where the overlap rule permits opening it before its time.
    fn next_ahead(&self) -> Option<WallTime> {
        let idle = || {
            !self.is_busy()
                && self.waiting.is_empty()
                && self.requested.is_empty()
                && self.postponed.is_empty()
        };
        let may = !self.ahead.is_zero()
            && self.job.placement == Placement::AnyWorker
            && !self.job.schedule.is_after_end()
            && (self.job.overlap == Overlap::Allow || idle());
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
        let at = record_from(&self.job, tick, self.since);
        let decided = sealed.decide(self.job.delivery, &key, at);
        match decided.decision {
            // A tick with a record that is not closed was taken over when the term began.
            _ if decided.seen.is_some() => {}
            Decision::Skip(why) => decisions.skipped.push(SkippedTick::Decided(tick, why)),
            Decision::Run | Decision::AskAgain => {
                let catch_up = decided.unknown || self.jitter.ripe(tick) + LATE_AFTER < now;
                if behind && !catch_up && self.job.overlap == Overlap::Skip {
                    decisions.skipped.push(SkippedTick::Overlapped(tick));
                    return;
                }
                if self.is_busy() && !catch_up && self.job.overlap == Overlap::CancelOld {
                    decisions.cancel_for = Some(tick);
                }
                self.waiting.push_back(PendingRun {
                    tick,
                    cause: if catch_up { RunCause::CatchUp } else { RunCause::Scheduled },
                    key,
                    at,
                    remembering: decided.remembering,
                    not_before: self.jitter.ripe(tick),
                    seen: None,
                    unknown: decided.unknown,
                    interruptions: 0,
                });
            }
        }
    }

    /// Skips waiting ticks in favour of later ones: all but a limit stay under run-all, else only the latest stays.
    /// Unfinished runs stay.
    fn overtake(&mut self, skipped: &mut Vec<SkippedTick>) {
        let most = match (self.job.misfire, self.job.overlap) {
            (Misfire::RunAll { .. }, Overlap::Queue | Overlap::Skip | Overlap::Allow) => DUE_MAX,
            _ => 1,
        };
        let ticks = self.waiting.iter().filter(|run| !run.is_unfinished()).count();
        let mut excess = ticks.saturating_sub(most);
        self.waiting.retain(|run| {
            let goes = excess > 0 && !run.is_unfinished();
            if goes {
                excess -= 1;
                skipped.push(SkippedTick::Overtaken(run.tick));
            }
            !goes
        });
    }

    fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// Takes a run back that was interrupted within the term. It starts before all others: at once, or later after several
    /// interruptions. Returns the later time.
    pub(in crate::scheduler) fn again(&mut self, run: PendingRun, now: WallTime) -> Option<WallTime> {
        let more = run.interruptions.saturating_sub(INTERRUPTED_MAX);
        if more == 0 {
            self.push_front(run);
            return None;
        }
        let (first, most) = POSTPONE;
        let at = now + first.saturating_mul(1 << (more - 1).min(16)).min(most);
        self.postponed.push((at, run));
        Some(at)
    }

    fn push_front(&mut self, run: PendingRun) {
        match run.request() {
            None => self.waiting.push_front(run),
            Some(_) => self.requested.push_front(run),
        }
    }

    /// Lets the runs wait again that were postponed until now.
    fn resume_postponed(&mut self, now: WallTime) {
        let (due, later): (Vec<_>, _) =
            mem::take(&mut self.postponed).into_iter().partition(|(at, _)| *at <= now);
        self.postponed = later;
        due.into_iter().for_each(|(_, run)| self.push_front(run));
    }

    /// Leaves a run, whose record stays as started since `at`, to the next leader.
    pub(in crate::scheduler) fn leave_to_next(&mut self, at: WallTime) {
        self.left_to_next = Some(self.left_to_next.map_or(at, |left| left.min(at)));
    }

    /// Returns when [`JobPlan::plan_due`] has work.
    pub(in crate::scheduler) fn wake(&self) -> Option<WallTime> {
        let ahead = if self.next_ahead().is_some() { self.ahead } else { Duration::ZERO };
        let next = self.next.map(|next| next - ahead);
        next.into_iter().chain(self.postponed.iter().map(|(at, _)| *at)).min()
    }

    /// Adds a requested run.
    pub(in crate::scheduler) fn add_requested(&mut self, run: PendingRun) {
        if run.is_open() {
            self.requested.push_front(run);
        } else {
            self.requested.push_back(run);
        }
    }

    /// Drops all requested runs that wait.
    pub(in crate::scheduler) fn drop_requested(&mut self) {
        self.postponed.retain(|(_, run)| run.request().is_none());
        self.requested.clear();
    }

    /// Returns the time up to which all ticks have been decided on: `now`, or just before the first due tick that is not
    /// planned.
    pub(in crate::scheduler) fn decided(&self, now: WallTime) -> WallTime {
        let first = self.job.schedule.next_after(self.planned).filter(|tick| *tick <= now);
        // After a backward step of the clock, planned ticks stay decided.
        first.map_or(now.max(self.planned), |tick| tick - Duration::from_micros(1))
    }

    /// Pauses the job: from now on no tick is due. Returns the ticks that waited, interrupted ones included, as skipped.
    /// Runs that are open stay: only their slots can end them.
    pub(in crate::scheduler) fn pause(&mut self) -> Vec<SkippedTick> {
        self.paused = true;
        self.next = None;
        let (requested, ticks): (_, Vec<_>) =
            mem::take(&mut self.postponed).into_iter().partition(|(_, run)| run.request().is_some());
        self.postponed = requested;
        let (open, waiting): (_, VecDeque<_>) =
            mem::take(&mut self.waiting).into_iter().partition(PendingRun::is_open);
        self.waiting = open;
        waiting.into_iter().chain(ticks.into_iter().map(|(_, run)| run)).map(SkippedTick::Paused).collect()
    }

    /// Resumes the job: ticks after `now` are due. Returns the span of the ticks that were not due since `paused`.
    /// (A leader that took the pause over has planned none of them, though its plan begins later than `paused`.)
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

    /// Replaces the job. With another schedule or placement its ticks count from `now`, and the ticks that wait are
    /// skipped, but for unfinished runs.
    pub(in crate::scheduler) fn replace(&mut self, job: Arc<Job>, now: WallTime) -> Vec<SkippedTick> {
        let moved = job.schedule != self.job.schedule || job.placement != self.job.placement;
        self.jitter = job.jitters();
        self.job = job;
        let mut skipped = Vec::new();
        if moved {
            // Not before what is planned, even if the clock has stepped back: those ticks would start again.
            self.planned = self.planned.max(now);
            self.since = self.planned;
            let (unfinished, dropped): (_, VecDeque<_>) =
                mem::take(&mut self.waiting).into_iter().partition(PendingRun::is_unfinished);
            self.waiting = unfinished;
            skipped.extend(dropped.into_iter().map(|run| SkippedTick::Changed(run.tick)));
            (self.after_end, self.next) = (None, None);
        }
        if self.job.schedule.is_after_end() {
            match self.after_end {
                Some(_) => self.next = self.next_due(self.after_end),
                None if moved => self.begin_after_end(self.planned, None),
                None => {}
            }
            return skipped;
        }
        self.next = self.next_due(self.job.schedule.next_after(self.planned));
        skipped
    }

    /// Returns the earliest time of a record that this leader still needs, so that the ledger keeps it.
    pub(in crate::scheduler) fn oldest(&self) -> Option<WallTime> {
        let postponed = self.postponed.iter().map(|(_, run)| run);
        let waiting = self.waiting.iter().chain(&self.requested).chain(postponed).map(|run| run.at);
        waiting.chain(self.active.iter().map(|run| run.at)).chain(self.left_to_next).min()
    }

    /// Returns the run that may start now. A run that an earlier leader has opened does not wait: workers may execute it
    /// whatever this leader does, so the leader watches it from the beginning.
    pub(in crate::scheduler) fn head(&self) -> Option<&PendingRun> {
        if let Some(open) = self.open_queue() {
            return open.front();
        }
        let beside = self.job.overlap == Overlap::Allow;
        let waiting = self.waiting.front().filter(|_| beside || !self.is_busy());
        let requested =
            || self.requested.front().filter(|_| self.may_start_requested() && (beside || !self.is_busy()));
        if self.requested_next { requested().or(waiting) } else { waiting.or_else(requested) }
    }

    /// Requested runs go one after another under every overlap rule.
    fn may_start_requested(&self) -> bool {
        !self.active.iter().any(|run| run.request.is_some())
    }

    /// Returns the queue that begins with a run that is open.
    fn open_queue(&self) -> Option<&VecDeque<PendingRun>> {
        [&self.waiting, &self.requested]
            .into_iter()
            .find(|runs| runs.front().is_some_and(PendingRun::is_open))
    }

    /// Removes the run that [`JobPlan::head`] returns. Turns are needed: where runs take longer than the gap between
    /// ticks, a tick always waits.
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

    /// Removes the run to start now, and the ticks that have waited for longer than the misfire window.
    pub(in crate::scheduler) fn start(&mut self, now: WallTime) -> (Option<PendingRun>, Vec<SkippedTick>) {
        let mut too_late = Vec::new();
        while self.head().is_some() {
            let Some(run) = self.pop() else { break };
            let window = self.job.misfire.within().max(LATE_AFTER);
            // A catch-up run was within the window when it was decided on. An unfinished run may have been started: only its
            // slot or its record shows how it ends (R7).
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

    /// Adds a run that has begun.
    pub(in crate::scheduler) fn begin(&mut self, run: ActiveRun) {
        self.active.push(run);
    }

    /// Removes the active run under `key`.
    pub(in crate::scheduler) fn end(&mut self, key: &str) -> Option<ActiveRun> {
        let at = self.active.iter().position(|run| *run.key == *key)?;
        Some(self.active.remove(at))
    }
}

#[cfg(test)]
#[path = "job_plan_tests.rs"]
mod tests;
