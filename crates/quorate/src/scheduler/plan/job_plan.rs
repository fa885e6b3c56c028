//! What the leader has to do for one job, as a pure function of the sealed ledger and the wall clock.

use crate::scheduler::{
    run::cancel::Withdraw,
    store::{run_writer::RunId, snapshot::LedgerSnapshot},
};
use crate::{
    env::WallTime,
    node::Record,
    scheduler::{
        DUE_MAX, Decision, Delivery, DueTicks, Job, Misfire, MisfiredTicks, Overlap, Placement, RequestId,
        RunCause, RunKey, RunOutcome, RunRecord, SkipReason, inherited, policy::Jitter, policy::due_with,
        run::Cancel,
    },
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// A tick that starts later than this after its time is a misfire, and is made up by the rule.
pub(in crate::scheduler) const LATE_AFTER: Duration = Duration::from_secs(1);
/// Records are kept for longer than any misfire window by this, and by twice `max_clock_offset`: two leaders' clocks
/// may be so far apart, and what one decides on at the end of the window starts a little later.
const KEPT_BESIDES: Duration = Duration::from_secs(10);
/// How often a tick that was interrupted is run again at once.
const INTERRUPTED_MAX: u32 = 3;
/// What it waits after that within one term: twice as long each time, from the first to the second.
const PUT_OFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));
/// How far behind what is kept anyway a record that has not ended has the ledger go on remembering: so long, or for as
/// long as its job's timeouts allow a run to take.
const HELD_MAX: Duration = Duration::from_secs(24 * 3600);
/// And at most as many ticks: a new leader has to read them all, and could not seal a ledger without bounds.
const HELD_RECORDS: u128 = 1_000_000;

/// The longest time by which any version opens a run ahead of its tick.
pub(in crate::scheduler) const AHEAD_MAX: Duration = Duration::from_secs(30);
/// The most ticks of one job that are opened ahead at once.
const AHEAD_RUNS: usize = 1_000;

/// A run to make, and the record that stands for it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct PendingRun {
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) cause: RunCause,
    /// Under which key it stands in the ledger.
    pub(in crate::scheduler) key: Arc<str>,
    /// The earliest time at which a record of it may exist.
    pub(in crate::scheduler) at: WallTime,
    /// A majority of the sealed nodes remembers that time.
    pub(in crate::scheduler) remembering: bool,
    /// No worker starts it before this time.
    pub(in crate::scheduler) not_before: WallTime,
    pub(in crate::scheduler) seen: Option<Record>,
    /// Too few nodes can remember a record of this time: its start cannot reach a majority that counts.
    pub(in crate::scheduler) unknown: bool,
    /// How often it was interrupted in this term.
    pub(in crate::scheduler) times: u32,
}

impl PendingRun {
    /// Whether it was started before, or may have been: it is owed a run of its own.
    fn is_owed(&self) -> bool {
        self.seen.is_some() || self.unknown
    }

    pub(in crate::scheduler) fn request(&self) -> Option<RequestId> {
        self.cause.request()
    }

    pub(in crate::scheduler) fn run(&self) -> RunId {
        RunId { key: Arc::clone(&self.key), at: self.at, remembering: self.remembering }
    }

    /// Whether a worker executes it: it is open, or is to be opened.
    pub(in crate::scheduler) fn is_for_workers(&self, job: &Job) -> bool {
        let open = || {
            let seen = self.seen.as_ref();
            seen.is_some_and(|seen| matches!(RunRecord::parse(&seen.value), Ok(RunRecord::Open(_))))
        };
        job.placement == Placement::AnyWorker || open()
    }
}

/// A run whose record a new leader closes without another execution.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) struct ToClose {
    pub(in crate::scheduler) start: PendingRun,
    pub(in crate::scheduler) end: RunOutcome,
    /// The reason, where an earlier leader gave one.
    pub(in crate::scheduler) why: Option<Arc<str>>,
}

/// A run that goes on.
#[derive(Debug)]
pub(in crate::scheduler) struct ActiveRun {
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) tick: WallTime,
    pub(in crate::scheduler) at: WallTime,
    pub(in crate::scheduler) request: Option<RequestId>,
    pub(in crate::scheduler) cancel: Cancel,
    /// Ends it before a worker takes it, where it is open to workers.
    pub(in crate::scheduler) withdraw: Option<Withdraw>,
}

/// The ticks of one job that run or wait to be run.
#[derive(Debug)]
pub(in crate::scheduler) struct JobPlan {
    pub(in crate::scheduler) job: Arc<Job>,
    jitter: Jitter,
    /// Every tick up to here has been decided on.
    looked: WallTime,
    /// No tick before this is due: as in its row, but for what a pause left out.
    pub(in crate::scheduler) since: WallTime,
    waiting: VecDeque<PendingRun>,
    /// Runs that somebody asked for: one after another, in turns with what waits.
    asked: VecDeque<PendingRun>,
    /// What was interrupted again and again, and when it has another run.
    put_off: Vec<(WallTime, PendingRun)>,
    /// The earliest time of a record that stands as started, and is left to the next leader.
    left: Option<WallTime>,
    /// A tick that waited has started since the last run that somebody asked for: they take turns.
    asked_next: bool,
    pub(in crate::scheduler) running: Vec<ActiveRun>,
    /// When the run of the next tick is due.
    pub(in crate::scheduler) next: Option<WallTime>,
    /// Where ticks hang on ends, the next one, once the run before it has ended.
    link: Option<WallTime>,
    pub(in crate::scheduler) paused: bool,
    /// How long before its time a run is opened to workers.
    pub(in crate::scheduler) ahead: Duration,
}

/// Ticks that will not run, and why.
#[derive(Debug, PartialEq)]
pub(in crate::scheduler) enum SkippedTick {
    Missed(MisfiredTicks),
    /// Due while an earlier run of the job went on; the later tick stands for it, or there were too many.
    Overtaken(WallTime),
    /// Due while an earlier run of the job went on, and the rule is to skip it then.
    Overlapped(WallTime),
    /// It waited for longer than the misfire window.
    TooLate(WallTime),
    Decided(WallTime, SkipReason),
    /// The job was paused while it waited.
    Paused(PendingRun),
    /// The job's schedule or placement was changed while it waited.
    Changed(WallTime),
}

/// What a look at a job has come to.
#[derive(Debug, Default, PartialEq)]
pub(in crate::scheduler) struct Looked {
    pub(in crate::scheduler) not_run: Vec<SkippedTick>,
    /// What runs is to be told to stop, for this tick.
    pub(in crate::scheduler) stop_for: Option<WallTime>,
}

impl JobPlan {
    /// A job whose ticks after `from` are due, and which owes runs to what stands as started and not ended.
    pub(in crate::scheduler) fn new(
        job: Arc<Job>,
        from: WallTime,
        owed: Vec<PendingRun>,
        paused: bool,
    ) -> Self {
        let jitter = job.jitters();
        let mut plan = Self {
            job,
            jitter,
            looked: from,
            since: WallTime::default(),
            waiting: owed.into(),
            asked: VecDeque::new(),
            put_off: Vec::new(),
            left: None,
            asked_next: false,
            running: Vec::new(),
            next: None,
            link: None,
            paused,
            ahead: Duration::ZERO,
        };
        if !plan.job.schedule.is_after_end() {
            plan.next = plan.next_due(plan.job.schedule.next_after(from));
        }
        plan
    }

    /// Where ticks hang on ends: the first one, or what follows an end at `ended`; unless one is owed a run.
    pub(in crate::scheduler) fn begin_chain(&mut self, since: WallTime, ended: Option<WallTime>) {
        let schedule = &self.job.schedule;
        if schedule.is_after_end() && self.waiting.is_empty() && self.running.is_empty() {
            self.link = ended.map_or_else(|| schedule.first(since), |end| schedule.next_after_end(end));
            self.next = self.next_due(self.link);
        }
    }

    /// A look at a tick that hangs on the end of the run before it: it is never too late.
    fn look_at_link(&mut self, sealed: &LedgerSnapshot, now: WallTime) -> Looked {
        let mut looked = Looked::default();
        if let Some(tick) = self.link.filter(|tick| self.jitter.ripe(*tick) <= now) {
            (self.link, self.next) = (None, None);
            self.looked = self.looked.max(tick);
            self.decide(sealed, tick, now, false, &mut looked);
        }
        looked
    }

    fn next_due(&self, tick: Option<WallTime>) -> Option<WallTime> {
        tick.filter(|_| !self.paused).map(|tick| self.jitter.ripe(tick))
    }

    /// Decides on the ticks that have come due.
    pub(in crate::scheduler) fn look(&mut self, sealed: &LedgerSnapshot, now: WallTime) -> Looked {
        self.take_up(now);
        if self.paused {
            return Looked::default();
        }
        if self.job.schedule.is_after_end() {
            return self.look_at_link(sealed, now);
        }
        let (schedule, misfire) = (&self.job.schedule, self.job.misfire);
        let DueTicks { run, skipped, next } =
            due_with(schedule, misfire, self.jitter, self.looked, now, LATE_AFTER);
        self.looked = self.looked.max(self.jitter.upto(schedule, now));
        self.next = self.next_due(next);
        let behind = self.is_busy() || !self.waiting.is_empty();
        // No plan looked at them in time, but an earlier leader may have.
        let missed = skipped
            .into_iter()
            .flat_map(|span| span.without(schedule, sealed.stand(&self.job.name, span.first, span.last)));
        let mut looked = Looked { not_run: missed.map(SkippedTick::Missed).collect(), stop_for: None };
        for tick in run {
            self.decide(sealed, tick, now, behind, &mut looked);
        }
        if behind {
            self.overtake(&mut looked.not_run);
        }
        self.open_ahead(sealed, now, &mut looked);
        looked
    }

    /// Decides on ticks that are yet to come, so that an election delays none of them for the workers.
    fn open_ahead(&mut self, sealed: &LedgerSnapshot, now: WallTime, looked: &mut Looked) {
        let upto = now + self.ahead;
        for _ in 0..AHEAD_RUNS {
            let Some(tick) = self.next_ahead().filter(|tick| self.jitter.ripe(*tick) <= upto) else { break };
            self.looked = tick;
            self.decide(sealed, tick, now, false, looked);
            self.next = self.next_due(self.job.schedule.next_after(tick));
        }
    }

    /// The next tick, where the overlap rule permits that it is opened before its time.
    fn next_ahead(&self) -> Option<WallTime> {
        let idle =
            || !self.is_busy() && self.waiting.is_empty() && self.asked.is_empty() && self.put_off.is_empty();
        let may = !self.ahead.is_zero()
            && self.job.placement == Placement::AnyWorker
            && !self.job.schedule.is_after_end()
            && (self.job.overlap == Overlap::Allow || idle());
        self.next.filter(|_| may).and_then(|_| self.job.schedule.next_after(self.looked))
    }

    /// The earliest time at which a record of a tick may exist.
    fn record_from(&self, tick: WallTime) -> WallTime {
        record_from(&self.job, tick, self.since)
    }

    fn decide(
        &mut self,
        sealed: &LedgerSnapshot,
        tick: WallTime,
        now: WallTime,
        behind: bool,
        looked: &mut Looked,
    ) {
        let key = RunKey::new(&self.job.name, tick).key();
        let at = self.record_from(tick);
        let decided = sealed.decide(self.job.delivery, &key, at);
        match decided.decision {
            // What has a record that is not closed has been dealt with when the term began.
            _ if decided.seen.is_some() => {}
            Decision::Skip(why) => looked.not_run.push(SkippedTick::Decided(tick, why)),
            Decision::Run | Decision::AskAgain => {
                let made_up = decided.unknown || self.jitter.ripe(tick) + LATE_AFTER < now;
                if behind && !made_up && self.job.overlap == Overlap::Skip {
                    looked.not_run.push(SkippedTick::Overlapped(tick));
                    return;
                }
                if self.is_busy() && !made_up && self.job.overlap == Overlap::CancelOld {
                    looked.stop_for = Some(tick);
                }
                let cause = if made_up { RunCause::CatchUp } else { RunCause::Scheduled };
                let (unknown, remembering) = (decided.unknown, decided.remembering);
                let not_before = self.jitter.ripe(tick);
                let start = PendingRun {
                    tick,
                    cause,
                    key,
                    at,
                    remembering,
                    not_before,
                    seen: None,
                    unknown,
                    times: 0,
                };
                self.waiting.push_back(start);
            }
        }
    }

    /// Of the ticks that wait behind a run, all stay under run-all (up to a limit), else the latest. What has
    /// been started before, or may have been, stays: it is owed a run of its own.
    fn overtake(&mut self, not_run: &mut Vec<SkippedTick>) {
        let most = match (self.job.misfire, self.job.overlap) {
            (Misfire::RunAll { .. }, Overlap::Queue | Overlap::Skip | Overlap::Allow) => DUE_MAX,
            _ => 1,
        };
        let mut excess = self.waiting.iter().filter(|start| !start.is_owed()).count().saturating_sub(most);
        self.waiting.retain(|start| {
            let goes = excess > 0 && !start.is_owed();
            if goes {
                excess -= 1;
                not_run.push(SkippedTick::Overtaken(start.tick));
            }
            !goes
        });
    }

    /// Whether a run goes on that another of the job may not run beside.
    fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// A run was interrupted though the term goes on: it has another, before all others; after some, not at once.
    /// Gives when, where it is put off.
    pub(in crate::scheduler) fn again(&mut self, start: PendingRun, now: WallTime) -> Option<WallTime> {
        let more = start.times.saturating_sub(INTERRUPTED_MAX);
        if more == 0 {
            self.push_front(start);
            return None;
        }
        let (first, most) = PUT_OFF;
        let at = now + first.saturating_mul(1 << (more - 1).min(16)).min(most);
        self.put_off.push((at, start));
        Some(at)
    }

    fn push_front(&mut self, start: PendingRun) {
        match start.request() {
            None => self.waiting.push_front(start),
            Some(_) => self.asked.push_front(start),
        }
    }

    /// What was put off until now waits again.
    fn take_up(&mut self, now: WallTime) {
        let (due, later) = std::mem::take(&mut self.put_off).into_iter().partition(|(at, _)| *at <= now);
        self.put_off = later;
        let due: Vec<(WallTime, PendingRun)> = due;
        due.into_iter().for_each(|(_, start)| self.push_front(start));
    }

    /// A run has come to nothing, and its record stands as started: the next leader's to deal with.
    pub(in crate::scheduler) fn leave(&mut self, at: WallTime) {
        self.left = Some(self.left.map_or(at, |left| left.min(at)));
    }

    /// When to look at the job again.
    pub(in crate::scheduler) fn wake(&self) -> Option<WallTime> {
        let ahead = if self.next_ahead().is_some() { self.ahead } else { Duration::ZERO };
        let next = self.next.map(|next| next - ahead);
        next.into_iter().chain(self.put_off.iter().map(|(at, _)| *at)).min()
    }

    /// Runs that somebody asked for.
    pub(in crate::scheduler) fn ask(&mut self, start: PendingRun) {
        self.asked.push_back(start);
    }

    /// Forgets what waits of a request, or of all; gives the requests.
    pub(in crate::scheduler) fn unask(&mut self) -> Vec<PendingRun> {
        self.put_off.retain(|(_, start)| start.request().is_none());
        std::mem::take(&mut self.asked).into()
    }

    /// Up to when all ticks have been decided on: `now`, or just before the first that has come and was not looked at.
    pub(in crate::scheduler) fn decided(&self, now: WallTime) -> WallTime {
        let first = self.job.schedule.next_after(self.looked).filter(|tick| *tick <= now);
        // Where the clock has stepped back, what was looked at stays decided on.
        first.map_or(now.max(self.looked), |tick| tick - Duration::from_micros(1))
    }

    /// From now on no tick is due. What waits is given up, also what was interrupted.
    pub(in crate::scheduler) fn pause(&mut self) -> Vec<SkippedTick> {
        self.paused = true;
        self.next = None;
        let (asked, put_off) =
            std::mem::take(&mut self.put_off).into_iter().partition(|(_, start)| start.request().is_some());
        self.put_off = asked;
        let put_off: Vec<(WallTime, PendingRun)> = put_off;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        waiting.chain(put_off.into_iter().map(|(_, start)| start)).map(SkippedTick::Paused).collect()
    }

    /// Ends the runs that are open, unless a worker has taken them.
    pub(in crate::scheduler) fn withdraw(&self, end: RunOutcome, why: &str) {
        self.running
            .iter()
            .filter_map(|going| going.withdraw.as_ref())
            .for_each(|run| run.withdraw(end, why));
    }

    /// Ticks after `now` are due again; gives the span of those that were not, since `paused`. (A leader that has
    /// taken the pause over has looked at none of them, though it counts from later than that.)
    pub(in crate::scheduler) fn resume(
        &mut self,
        paused: WallTime,
        now: WallTime,
    ) -> Option<(WallTime, WallTime)> {
        self.paused = false;
        let schedule = &self.job.schedule;
        if schedule.is_after_end() {
            match self.link {
                Some(_) => self.next = self.next_due(self.link),
                None => self.begin_chain(now, Some(now)),
            }
            return None;
        }
        let after = paused.max(self.since);
        let first = schedule.next_after(after).filter(|tick| *tick <= now);
        let span = first.and_then(|first| Some((first, schedule.last_within(after, now)?)));
        self.looked = self.looked.max(now);
        self.next = self.next_due(self.job.schedule.next_after(self.looked));
        span
    }

    /// Every tick up to here has been decided on; ticks that count anew count from no earlier than this.
    pub(in crate::scheduler) fn looked(&self) -> WallTime {
        self.looked
    }

    /// The job as it is from now on. Where it is due at other times, or at another place, ticks count from `now`,
    /// and what waits of the old ones is given up, but for what is owed.
    pub(in crate::scheduler) fn replace(&mut self, job: Arc<Job>, now: WallTime) -> Vec<SkippedTick> {
        let moved = job.schedule != self.job.schedule || job.placement != self.job.placement;
        self.jitter = job.jitters();
        self.job = job;
        let mut not_run = Vec::new();
        if moved {
            // Not before what has been looked at, though the clock has stepped back: it would be started again.
            self.looked = self.looked.max(now);
            self.since = self.looked;
            let (owed, given_up) =
                std::mem::take(&mut self.waiting).into_iter().partition(PendingRun::is_owed);
            self.waiting = owed;
            let given_up: VecDeque<PendingRun> = given_up;
            not_run.extend(given_up.into_iter().map(|start| SkippedTick::Changed(start.tick)));
            (self.link, self.next) = (None, None);
        }
        if self.job.schedule.is_after_end() {
            match self.link {
                Some(_) => self.next = self.next_due(self.link),
                None if moved => self.begin_chain(self.looked, None),
                None => {}
            }
            return not_run;
        }
        self.next = self.next_due(self.job.schedule.next_after(self.looked));
        not_run
    }

    /// The earliest time of a record that this leader still needs: the ledger must remember it.
    pub(in crate::scheduler) fn oldest(&self) -> Option<WallTime> {
        let put_off = self.put_off.iter().map(|(_, start)| start);
        let waiting = self.waiting.iter().chain(&self.asked).chain(put_off).map(|start| start.at);
        waiting.chain(self.running.iter().map(|going| going.at)).chain(self.left).min()
    }

    /// The tick that may start now, if any may.
    pub(in crate::scheduler) fn head(&self) -> Option<&PendingRun> {
        let beside = self.job.overlap == Overlap::Allow;
        let waiting = self.waiting.front().filter(|_| beside || !self.is_busy());
        let alone = !self.running.iter().any(|going| going.request.is_some());
        let asked = || self.asked.front().filter(|_| alone && (beside || !self.is_busy()));
        if self.asked_next { asked().or(waiting) } else { waiting.or_else(asked) }
    }

    /// What [`JobPlan::head`] names; where runs outlast the gap between ticks something always waits.
    fn pop(&mut self) -> Option<PendingRun> {
        let alone = !self.running.iter().any(|going| going.request.is_some());
        if self.waiting.is_empty() || self.asked_next && alone && !self.asked.is_empty() {
            self.asked_next = false;
            return self.asked.pop_front();
        }
        self.asked_next = true;
        self.waiting.pop_front()
    }

    /// The run to start now. A tick that has waited past the misfire window is misfired.
    pub(in crate::scheduler) fn start(&mut self, now: WallTime) -> (Option<PendingRun>, Vec<SkippedTick>) {
        let mut too_late = Vec::new();
        while self.head().is_some() {
            let Some(start) = self.pop() else { break };
            let window = self.job.misfire.within().max(LATE_AFTER);
            // What is being made up was within the window when it was decided on.
            let chained = self.job.schedule.is_after_end();
            if !chained && start.cause == RunCause::Scheduled && self.jitter.ripe(start.tick) + window < now {
                too_late.push(SkippedTick::TooLate(start.tick));
                continue;
            }
            return (Some(start), too_late);
        }
        (None, too_late)
    }
}

/// The earliest time at which a record of a tick may exist, of a job whose ticks are due `since` then.
pub(in crate::scheduler) fn record_from(job: &Job, tick: WallTime, since: WallTime) -> WallTime {
    match job.placement {
        Placement::Leader => tick,
        Placement::AnyWorker => (tick - AHEAD_MAX).max(since).min(tick),
    }
}

/// What a new leader does with the ticks of a job that have a record and no settled end: runs to make or to go on with, and
/// records to close.
pub(in crate::scheduler) fn unfinished(
    job: &Job,
    sealed: &LedgerSnapshot,
) -> (Vec<PendingRun>, Vec<ToClose>) {
    let (mut runs, mut closes) = (Vec::new(), Vec::new());
    for (tick, record) in sealed.unfinished(&job.name) {
        let at = WallTime::from_micros(record.at);
        let mut start = PendingRun {
            tick,
            cause: RunCause::CatchUp,
            key: RunKey::new(&job.name, tick).key(),
            at,
            remembering: sealed.remembers(at),
            not_before: tick,
            seen: Some(record.clone()),
            unknown: false,
            times: 0,
        };
        match (RunRecord::parse(&record.value), job.delivery) {
            (Ok(RunRecord::Open(open)), _) => {
                (start.cause, start.not_before) = (open.cause, open.not_before);
                runs.push(start);
            }
            (Ok(RunRecord::Closed { end, outcome, .. }), _) => {
                let end = inherited(end, start.remembering);
                closes.push(ToClose { start, end, why: Some(outcome) });
            }
            (_, Delivery::AtLeastOnce) => runs.push(start),
            (_, Delivery::AtMostOnce) => closes.push(ToClose { start, end: RunOutcome::Lost, why: None }),
        }
    }
    (runs, closes)
}

/// After which time ticks are due for a leader that begins `now`: what is within the misfire window, and what came
/// before it since the last leader looked, so that it is told that nobody ran it.
pub(in crate::scheduler) fn from(
    job: &Job,
    sealed: &LedgerSnapshot,
    since: WallTime,
    looked: Option<WallTime>,
    now: WallTime,
) -> WallTime {
    // A tick within the allowance is on time under every rule.
    let window = now - job.misfire.within().max(LATE_AFTER) - job.jitter;
    let before = looked.filter(|looked| *looked < window);
    let ran = before.and_then(|_| sealed.last_before(&job.name, window));
    since.max(before.unwrap_or(window)).max(ran.unwrap_or_default())
}

/// How long after its time a tick of a job may still be made up, in whole milliseconds, as its row has it.
pub(in crate::scheduler) fn window(job: &Job) -> Duration {
    // A record of a run that is opened ahead is older than its tick.
    let ahead = if job.placement == Placement::AnyWorker { AHEAD_MAX } else { Duration::ZERO };
    let window = job.misfire.within().max(LATE_AFTER) + job.jitter + ahead;
    Duration::from_millis(u64::try_from(window.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// For how long records are of use where the longest window is this.
pub(in crate::scheduler) fn kept(longest: Duration, max_clock_offset: Duration) -> Duration {
    longest.max(LATE_AFTER) + max_clock_offset * 2 + KEPT_BESIDES
}

/// For how long records of a job are of use at most.
pub(in crate::scheduler) fn needed(job: &Job, max_clock_offset: Duration) -> Duration {
    kept(window(job), max_clock_offset).saturating_add(held(std::iter::once(job)))
}

/// How much longer records are kept for those among them that have not ended, and for what other workers want.
pub(in crate::scheduler) fn held<'a>(jobs: impl Iterator<Item = &'a Job> + Clone) -> Duration {
    let runs = jobs.clone().filter_map(|job| {
        let (most, pauses) = (job.retries.attempts().max(1), job.retries.max_backoff());
        let pauses = pauses.saturating_mul(most - 1);
        job.timeout.map(|timeout| timeout.saturating_mul(most).saturating_add(pauses))
    });
    let held = runs.max().unwrap_or_default().max(HELD_MAX);
    let ticks: u128 = jobs.map(|job| held.as_nanos() / job.gap.as_nanos().max(1)).sum();
    let parts = ticks / HELD_RECORDS + 1;
    held / u32::try_from(parts).unwrap_or(u32::MAX)
}

/// Before which time the ledger may forget: what is `kept` it remembers, and as far back as is `wanted`, but no longer
/// than `held` behind what is kept.
pub(in crate::scheduler) fn low_water(
    now: WallTime,
    kept: Duration,
    wanted: Option<WallTime>,
    held: Duration,
) -> WallTime {
    let mark = now - kept;
    wanted.map_or(mark, |wanted| mark.min(wanted)).max(mark - held)
}

/// How many ticks of a job the ledger has to keep, at the job's busiest.
pub(in crate::scheduler) fn ticks_kept(job: &Job) -> u128 {
    let kept = window(job) + KEPT_BESIDES + crate::scheduler::leader::PRUNE_EVERY;
    kept.as_nanos() / job.gap.as_nanos().max(1) + 1
}

#[cfg(test)]
#[path = "job_plan_tests.rs"]
mod tests;
