use crate::env::WallTime;
use crate::scheduler::{Schedule, policy::Jitter};
use std::time::Duration;

/// The most ticks that one [`DueTicks`] holds.
pub const DUE_MAX: usize = 10_000;

/// The smallest step of a wall clock.
const MICRO: Duration = Duration::from_micros(1);

/// What becomes of *misfired* ticks: those that nobody looked at in time, because no leader was there, or it
/// was paused. A tick that is looked at in time runs under every rule.
///
/// The window says how long after its due time a misfired tick may still run.
///
/// ```
/// use quorate::scheduler::{Misfire, RunAll, RunOnce};
/// use std::time::Duration;
///
/// let rule = RunOnce::within(Duration::from_secs(3600));
/// assert_eq!(rule, Misfire::RunOnce { within: Duration::from_secs(3600) });
/// assert_eq!(RunAll::within(Duration::from_secs(60)).to_string(), "run-all within 60s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfire {
    /// None of them runs.
    Skip,
    /// Only the latest in the window runs, and stands for all.
    RunOnce {
        /// The window.
        within: Duration,
    },
    /// Each in the window runs.
    RunAll {
        /// The window.
        within: Duration,
    },
}

impl Misfire {
    /// What a job has unless told otherwise: one run for all that was missed within an hour, or within a
    /// thousand times the shortest gap between two ticks, so that the ledger keeps few of them.
    pub fn default_for(schedule: &Schedule) -> Self {
        Self::default_for_gap(schedule.busiest_gap())
    }

    pub(in crate::scheduler) fn default_for_gap(gap: Duration) -> Self {
        RunOnce::within(gap.saturating_mul(1000).min(Duration::from_secs(3600)))
    }

    /// How long after its due time a misfired tick may still run.
    pub const fn within(self) -> Duration {
        match self {
            Self::Skip => Duration::ZERO,
            Self::RunOnce { within } | Self::RunAll { within } => within,
        }
    }
}

impl std::fmt::Display for Misfire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skip => f.write_str("skip"),
            Self::RunOnce { within } => write!(f, "run-once within {within:?}"),
            Self::RunAll { within } => write!(f, "run-all within {within:?}"),
        }
    }
}

/// Makes [`Misfire::RunOnce`]: `RunOnce::within(hour)`.
#[derive(Debug)]
pub enum RunOnce {}

impl RunOnce {
    /// The latest tick missed within this time runs, and stands for all.
    pub const fn within(within: Duration) -> Misfire {
        Misfire::RunOnce { within }
    }
}

/// Makes [`Misfire::RunAll`]: `RunAll::within(minute)`.
#[derive(Debug)]
pub enum RunAll {}

impl RunAll {
    /// Each tick missed within this time runs.
    pub const fn within(within: Duration) -> Misfire {
        Misfire::RunAll { within }
    }
}

/// What is to do now, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DueTicks {
    /// The ticks to run, oldest first; at most [`DUE_MAX`].
    pub run: Vec<WallTime>,
    /// The spans of ticks that will not run, oldest first.
    pub skipped: Vec<MisfiredTicks>,
    /// The next tick, not yet due.
    pub next: Option<WallTime>,
}

/// A span of ticks that will not run. (Not a list: an outage may have cost millions.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MisfiredTicks {
    /// The first of them.
    pub first: WallTime,
    /// The last of them.
    pub last: WallTime,
    /// Why.
    pub why: MisfireReason,
}

impl MisfiredTicks {
    /// What is left of the span without the ticks that `stand` in the ledger, oldest first: somebody has run those.
    pub(in crate::scheduler) fn without(
        self,
        schedule: &Schedule,
        stand: impl Iterator<Item = WallTime>,
    ) -> Vec<Self> {
        let (mut left, mut after) = (Vec::new(), before(self.first));
        // Between two that stand there may be millions that do not; mostly there is none, which is soon seen.
        let mut take = |after, until| left.extend(span(schedule, after, until, self.why));
        for stood in stand.filter(|tick| (self.first..=self.last).contains(tick)) {
            take(after, before(stood));
            after = stood;
        }
        take(after, self.last);
        left
    }
}

/// Why ticks will not run. The text completes "ticks were skipped: …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MisfireReason {
    /// The rule is to skip.
    #[error("they were missed, and the misfire rule is `skip`")]
    Rule,
    /// They are older than the window.
    #[error("they were missed by more than the misfire window of {within:?}")]
    Window {
        /// The window.
        within: Duration,
    },
    /// A later tick stands for them.
    #[error("they were missed, and the run of {by:?} stands for all (`run-once`)")]
    Replaced {
        /// The tick that runs.
        by: WallTime,
    },
    /// There are more than one plan may hold.
    #[error("more than {DUE_MAX} were missed; the latest run")]
    TooMany,
}

/// Which ticks to run at `now`, and which have misfired for good.
///
/// `from` is exclusive: the newest tick that has been dealt with, or the point before which nothing counts
/// (the ledger's low-water mark, the moment in which the job was first seen). Nothing at or before it is
/// looked at, so a wall clock that steps back repeats nothing. A tick is on time while `now` is no more than
/// `late_after` past it.
///
/// The function knows no records: a tick that it gives may stand in the ledger already
/// ([`verdict`](super::verdict) tells). It is bounded: after a week's outage of an `every 10ms` it does not
/// look at sixty million ticks.
pub fn due(
    schedule: &Schedule,
    misfire: Misfire,
    from: WallTime,
    now: WallTime,
    late_after: Duration,
) -> DueTicks {
    due_with(schedule, misfire, Jitter::default(), from, now, late_after)
}

/// As [`due`], where the run of a tick is due some time after the tick, from which on it is late.
pub(in crate::scheduler) fn due_with(
    schedule: &Schedule,
    misfire: Misfire,
    jitter: Jitter,
    from: WallTime,
    now: WallTime,
    late_after: Duration,
) -> DueTicks {
    if schedule.is_after_end() {
        // One at a time, and none is ever too late: only its end brings the next one.
        let tick = schedule.next_after(from);
        let (run, next): (Vec<_>, Vec<_>) = tick.into_iter().partition(|tick| *tick <= now);
        return DueTicks { run, skipped: Vec::new(), next: next.first().copied() };
    }
    let upto = |at| jitter.upto(schedule, at);
    let (clock, now) = (now, upto(now));
    let next = schedule.next_after(from.max(now));
    if now <= from {
        return DueTicks { next, ..DueTicks::default() };
    }
    let mut skipped = Vec::new();
    let mut skip = |after, until, why| skipped.extend(span(schedule, after, until, why));

    // Three spans of time, each exclusive of its beginning: too old, missed within the window, on time.
    let on_time = from.max(upto(before(clock - late_after)));
    let window = from.max(upto(before(clock - misfire.within()))).min(on_time);
    let mut run = Vec::new();
    let each_after = match misfire {
        Misfire::Skip => {
            skip(from, on_time, MisfireReason::Rule);
            on_time
        }
        Misfire::RunOnce { within } => {
            skip(from, window, MisfireReason::Window { within });
            if let Some(last) = schedule.last_within(window, on_time) {
                skip(window, before(last), MisfireReason::Replaced { by: last });
                run.push(last);
            }
            on_time
        }
        Misfire::RunAll { within } => {
            skip(from, window, MisfireReason::Window { within });
            window
        }
    };
    let room = DUE_MAX - run.len();
    match at_most(schedule, each_after, now, room) {
        Some(ticks) => run.extend(ticks),
        None => {
            let cut = schedule.cut(each_after, now, room);
            skip(each_after, cut, MisfireReason::TooMany);
            run.extend(at_most(schedule, cut, now, room).unwrap_or_default());
        }
    }
    DueTicks { run, skipped, next }
}

fn before(at: WallTime) -> WallTime {
    at - MICRO
}

/// The ticks later than `after` and not later than `until`; `None` where they are more than `room`.
fn at_most(schedule: &Schedule, after: WallTime, until: WallTime, room: usize) -> Option<Vec<WallTime>> {
    let upto = |at: &WallTime| schedule.next_after(*at).filter(|tick| *tick <= until);
    let ticks: Vec<_> = std::iter::successors(upto(&after), upto).take(room + 1).collect();
    (ticks.len() <= room).then_some(ticks)
}

fn span(schedule: &Schedule, after: WallTime, until: WallTime, why: MisfireReason) -> Option<MisfiredTicks> {
    let first = schedule.next_after(after).filter(|tick| *tick <= until)?;
    Some(MisfiredTicks { first, last: schedule.last_within(after, until)?, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Cron, every};

    const START: WallTime = WallTime::from_micros(1_800_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> WallTime {
        START + SECOND * u32::try_from(seconds).unwrap()
    }

    fn minutely() -> Schedule {
        Cron::parse("* * * * *").unwrap().into()
    }

    /// Ten minutes of a minutely job were missed; it is 30 s past the last tick.
    fn missed(rule: Misfire) -> DueTicks {
        due(&minutely(), rule, at(0), at(630), Duration::from_secs(10))
    }

    #[test]
    fn a_tick_in_time_runs_under_every_rule() {
        for rule in [Misfire::Skip, RunOnce::within(Duration::ZERO), RunAll::within(MINUTE)] {
            let plan = due(&minutely(), rule, at(0), at(60), SECOND);
            assert_eq!(plan, DueTicks { run: vec![at(60)], skipped: vec![], next: Some(at(120)) }, "{rule}");
            let plan = due(&minutely(), rule, at(0), at(61), SECOND);
            assert_eq!(plan.run, [at(60)], "{rule}: late by just what is allowed");
        }
    }

    #[test]
    fn nothing_at_or_before_from_is_looked_at() {
        let all = RunAll::within(MINUTE * 60);
        let plan = due(&minutely(), all, at(60), at(119), MINUTE * 2);
        assert_eq!(plan, DueTicks { run: vec![], skipped: vec![], next: Some(at(120)) });
        let stepped_back = due(&minutely(), all, at(600), at(100), MINUTE);
        assert_eq!(stepped_back, DueTicks { run: vec![], skipped: vec![], next: Some(at(660)) });
    }

    #[test]
    fn skip_skips_what_is_late() {
        let plan = missed(Misfire::Skip);
        assert_eq!(plan.run, []);
        assert_eq!(plan.skipped, [MisfiredTicks { first: at(60), last: at(600), why: MisfireReason::Rule }]);
    }

    #[test]
    fn run_once_runs_the_latest_in_the_window() {
        let plan = missed(RunOnce::within(MINUTE * 4));
        assert_eq!(plan.run, [at(600)]);
        let window = MisfireReason::Window { within: MINUTE * 4 };
        let stood_for = MisfireReason::Replaced { by: at(600) };
        assert_eq!(
            plan.skipped,
            [
                MisfiredTicks { first: at(60), last: at(360), why: window },
                MisfiredTicks { first: at(420), last: at(540), why: stood_for },
            ]
        );
        assert_eq!(missed(RunOnce::within(SECOND * 29)).run, [], "the window has passed");
        assert_eq!(missed(RunOnce::within(SECOND * 30)).run, [at(600)], "its end belongs to it");
    }

    #[test]
    fn run_once_runs_the_tick_in_time_as_well() {
        let plan = due(&minutely(), RunOnce::within(MINUTE * 60), at(0), at(600), SECOND);
        assert_eq!(plan.run, [at(540), at(600)]);
    }

    #[test]
    fn run_all_runs_each_in_the_window() {
        let plan = missed(RunAll::within(MINUTE * 4));
        assert_eq!(plan.run, [at(420), at(480), at(540), at(600)]);
        let window = MisfireReason::Window { within: MINUTE * 4 };
        assert_eq!(plan.skipped, [MisfiredTicks { first: at(60), last: at(360), why: window }]);
    }

    #[test]
    fn a_weeks_outage_of_a_fast_job_is_bounded() {
        let week = Duration::from_secs(7 * 24 * 3600);
        let now = START + week;
        let fast: Schedule = every(Duration::from_millis(10)).unwrap().into();
        let plan = due(&fast, RunAll::within(week), START, now, SECOND);
        assert_eq!(plan.run.len(), DUE_MAX);
        assert_eq!(plan.run.last(), Some(&now), "the latest are kept");
        assert_eq!(plan.skipped.last().map(|span| span.why), Some(MisfireReason::TooMany));

        let plan = due(&fast, RunOnce::within(week), START, now, SECOND);
        assert_eq!(plan.run.len(), 1 + 101, "one for the missed, and what is less than a second late");
        let plan = due(&fast, Misfire::Skip, START, now, Duration::ZERO);
        assert_eq!(plan.run, [now]);

        let secondly: Schedule = Cron::parse("* * * * * *").unwrap().into();
        let plan = due(&secondly, RunAll::within(week), START, now, SECOND);
        assert_eq!(plan.run.len(), DUE_MAX);
        assert_eq!(plan.run.last(), Some(&now));
    }

    #[test]
    fn every_tick_is_run_or_skipped_and_none_twice() {
        let schedules: [Schedule; 3] =
            [minutely(), every(SECOND * 7).unwrap().into(), Cron::parse("*/5 * * * *").unwrap().into()];
        for schedule in &schedules {
            for rule in [Misfire::Skip, RunOnce::within(MINUTE * 3), RunAll::within(MINUTE * 3)] {
                for seconds in [0, 1, 59, 60, 61, 200, 700, 3601] {
                    let plan = due(schedule, rule, START, at(seconds), SECOND * 5);
                    let all = at_most(schedule, START, at(seconds), DUE_MAX).unwrap();
                    for tick in all {
                        let runs = plan.run.iter().filter(|run| **run == tick).count();
                        let spans =
                            plan.skipped.iter().filter(|span| (span.first..=span.last).contains(&tick));
                        assert_eq!(runs + spans.count(), 1, "{schedule} {rule} after {seconds} s: {tick:?}");
                    }
                    assert!(plan.run.is_sorted());
                    assert!(plan.next.unwrap() > at(seconds));
                }
            }
        }
    }
}
