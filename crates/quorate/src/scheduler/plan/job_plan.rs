//! The plan of one job: which ticks of the job run, wait or are skipped. The plan depends only on the sealed
//! ledger, the events of the term, and the time.

use crate::{
    env::WallTime,
    node::FencingToken,
    scheduler::{
        job::{Job, RunCause},
        plan::active_run::{ActiveRun, SkippedTick},
        policy::{DUE_MAX, DueTicks, Jitter, Misfire, Overlap, Placement, due_with},
        run::pending_run::PendingRun,
        store::{
            RunKey, RunRecord,
            record_life::{LATE_AFTER, record_from},
            snapshot::LedgerSnapshot,
            verdict::{Decision, SkipReason},
        },
    },
};
use std::{cmp::Reverse, collections::VecDeque, mem, sync::Arc, time::Duration};

mod pause;
mod start;

/// The number of interruptions in one term after which a run still starts again at once. After each further
/// interruption, the run waits for a pause first.
const INTERRUPTED_MAX: u32 = 3;
/// The first and the longest pause of a run that was interrupted too often. Each further interruption doubles
/// the pause.
const POSTPONE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));
/// The largest number of ticks that `JobPlan::open_ahead` plans in one call.
const AHEAD_RUNS: usize = 1_000;

/// The ticks of one job that run or wait to be run.
#[derive(Debug)]
pub(in crate::scheduler) struct JobPlan {
    job: Arc<Job>,
    jitter: Jitter,
    /// All ticks up to this time have been planned.
    planned: WallTime,
    /// The time before which no tick is due. It is the `since` of the job's row at the moment when the leader
    /// took the job over, or last changed the job.
    since: WallTime,
    waiting: VecDeque<PendingRun>,
    /// The requested runs that wait to be started. Only one of them is active at a time. If ticks wait too,
    /// requested runs and ticks start alternately.
    requested: VecDeque<PendingRun>,
    /// The runs that were interrupted too often and wait for the end of a pause, each with the time of that
    /// end.
    postponed: Vec<(WallTime, PendingRun)>,
    /// This leader leaves some runs to the next leader, which decides on them. The records of these runs stay
    /// *started*, and the ledger must not prune them. This is the earliest time of these records.
    left_to_next: Option<WallTime>,
    /// True if the last started run was the run of a tick. The next run is then a requested run, if one waits.
    requested_next: bool,
    active: Vec<ActiveRun>,
    /// The time at which the run of the next tick is due: the tick plus its jitter.
    next: Option<WallTime>,
    /// The next tick, if the schedule counts from the ends of runs. `None` until the previous run has ended.
    after_end: Option<WallTime>,
    paused: bool,
    /// The leader opens a run to workers this long before the run's tick.
    ahead: Duration,
}

/// The decisions on the ticks of one job that are now due.
#[derive(Debug, Default, PartialEq)]
pub(in crate::scheduler) struct DueDecisions {
    pub(in crate::scheduler) skipped: Vec<SkippedTick>,
    /// The tick because of which the active runs must be cancelled. `None` unless the overlap rule says so.
    pub(in crate::scheduler) cancel_for: Option<WallTime>,
}

impl JobPlan {
    /// Creates the plan of a job, in which the ticks after `from` are not planned yet. `unfinished` are runs of
    /// earlier terms that must still be executed.
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

    /// Sets the time `since`, before which no tick is due, and the time `ended` at which the last run ended.
    /// Some schedules count from `ended`.
    pub(in crate::scheduler) fn due_since(mut self, since: WallTime, ended: Option<WallTime>) -> Self {
        self.since = since;
        self.begin_after_end(since, ended);
        self
    }

    /// Sets how long before the run's tick the leader opens a run to workers.
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

    /// Returns the time up to which all ticks have been planned. If the schedule changes, no tick of the new
    /// schedule is due before this time.
    pub(in crate::scheduler) fn planned(&self) -> WallTime {
        self.planned
    }

    pub(in crate::scheduler) fn active(&self) -> &[ActiveRun] {
        &self.active
    }

    pub(in crate::scheduler) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Plans the next tick of a schedule that counts from the ends of runs. If `ended` is `None`, this is the
    /// first tick of the job. Otherwise the tick follows a run that ended at `ended`. While the run of a tick waits or
    /// is active, its end is not known yet, and this function plans nothing. Requested runs do not matter: this function
    /// is not called when they end.
    pub(in crate::scheduler) fn begin_after_end(&mut self, since: WallTime, ended: Option<WallTime>) {
        let schedule = &self.job.schedule;
        let is_open = self.active.iter().any(|run| run.request.is_none())
            || self.postponed.iter().any(|(_, run)| run.request().is_none());
        if schedule.is_after_end() && self.waiting.is_empty() && !is_open {
            self.after_end = ended.map_or_else(|| schedule.first(since), |end| schedule.next_after_end(end));
            self.next = self.next_due(self.after_end);
        }
    }

    /// Decides on the ticks that are due at `now` and not planned yet.
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

    fn next_due(&self, tick: Option<WallTime>) -> Option<WallTime> {
        tick.filter(|_| !self.paused).map(|tick| self.jitter.ripe(tick))
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
        let decided = sealed.decide(self.job.delivery, &key, (at, tick));
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
                let is_behind = behind && !catch_up && self.job.overlap == Overlap::Skip;
                if is_behind && !self.is_catching_up() {
                    decisions.skipped.push(SkippedTick::Overlapped(tick));
                    return;
                }
                if self.is_busy() && !catch_up && self.job.overlap == Overlap::CancelOld {
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
                };
                self.waiting.insert(place, run);
            }
        }
    }

    /// Returns whether the job is busy only because of catch-up runs. Under the overlap rule skip, a tick that comes
    /// due then is not skipped: otherwise a backlog would keep the job from its present ticks.
    fn is_catching_up(&self) -> bool {
        let waits = || self.waiting.iter().any(|run| run.cause == RunCause::CatchUp);
        self.active.iter().all(|run| run.catch_up) && (self.is_busy() || waits())
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
        let most = match (self.job.misfire, self.job.overlap) {
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

    fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// Puts a run that was interrupted in this term back at the head of the waiting runs. If the run was
    /// interrupted more than `INTERRUPTED_MAX` times, it must wait for a pause first, and this function returns
    /// the end of the pause.
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

    /// Leaves a run to the next leader. The run's record has the time `at` and stays *started*, so the ledger
    /// must keep it.
    pub(in crate::scheduler) fn leave_to_next(&mut self, at: WallTime) {
        self.left_to_next = Some(self.left_to_next.map_or(at, |left| left.min(at)));
    }

    /// Returns the next time at which [`JobPlan::plan_due`] has decisions to make.
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

    /// Returns the time up to which this leader has made decisions on all ticks. This time is `now`, unless a
    /// due tick is not planned yet. In that case it is just before the first such tick.
    pub(in crate::scheduler) fn decided(&self, now: WallTime) -> WallTime {
        let first = self.job.schedule.next_after(self.planned).filter(|tick| *tick <= now);
        // After a backward step of the clock, `planned` may be later than `now`. All ticks up to `planned` have
        // a decision.
        first.map_or(now.max(self.planned), |tick| tick - Duration::from_micros(1))
    }

    /// Replaces the job by a changed one. If the schedule or the placement has changed, only ticks after `now`
    /// run, and the waiting ticks are skipped. Unfinished runs are kept.
    pub(in crate::scheduler) fn replace(&mut self, job: Arc<Job>, now: WallTime) -> Vec<SkippedTick> {
        let moved = job.schedule != self.job.schedule || job.placement != self.job.placement;
        self.jitter = job.jitters();
        self.job = job;
        let mut skipped = Vec::new();
        if moved {
            // If the clock has stepped back, ticks after `now` may have run already. The plan continues after
            // the last planned tick, so that these ticks do not run again.
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

    /// Returns the earliest time of the records that this leader still needs. The ledger must not prune these
    /// records.
    pub(in crate::scheduler) fn oldest(&self) -> Option<WallTime> {
        let postponed = self.postponed.iter().map(|(_, run)| run);
        let waiting = self.waiting.iter().chain(&self.requested).chain(postponed).map(|run| run.at);
        waiting.chain(self.active.iter().map(|run| run.at)).chain(self.left_to_next).min()
    }

    /// Returns the first tick whose run waits and has no record yet. The next leader must look at this tick again.
    pub(in crate::scheduler) fn first_waiting(&self) -> Option<WallTime> {
        self.waiting.iter().filter(|run| run.seen.is_none()).map(|run| run.tick).min()
    }

    /// Adds a started run to the active runs.
    pub(in crate::scheduler) fn begin(&mut self, run: ActiveRun) {
        self.active.push(run);
    }

    /// Removes and returns the active run under `key`.
    pub(in crate::scheduler) fn end(&mut self, key: &str) -> Option<ActiveRun> {
        let at = self.active.iter().position(|run| *run.key == *key)?;
        Some(self.active.remove(at))
    }
}

/// Returns the sort key of the unfinished runs of a job. Open runs come first. Of these, the run whose record
/// has the highest term comes first.
///
/// If a leader finds two open runs of a job without overlap, a worker can have started only the run of the higher
/// term. The leader that opened this run had found no other open run of the job. So the record of the other run
/// never had a majority, and no worker has started that run.
fn open_first(run: &PendingRun) -> (bool, Reverse<Option<FencingToken>>) {
    let term = run.seen.as_ref().filter(|_| run.is_open()).map(RunRecord::term);
    (!run.is_open(), Reverse(term))
}

/// Returns whether a pause with the end `until` covers the tick. A pause without an end covers every tick.
pub(in crate::scheduler) fn is_before(tick: WallTime, until: Option<WallTime>) -> bool {
    until.is_none_or(|until| tick < until)
}

#[cfg(test)]
#[path = "job_plan_tests.rs"]
mod tests;
