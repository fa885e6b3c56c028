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
mod tests {
    use super::*;
    use crate::schedule::{RunAll, RunOnce, every};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn job() -> Job {
        Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<_, String>(()) })
    }

    fn plan(job: Job, from: u64) -> Plan {
        let mut plan = Plan::new(Arc::new(job), none());
        plan.begin(at(from));
        plan
    }

    fn late(seconds: u64) -> WallTime {
        at(seconds) + Duration::from_millis(500)
    }

    fn none() -> BTreeSet<WallTime> {
        BTreeSet::new()
    }

    #[test]
    fn a_tick_is_tried_at_its_time_and_ends_when_it_has_ended() {
        let mut plan = plan(job(), 0);
        assert_eq!(plan.wake(), Some(at(1)));
        assert_eq!(plan.look(at(1), &none()), []);
        assert_eq!(plan.wake(), Some(at(1)));
        let tried = plan.take(at(1)).unwrap();
        assert_eq!((tried.tick, tried.made_up, tried.too_late), (at(1), false, None));
        assert_eq!(plan.oldest(), Some(at(1)));
        plan.came(tried, Came::Ended, late(1), 0);
        assert_eq!((plan.oldest(), plan.wake()), (None, Some(at(2))));
    }

    #[test]
    fn what_somebody_else_has_is_looked_at_again_and_made_up() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 60)), 0);
        plan.look(at(1), &none());
        let tried = plan.take(late(1)).unwrap();
        plan.came(tried, Came::Elsewhere(SECOND * 9), at(1), 0);
        assert_eq!(plan.take(at(9)), None);
        let again = plan.take(at(10)).unwrap();
        assert_eq!((again.tick, again.made_up, again.too_late), (at(1), true, None));
        plan.came(again, Came::Contended, at(10), u64::MAX);
        assert!(plan.take(at(10) + CONTENDED).is_none(), "drawn as late as can be");
        let again = plan.take(at(10) + CONTENDED * 2).unwrap();
        plan.came(again, Came::NotNow, at(11), 0);
        assert_eq!(plan.take(at(11) + NOT_NOW).map(|tried| tried.tick), Some(at(1)));
    }

    #[test]
    fn past_its_window_a_tick_is_brought_to_an_end() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 5)), 0);
        plan.look(at(1), &none());
        let tried = plan.take(late(1)).unwrap();
        plan.came(tried, Came::Elsewhere(SECOND * 20), at(1), 0);
        assert_eq!(plan.take(at(30)).and_then(|tried| tried.too_late), Some(TickEnd::SkippedMisfire));
    }

    #[test]
    fn one_of_a_job_at_a_time_unless_it_may_overlap() {
        for (overlap, many) in [(Overlap::Queue, 1), (Overlap::Allow, 3)] {
            let mut plan = plan(job().overlap(overlap).misfire(RunAll::within(SECOND * 60)), 0);
            plan.look(at(3), &none());
            let taken = std::iter::from_fn(|| plan.take(late(3))).count();
            assert_eq!(taken, many, "{overlap}");
        }
    }

    #[test]
    fn what_waits_here_behind_a_run_is_overtaken_unless_each_is_made_up() {
        for (misfire, end) in [
            (RunOnce::within(SECOND * 60), Some(TickEnd::SkippedOverlap)),
            (RunAll::within(SECOND * 60), None),
        ] {
            let mut plan = plan(job().misfire(misfire), 0);
            plan.look(at(1), &none());
            let running = plan.take(late(1)).unwrap();
            for second in 2..=4 {
                plan.look(at(second), &none());
            }
            plan.came(running, Came::Ended, late(4), 0);
            let next = plan.take(late(4)).unwrap();
            assert_eq!((next.tick, next.too_late), (at(2), end));
            plan.came(next, Came::Ended, late(4), 0);
            let next = plan.take(late(4)).unwrap();
            plan.came(next, Came::Ended, late(4), 0);
            assert_eq!(plan.take(late(4)).map(|tried| (tried.tick, tried.too_late)), Some((at(4), None)));
        }
    }

    #[test]
    fn an_interrupted_run_is_made_again_a_few_times() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)), 0);
        plan.look(at(1), &none());
        let mut runs = 0;
        while let Some(tried) = plan.take(at(1) + SECOND * (runs + 1)) {
            assert_eq!(tried.made_up, runs > 0);
            plan.came(tried, Came::Interrupted, at(1) + SECOND * (runs + 1), 0);
            runs += 1;
        }
        assert_eq!(runs, INTERRUPTED_MAX + 1);
    }

    #[test]
    fn a_worker_that_comes_late_leaves_out_what_has_ended_and_takes_what_is_owed() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 60)), 0);
        plan.look(at(4), &BTreeSet::from([at(1), at(3)]));
        plan.owe(at(0), at(4));
        let mut ticks = Vec::new();
        while let Some(tried) = plan.take(late(4)) {
            ticks.push((tried.tick, tried.made_up));
            plan.came(tried, Came::Ended, late(4), 0);
        }
        assert_eq!(ticks, [(at(0), true), (at(2), true), (at(4), false)]);
    }

    #[test]
    fn what_comes_due_in_a_pause_is_one_span() {
        let mut plan = plan(job(), 0);
        assert_eq!(plan.look_paused(late(3)), Some((at(1), at(3))));
        assert_eq!(plan.look_paused(late(3)), None);
        plan.look(at(4), &none());
        assert_eq!(plan.take(late(4)).map(|tried| tried.tick), Some(at(4)));
    }

    #[test]
    fn spans_are_told_without_what_others_ran() {
        let why = MisfireReason::Rule;
        let span = |first, last| Skipped { first: at(first), last: at(last), why };
        let unrun = |spans: &[Skipped], stands: &[u64]| {
            let stands = stands.iter().map(|second| at(*second)).collect();
            let spans = super::unrun(&job(), spans, &stands);
            spans.into_iter().map(|(first, last, _)| (first, last)).collect::<Vec<_>>()
        };
        assert_eq!(unrun(&[span(1, 9)], &[]), [(at(1), at(9))]);
        assert_eq!(unrun(&[span(1, 9)], &[1, 4, 5, 20]), [(at(2), at(3)), (at(6), at(9))]);
        assert_eq!(unrun(&[span(1, 3), span(5, 6)], &[1, 2, 3, 6]), [(at(5), at(5))]);
        assert_eq!(unrun(&[span(1, 3)], &[1, 2, 3]), []);
    }

    #[test]
    fn records_are_kept_for_the_longest_window_and_what_has_not_ended() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)).timeout(SECOND * 5), 0);
        let now = at(100_000);
        let low = |plan: &Plan, others| low_water(std::iter::once(plan), now, others, SECOND);
        let own = low(&plan, SECOND);
        assert!(own < (now - SECOND * 665).as_micros() && own > (now - SECOND * 1_000).as_micros());
        assert_eq!(low(&plan, SECOND * 9_000), (now - SECOND * 9_000).as_micros(), "another worker's job");
        plan.owe(at(3), now);
        assert_eq!(low(&plan, SECOND), at(3).as_micros());
    }

    #[test]
    fn nothing_is_begun_of_the_leaders_ticks_and_it_begins_anew_afterwards() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)).overlap(Overlap::Allow), 0);
        plan.look(at(4), &none());
        let tried = std::iter::from_fn(|| plan.take(late(4))).last().unwrap();
        plan.hold(at(2));
        plan.came(tried, Came::NotNow, at(4), 0);
        assert_eq!(plan.take(at(6)), None, "{tried:?}");
        for second in 1..=2 {
            plan.came(Try { tick: at(second), ..tried }, Came::Contended, at(0), 0);
        }
        assert_eq!(plan.look(at(6), &none()), []);
        assert_eq!((plan.look_paused(at(6)), plan.wake()), (None, Some(at(0) + CONTENDED)));
        let taken: Vec<_> = std::iter::from_fn(|| plan.take(at(6))).map(|tried| tried.tick).collect();
        assert_eq!(taken, [at(1), at(2)], "what came due before is nobody else's");
        plan.begin(at(8));
        plan.look(at(9), &none());
        assert_eq!(
            plan.take(late(9)).map(|tried| tried.tick),
            Some(at(9)),
            "those between were the leader's"
        );
        assert_eq!(plan.take(late(9)), None);
    }

    #[test]
    fn what_runs_here_keeps_a_changed_job_busy() {
        let mut plan = plan(job().misfire(RunAll::within(SECOND * 600)), 0);
        plan.look(at(2), &none());
        let running = plan.take(late(1)).unwrap();
        plan.renew(Arc::new(job().misfire(RunAll::within(SECOND * 600)).timeout(SECOND)));
        plan.owe(running.tick, late(2));
        plan.look(at(3), &none());
        assert_eq!((plan.take(late(3)), plan.oldest()), (None, Some(at(1))));
        plan.renew(Arc::new(Job::new("j", every(SECOND * 2).unwrap(), |_| async { Ok::<_, String>(()) })));
        assert!(!plan.is_awake(), "another schedule begins anew");
        assert_eq!(plan.look(at(9), &none()), []);
        plan.begin(at(0));
        plan.look(at(4), &none());
        assert_eq!((plan.take(late(4)), plan.wake().is_some()), (None, true), "it still runs");
        plan.came(running, Came::Ended, late(4), 0);
        assert_eq!(plan.take(late(4)).map(|tried| tried.tick), Some(at(2)));
    }

    #[test]
    fn what_nobody_was_there_for_is_one_span() {
        let stands = |seconds: &[u64]| seconds.iter().map(|second| (at(*second), true)).collect();
        let dark = |stands, known| dark(&job(), &stands, at(known), at(30));
        assert_eq!(dark(stands(&[3, 7]), 5), Some((at(8), at(30))));
        assert_eq!(dark(stands(&[3, 7]), 9), Some((at(10), at(30))), "what is older is forgotten");
        assert_eq!(dark(stands(&[3, 31]), 0), None, "others are at it");
        assert_eq!(dark(stands(&[]), 30), None);
    }
}
