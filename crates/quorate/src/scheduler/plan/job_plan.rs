//! The plan of one job: which of its ticks run, wait or are skipped. The plan is computed from the sealed
//! ledger, the events of the term, and the time.

use crate::scheduler::{
    plan::{
        pending_run::{ActiveRun, PendingRun, SkippedTick},
        record_life::{LATE_AFTER, record_from},
    },
    store::snapshot::LedgerSnapshot,
};
use crate::{
    env::WallTime,
    node::FencingToken,
    scheduler::{
        DUE_MAX, Decision, DueTicks, Job, Misfire, Overlap, Placement, RunCause, RunKey, policy::Jitter,
        policy::due_with,
    },
};
use std::{cmp::Reverse, collections::VecDeque, mem, sync::Arc, time::Duration};

/// A run that was interrupted more often than this, in one term, is postponed.
const INTERRUPTED_MAX: u32 = 3;
/// The pause before a postponed run starts again: it doubles each time, from the first value to the second.
const POSTPONE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));
/// The largest number of ticks of one job that are opened ahead at once.
const AHEAD_RUNS: usize = 1_000;

/// The ticks of one job that run or wait to be run.
#[derive(Debug)]
pub(in crate::scheduler) struct JobPlan {
    job: Arc<Job>,
    jitter: Jitter,
    /// All ticks up to this time have been planned.
    planned: WallTime,
    /// No tick before this time is due. It is `since` of the job's row when the leader took the job over or
    /// changed it.
    since: WallTime,
    waiting: VecDeque<PendingRun>,
    /// The requested runs that wait. They start one after another, and alternate with the waiting ticks.
    requested: VecDeque<PendingRun>,
    /// The runs that were interrupted several times, each with the time when it starts again.
    postponed: Vec<(WallTime, PendingRun)>,
    /// The earliest time of a record that stays *started* until the next leader decides on it.
    left_to_next: Option<WallTime>,
    /// True if a tick has started since the last requested run, so that a requested run starts next.
    requested_next: bool,
    active: Vec<ActiveRun>,
    /// The time when the run of the next tick is due.
    next: Option<WallTime>,
    /// The next tick of a schedule that counts from the end of the previous run; `None` until that run has
    /// ended.
    after_end: Option<WallTime>,
    paused: bool,
    /// The time before a tick at which its run is opened to workers.
    ahead: Duration,
}

/// The decisions on the ticks of one job that have come due.
#[derive(Debug, Default, PartialEq)]
pub(in crate::scheduler) struct DueDecisions {
    pub(in crate::scheduler) skipped: Vec<SkippedTick>,
    /// The tick for which the active runs must be cancelled.
    pub(in crate::scheduler) cancel_for: Option<WallTime>,
}

impl JobPlan {
    /// Creates the plan of a job. The ticks after `from` are due, and the `unfinished` runs must still be
    /// executed.
    pub(in crate::scheduler) fn new(
        job: Arc<Job>,
        from: WallTime,
        mut unfinished: Vec<PendingRun>,
        paused: bool,
    ) -> Self {
        unfinished.sort_by_key(open_first);
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

    /// Sets the time before which no tick is due. Sets also the end of the last run (`ended`), from which
    /// some schedules count.
    pub(in crate::scheduler) fn due_since(mut self, since: WallTime, ended: Option<WallTime>) -> Self {
        self.since = since;
        self.begin_after_end(since, ended);
        self
    }

    /// Sets the time before a tick at which its run is opened to workers.
    pub(in crate::scheduler) fn open_ahead_by(&mut self, ahead: Duration) {
        self.ahead = ahead;
    }

    pub(in crate::scheduler) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Returns the time when the run of the next tick is due.
    pub(in crate::scheduler) fn next(&self) -> Option<WallTime> {
        self.next
    }

    /// Returns the time up to which all ticks have been planned. A changed schedule counts from this time or
    /// later.
    pub(in crate::scheduler) fn planned(&self) -> WallTime {
        self.planned
    }

    pub(in crate::scheduler) fn active(&self) -> &[ActiveRun] {
        &self.active
    }

    pub(in crate::scheduler) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Plans the next tick of a schedule that counts from the ends of runs: the first tick, or the tick after
    /// `ended`. Plans nothing while a run of the job waits or is active.
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
        // A tick with a record was planned by an earlier leader, and is not reported as missed.
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

    /// Decides on a tick that counts from the end of the previous run. The tick is never too late.
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

    /// Decides on ticks of the near future before they are due. Their runs are then open to workers even
    /// while a new leader is elected.
    fn open_ahead(&mut self, sealed: &LedgerSnapshot, now: WallTime, decisions: &mut DueDecisions) {
        let upto = now + self.ahead;
        for _ in 0..AHEAD_RUNS {
            let Some(tick) = self.next_ahead().filter(|tick| self.jitter.ripe(*tick) <= upto) else { break };
            self.planned = tick;
            self.decide(sealed, tick, now, false, decisions);
            self.next = self.next_due(self.job.schedule.next_after(tick));
        }
    }

    /// Returns the next tick, if the overlap rule permits the leader to open its run before it is due.
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

    /// Skips waiting ticks in favour of later ones. Under the misfire rule run-all, the latest [`DUE_MAX`]
    /// ticks stay, unless the overlap rule is cancel-old. In all other cases only the latest tick stays.
    /// Unfinished runs always stay.
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

    /// Takes back a run that was interrupted within the term. It starts again before all other runs: at once,
    /// or after a pause if it was interrupted several times. Returns the end of that pause.
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

    /// Moves the postponed runs whose pause has ended back to the waiting runs.
    fn resume_postponed(&mut self, now: WallTime) {
        let (due, later): (Vec<_>, _) =
            mem::take(&mut self.postponed).into_iter().partition(|(at, _)| *at <= now);
        self.postponed = later;
        due.into_iter().for_each(|(_, run)| self.push_front(run));
    }

    /// Leaves a run to the next leader. The run's record, of the time `at`, stays *started*.
    pub(in crate::scheduler) fn leave_to_next(&mut self, at: WallTime) {
        self.left_to_next = Some(self.left_to_next.map_or(at, |left| left.min(at)));
    }

    /// Returns the time when [`JobPlan::plan_due`] has work.
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

    /// Drops all waiting requested runs.
    pub(in crate::scheduler) fn drop_requested(&mut self) {
        self.postponed.retain(|(_, run)| run.request().is_none());
        self.requested.clear();
    }

    /// Returns the time up to which all ticks have been decided on: `now`, or just before the first due tick
    /// that is not planned.
    pub(in crate::scheduler) fn decided(&self, now: WallTime) -> WallTime {
        let first = self.job.schedule.next_after(self.planned).filter(|tick| *tick <= now);
        // After a backward step of the clock, ticks that have been planned still count as decided.
        first.map_or(now.max(self.planned), |tick| tick - Duration::from_micros(1))
    }

    /// Pauses the job: from now on no tick is due. Returns the waiting ticks before `until`, interrupted ones
    /// included, as skipped. Later ticks may wait, too, because runs are opened ahead. Open runs stay in the
    /// plan, because they can be ended only through their slots.
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

    /// Resumes the job: ticks after `now` are due. Returns the span of the ticks that the pause since
    /// `paused` left out. The span includes ticks from before this leader took the paused job over.
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

    /// Replaces the job. If the schedule or the placement has changed, the job's ticks count from `now`, and
    /// the waiting ticks are skipped. Unfinished runs stay.
    pub(in crate::scheduler) fn replace(&mut self, job: Arc<Job>, now: WallTime) -> Vec<SkippedTick> {
        let moved = job.schedule != self.job.schedule || job.placement != self.job.placement;
        self.jitter = job.jitters();
        self.job = job;
        let mut skipped = Vec::new();
        if moved {
            // If the clock has stepped back, ticks later than `now` have already been planned. They must not
            // start again.
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

    /// Returns the run that may start now. A run that an earlier leader has opened comes first. A worker may
    /// already execute such a run, so this leader must watch its slot from the beginning.
    ///
    /// If runs of the job must not overlap, the open runs start one after another, in the order of [`open_first`].
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

    /// Returns whether a requested run may start. Requested runs start one after another, under every overlap
    /// rule.
    fn may_start_requested(&self) -> bool {
        !self.active.iter().any(|run| run.request.is_some())
    }

    /// Returns the queue whose first run is open to workers, if there is one.
    fn open_queue(&self) -> Option<&VecDeque<PendingRun>> {
        [&self.waiting, &self.requested]
            .into_iter()
            .find(|runs| runs.front().is_some_and(PendingRun::is_open))
    }

    /// Removes the run that [`JobPlan::head`] returns. Requested runs and ticks alternate. Otherwise no
    /// requested run would start if runs take longer than the gap between ticks.
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

    /// Removes and returns the run to start now, and the ticks that have waited for longer than the misfire
    /// window.
    pub(in crate::scheduler) fn start(&mut self, now: WallTime) -> (Option<PendingRun>, Vec<SkippedTick>) {
        let mut too_late = Vec::new();
        while self.head().is_some() {
            let Some(run) = self.pop() else { break };
            let window = self.job.misfire.within().max(LATE_AFTER);
            // Only a scheduled run can be too late. A catch-up run was within the window when the leader
            // decided on it. An unfinished run may have been started: only its slot or its record shows how
            // it ends (rule R7 of `docs/design/scheduler.md`).
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

    /// Adds a run that has started.
    pub(in crate::scheduler) fn begin(&mut self, run: ActiveRun) {
        self.active.push(run);
    }

    /// Removes the active run under `key`.
    pub(in crate::scheduler) fn end(&mut self, key: &str) -> Option<ActiveRun> {
        let at = self.active.iter().position(|run| *run.key == *key)?;
        Some(self.active.remove(at))
    }
}

/// Orders the unfinished runs of a job: open runs first, and of these the run with the record of the highest term. A
/// leader opens a run of a job without overlap only if it found no other open run of the job. So an open record of a lower
/// term never had a majority, and no worker has taken that run.
fn open_first(run: &PendingRun) -> (bool, Reverse<Option<FencingToken>>) {
    let term = run.seen.as_ref().filter(|_| run.is_open()).map(|record| record.term);
    (!run.is_open(), Reverse(term))
}

/// Returns whether a pause until `until` leaves the tick out.
pub(in crate::scheduler) fn is_before(tick: WallTime, until: Option<WallTime>) -> bool {
    until.is_none_or(|until| tick < until)
}

#[cfg(test)]
#[path = "job_plan_tests.rs"]
mod tests;
