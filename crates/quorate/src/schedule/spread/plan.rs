//! Which ticks of a spread job this worker is to try, and when: pure.

use crate::{
    env::WallTime,
    schedule::{Due, Job, Misfire, MisfireReason, Overlap, Skipped, TickEnd, due_with},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A tick that starts later than this after its time is a misfire.
pub(super) const LATE_AFTER: Duration = Duration::from_secs(1);
/// Before a tick that nobody got, because several asked at once, is tried again: so long, and up to as long again. (All ask
/// at the very moment. To have each worker ask a little later than the others was tried: it cost more than it saved, since
/// what is asked at once travels at once.)
const CONTENDED: Duration = Duration::from_millis(20);
/// Before a tick is tried again where too few nodes answered.
const NOT_NOW: Duration = Duration::from_millis(500);
/// How often a run that was interrupted is made again on one worker.
const INTERRUPTED_MAX: u32 = 3;
/// Records are kept for longer than any misfire window and timeout by this, and by twice `max_clock_offset`.
const KEPT_BESIDES: Duration = Duration::from_secs(60);
/// As long as a run without a timeout is taken to last, as far as keeping its record goes.
const KEPT_RUNNING: Duration = Duration::from_secs(3600);

/// One job's ticks, as this worker sees them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) job: Arc<Job>,
    /// Whether what comes due is looked at.
    awake: bool,
    /// Since when its ticks are the leader's.
    held: Option<WallTime>,
    /// Every tick up to here has been looked at.
    looked: WallTime,
    next: Option<WallTime>,
    waiting: BTreeMap<WallTime, Waiting>,
    /// The same ticks by when they are to be tried.
    queue: BTreeSet<(WallTime, WallTime)>,
    trying: BTreeSet<WallTime>,
}

/// A tick that has not ended, as far as this worker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    /// When to try it, or to look whether it has ended.
    at: WallTime,
    /// Missed, or begun by somebody before.
    made_up: bool,
    /// How often it was interrupted here.
    interrupted: u32,
}

/// A tick to be tried now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Try {
    pub(super) tick: WallTime,
    pub(super) made_up: bool,
    /// It is not run any more, but brought to this end, unless it turns out that somebody has run it.
    pub(super) too_late: Option<TickEnd>,
    interrupted: u32,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It has ended, here or elsewhere.
    Ended,
    /// Somebody else has it: to be looked at again then.
    Elsewhere(Duration),
    /// Several asked for it, and none has it.
    Contended,
    /// Too few nodes answered.
    NotNow,
    /// It was run here, and owes another run.
    Interrupted,
}

impl Plan {
    /// A job of which nothing is due before it [begins](Plan::begin). The ticks that are `trying` still run here, from
    /// before it became what it is.
    pub(super) fn new(job: Arc<Job>, trying: BTreeSet<WallTime>) -> Self {
        let looked = WallTime::default();
        Self {
            job,
            awake: false,
            held: None,
            looked,
            next: None,
            waiting: BTreeMap::new(),
            queue: BTreeSet::new(),
            trying,
        }
    }

    /// From now on the ticks after `from` are due, but those that have been looked at.
    pub(super) fn begin(&mut self, from: WallTime) {
        (self.awake, self.held) = (true, None);
        self.looked = self.looked.max(from);
        self.next = self.job.schedule.next_after(self.looked);
    }

    pub(super) fn is_awake(&self) -> bool {
        self.awake
    }

    /// The leader runs its ticks `since` then: none of those is begun here, whatever waits.
    pub(super) fn hold(&mut self, since: WallTime) {
        (self.awake, self.held, self.next) = (false, Some(since), None);
        // What comes due until it begins anew is not looked at.
        self.waiting.retain(|tick, _| *tick <= since);
        self.queue.retain(|(_, tick)| *tick <= since);
    }

    /// The job by another description: under another schedule it has to begin anew.
    pub(super) fn renew(&mut self, job: Arc<Job>) {
        if self.job.schedule == job.schedule {
            self.next = self.next.and_then(|_| job.schedule.next_after(self.looked));
            self.job = job;
        } else {
            *self = Self::new(job, std::mem::take(&mut self.trying));
        }
    }

    /// From when on ticks are looked at by a worker that has just come, of a job that is due since `since`.
    pub(super) fn from(job: &Job, since: WallTime, now: WallTime) -> WallTime {
        since.max(now - window(job) - job.jitters().max())
    }

    /// Takes in the ticks that have come due, but for those that are known to have `ended`, and gives the spans that
    /// the misfire rule leaves out.
    pub(super) fn look(&mut self, now: WallTime, ended: &BTreeSet<WallTime>) -> Vec<Skipped> {
        if !self.awake {
            return Vec::new();
        }
        let jitter = self.job.jitters();
        let Due { run, skipped, next } =
            due_with(&self.job.schedule, self.job.misfire, jitter, self.looked, now, LATE_AFTER);
        self.looked = self.looked.max(jitter.upto(&self.job.schedule, now));
        self.next = next;
        // One may run here since before the job began anew.
        for tick in run.into_iter().filter(|tick| !ended.contains(tick)) {
            if self.trying.contains(&tick) {
                continue;
            }
            let ripe = jitter.ripe(tick);
            let made_up = ripe + LATE_AFTER < now;
            self.wait(tick, Waiting { at: ripe.min(now), made_up, interrupted: 0 });
        }
        skipped
    }

    /// Takes in a tick that stands as started: whoever has it may have ended without a word.
    pub(super) fn owe(&mut self, tick: WallTime, now: WallTime) {
        if !self.trying.contains(&tick) && !self.waiting.contains_key(&tick) {
            self.wait(tick, Waiting { at: tick.min(now), made_up: true, interrupted: 0 });
        }
    }

    fn wait(&mut self, tick: WallTime, waiting: Waiting) {
        self.queue.insert((waiting.at, tick));
        if let Some(before) = self.waiting.insert(tick, waiting)
            && before.at != waiting.at
        {
            self.queue.remove(&(before.at, tick));
        }
    }

    /// Takes in what has come due of a job that is paused: none of it runs. Gives the span.
    pub(super) fn look_paused(&mut self, now: WallTime) -> Option<(WallTime, WallTime)> {
        if !self.awake {
            return None;
        }
        let upto = self.job.jitters().upto(&self.job.schedule, now).max(self.looked);
        let first = self.job.schedule.next_after(self.looked).filter(|first| *first <= upto)?;
        let last = self.job.schedule.last_within(self.looked, upto).unwrap_or(first);
        self.looked = upto;
        self.next = self.job.schedule.next_after(upto);
        Some((first, last))
    }

    /// The tick to try now. While a tick of this job is tried or runs here no other is begun here, unless the overlap rule
    /// allows it; other workers may take it.
    pub(super) fn take(&mut self, now: WallTime) -> Option<Try> {
        if self.is_busy() {
            return None;
        }
        let (at, tick) = self.queue.first().copied().filter(|(at, _)| *at <= now)?;
        self.queue.remove(&(at, tick));
        let Waiting { made_up, interrupted, .. } = self.waiting.remove(&tick)?;
        self.trying.insert(tick);
        let too_late = self.too_late(tick, made_up, now);
        Some(Try { tick, made_up, too_late, interrupted })
    }

    /// Why a tick is not run any more. One that has waited here behind a run is overtaken by a later one, unless each is
    /// to be made up.
    fn too_late(&self, tick: WallTime, made_up: bool, now: WallTime) -> Option<TickEnd> {
        let ripe = self.job.jitters().ripe(tick);
        if ripe + window(&self.job) < now {
            return Some(TickEnd::SkippedMisfire);
        }
        let waited =
            !made_up && ripe + LATE_AFTER < now && !matches!(self.job.misfire, Misfire::RunAll { .. });
        let later = || self.waiting.range(tick..).any(|(_, other)| !other.made_up && other.at <= now);
        (waited && later()).then_some(TickEnd::SkippedOverlap)
    }

    fn is_busy(&self) -> bool {
        !self.trying.is_empty() && self.job.overlap != Overlap::Allow
    }

    /// What came of a try; `random` draws when it is tried again.
    pub(super) fn came(&mut self, tried: Try, came: Came, now: WallTime, random: u64) {
        let Try { tick, made_up, interrupted, .. } = tried;
        self.trying.remove(&tick);
        if self.held.is_some_and(|since| since < tick) {
            return;
        }
        let (pause, made_up, interrupted) = match came {
            Came::Ended => return,
            // Whoever has it may end without a word: then it is ours to make up, or to give up.
            Came::Elsewhere(pause) => (pause.max(CONTENDED), true, interrupted),
            Came::Contended => (CONTENDED + part_of(CONTENDED, random), made_up, interrupted),
            Came::NotNow => (NOT_NOW + part_of(NOT_NOW, random), made_up, interrupted),
            // Enough of it here: others will find it free.
            Came::Interrupted if interrupted >= INTERRUPTED_MAX => return,
            Came::Interrupted => (CONTENDED, true, interrupted + 1),
        };
        self.wait(tick, Waiting { at: now + pause, made_up, interrupted });
    }

    /// When there is something to do, if nothing happens before.
    pub(super) fn wake(&self) -> Option<WallTime> {
        let next = self.next.map(|next| self.job.jitters().ripe(next));
        let waiting = self.queue.first().map(|(at, _)| *at).filter(|_| !self.is_busy());
        next.into_iter().chain(waiting).min()
    }

    /// The earliest tick that has not ended: the ledger must remember it.
    pub(super) fn oldest(&self) -> Option<WallTime> {
        self.waiting.keys().next().into_iter().chain(self.trying.first()).min().copied()
    }
}

/// How long after its time a tick may still be run.
pub(super) fn window(job: &Job) -> Duration {
    job.misfire.within().max(LATE_AFTER)
}

/// For how long records of a job's ticks are of use.
pub(super) fn kept(job: &Job, max_clock_offset: Duration) -> Duration {
    let (most, pauses) = (job.retries.attempts().max(1), job.retries.max_backoff());
    let runs = job.timeout.map_or(KEPT_RUNNING, |timeout| (timeout + pauses).saturating_mul(most));
    window(job) + job.jitters().max() + runs + max_clock_offset * 2 + KEPT_BESIDES
}

/// Before which time records are of no more use to any job: other workers' need them for `others`.
pub(super) fn low_water<'a>(
    plans: impl Iterator<Item = &'a Plan> + Clone,
    now: WallTime,
    others: Duration,
    max_clock_offset: Duration,
) -> u64 {
    let own = plans.clone().map(|plan| kept(&plan.job, max_clock_offset)).max().unwrap_or(KEPT_RUNNING);
    let oldest = plans.filter_map(Plan::oldest).min().unwrap_or(now);
    (now - own.max(others)).min(oldest).as_micros()
}

/// The ticks that came due while no worker was there, of a job whose ticks after `from` are yet to be looked at: those after
/// the last that stands and after `known`, since when the ledger has a record of each that was run.
pub(super) fn dark(
    job: &Job,
    stands: &BTreeMap<WallTime, bool>,
    known: WallTime,
    from: WallTime,
) -> Option<(WallTime, WallTime)> {
    let after = stands.keys().next_back().map_or(known, |last| known.max(*last));
    let first = job.schedule.next_after(after).filter(|first| *first <= from)?;
    Some((first, job.schedule.last_within(after, from).unwrap_or(first)))
}

/// The spans of `skipped` of which the ledger has no record: nobody ran those. `stands` are the ticks of which it has.
pub(super) fn unrun(
    job: &Job,
    skipped: &[Skipped],
    stands: &BTreeSet<WallTime>,
) -> Vec<(WallTime, WallTime, MisfireReason)> {
    let mut spans: Vec<(WallTime, WallTime, MisfireReason)> = Vec::new();
    for span in skipped {
        let mut from = span.first;
        // Between two that stand there may be millions that do not.
        for stood in stands.range(span.first..=span.last) {
            let before = *stood - Duration::from_micros(1);
            if from <= before
                && let Some(last) = job.schedule.last_within(from - Duration::from_micros(1), before)
            {
                spans.push((from, last, span.why));
            }
            match job.schedule.next_after(*stood) {
                Some(next) => from = next,
                None => break,
            }
        }
        if from <= span.last {
            spans.push((from, span.last, span.why));
        }
    }
    spans
}

fn part_of(most: Duration, random: u64) -> Duration {
    let nanos = (u128::from(random) * most.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
