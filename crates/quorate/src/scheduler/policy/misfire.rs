use crate::{
    env::WallTime,
    scheduler::{policy::jitter::Jitter, schedule::Schedule, wire},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The largest number of ticks that one decision ([`DueTicks`]) can run.
pub const DUE_MAX: usize = 10_000;

/// The smallest step of a wall clock.
const MICRO: Duration = Duration::from_micros(1);

/// The rule for *misfired* ticks. A tick is misfired if no leader planned it in time, because there was no
/// leader, or because the leader's process was paused. A tick that is planned in time runs under every rule.
///
/// The *window* is the time after a tick within which a misfired tick may still run.
///
/// ```
/// use quorate::scheduler::Misfire;
/// use std::time::Duration;
///
/// let rule = Misfire::run_once(Duration::from_secs(3600));
/// assert_eq!(rule, Misfire::RunOnce { within: Duration::from_secs(3600) });
/// assert_eq!(Misfire::run_all(Duration::from_secs(60)).to_string(), "run-all within 60s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Misfire {
    /// No misfired tick runs.
    Skip,
    /// Of the misfired ticks, only the latest one runs, and only if it is within the window.
    RunOnce {
        /// The window.
        #[serde(with = "wire::micros")]
        within: Duration,
    },
    /// Each misfired tick in the window runs.
    RunAll {
        /// The window.
        #[serde(with = "wire::micros")]
        within: Duration,
    },
}

impl Misfire {
    /// Returns the rule under which only the latest misfired tick runs, if it was missed by at most this time.
    pub const fn run_once(within: Duration) -> Self {
        Self::RunOnce { within }
    }

    /// Returns the rule under which each misfired tick runs that was missed by at most this time.
    pub const fn run_all(within: Duration) -> Self {
        Self::RunAll { within }
    }

    /// Returns the default rule of a job: one run for all misfired ticks within the window. The window is an
    /// hour. If a thousand times the shortest gap between two ticks is less than an hour, the window is that
    /// time, so that the ledger keeps few ticks.
    pub fn default_for(schedule: &Schedule) -> Self {
        Self::default_for_gap(schedule.busiest_gap())
    }

    pub(in crate::scheduler) fn default_for_gap(gap: Duration) -> Self {
        Self::run_once(gap.saturating_mul(1000).min(Duration::from_secs(3600)))
    }

    /// Returns the window: the time after a tick within which a misfired tick may still run.
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

/// The decision on the ticks that are due now, and the next tick.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DueTicks {
    /// The ticks to run, oldest first; at most [`DUE_MAX`].
    pub run: Vec<WallTime>,
    /// The spans of ticks that do not run, oldest first.
    pub skipped: Vec<MisfiredTicks>,
    /// The next tick, which is not due yet.
    pub next: Option<WallTime>,
}

/// A span of ticks that do not run. The ticks are not listed one by one, because an outage may miss millions of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MisfiredTicks {
    /// The first tick.
    pub first: WallTime,
    /// The last tick.
    pub last: WallTime,
    /// The reason.
    pub why: MisfireReason,
}

impl MisfiredTicks {
    /// Removes the ticks in the spans `recorded` from this span, because the ledger has records of them. These
    /// spans are sorted by their first ticks. Returns the spans that are left, oldest first.
    pub(in crate::scheduler) fn without(
        self,
        schedule: &Schedule,
        recorded: impl IntoIterator<Item = (WallTime, WallTime)>,
    ) -> Vec<Self> {
        let (mut rest, mut after) = (Vec::new(), before(self.first));
        // The closure `take` adds the span between two recorded ticks. It computes only the ends of the span,
        // and does not list the ticks of the span, because there may be millions.
        let mut take = |after, until| rest.extend(span(schedule, after, until, self.why));
        for (from, until) in
            recorded.into_iter().filter(|(from, until)| *from <= self.last && self.first <= *until)
        {
            take(after, before(from));
            after = after.max(until);
        }
        take(after, self.last);
        rest
    }
}

/// The reason why ticks do not run. The text completes "ticks were skipped: …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MisfireReason {
    /// The rule is [`Misfire::Skip`].
    #[error("they were missed, and the misfire rule is `skip`")]
    Rule,
    /// The ticks are older than the window.
    #[error("they were missed by more than the misfire window of {within:?}")]
    Window {
        /// The window.
        within: Duration,
    },
    /// A later tick runs in place of all these ticks.
    #[error("they were missed, and the run of {by} replaces them (`run-once`)")]
    Replaced {
        /// The tick that runs instead.
        by: WallTime,
    },
    /// More ticks were missed than one [`DueTicks`] can contain.
    #[error("more than {DUE_MAX} were missed; the latest run")]
    TooMany,
}

/// Returns the ticks to run at `now`, the ticks that are skipped because they are too late, and the next tick.
///
/// Ticks at or before `from` are ignored, so that no tick is repeated after a wall clock has stepped back.
/// `from` is the newest tick on which the leader has decided. If there is no such tick, `from` is the time
/// before which no tick counts: the ledger's low-water mark, or the job's registration. A tick is on time for
/// the time `late_after` after it.
///
/// This function does not read the ledger, which may already have a record of a returned tick. The running time of this function is bounded: after an outage of a
/// week, it does not iterate over the sixty million ticks of an `every 10ms`.
pub fn due(
    schedule: &Schedule,
    misfire: Misfire,
    from: WallTime,
    now: WallTime,
    late_after: Duration,
) -> DueTicks {
    due_with(schedule, misfire, Jitter::default(), from, now, late_after)
}

/// Decides like [`due`], for a job with a jitter. The run of a tick is due at the tick plus its delay, and the
/// lateness counts from that time.
pub(in crate::scheduler) fn due_with(
    schedule: &Schedule,
    misfire: Misfire,
    jitter: Jitter,
    from: WallTime,
    now: WallTime,
    late_after: Duration,
) -> DueTicks {
    if schedule.is_after_end() {
        // Each tick of this schedule follows the end of the previous run, so only one tick is known at a time.
        // A late tick is never skipped, because without its run no further tick would follow.
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

    // The time is divided into three spans, one after another. The ticks of the first span are older than the
    // window. The ticks of the second span were missed within the window. The ticks of the third span are on
    // time. Each span excludes its first instant and includes its last.
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

/// Returns the ticks in `(after, until]`, or `None` if there are more than `room` of them.
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
    use crate::scheduler::schedule::{Cron, Schedule};

    const START: WallTime = WallTime::from_micros(1_800_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> WallTime {
        START + SECOND * u32::try_from(seconds).unwrap()
    }

    fn minutely() -> Schedule {
        Cron::parse("* * * * *").unwrap().into()
    }

    /// Returns the decision on a job that is due each minute. The job missed ten ticks, and the decision is
    /// made 30 s after the last of them.
    fn missed(rule: Misfire) -> DueTicks {
        due(&minutely(), rule, at(0), at(630), Duration::from_secs(10))
    }

    #[test]
    fn a_tick_in_time_runs_under_every_rule() {
        for rule in [Misfire::Skip, Misfire::run_once(Duration::ZERO), Misfire::run_all(MINUTE)] {
            let plan = due(&minutely(), rule, at(0), at(60), SECOND);
            assert_eq!(plan, DueTicks { run: vec![at(60)], skipped: vec![], next: Some(at(120)) }, "{rule}");
            let plan = due(&minutely(), rule, at(0), at(61), SECOND);
            assert_eq!(plan.run, [at(60)], "{rule}: late by exactly what is allowed");
        }
    }

    #[test]
    fn ticks_at_or_before_from_are_ignored() {
        let all = Misfire::run_all(MINUTE * 60);
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
        let plan = missed(Misfire::run_once(MINUTE * 4));
        assert_eq!(plan.run, [at(600)]);
        let window = MisfireReason::Window { within: MINUTE * 4 };
        let replaced = MisfireReason::Replaced { by: at(600) };
        assert_eq!(
            plan.skipped,
            [
                MisfiredTicks { first: at(60), last: at(360), why: window },
                MisfiredTicks { first: at(420), last: at(540), why: replaced },
            ]
        );
        assert_eq!(missed(Misfire::run_once(SECOND * 29)).run, [], "the window has passed");
        assert_eq!(missed(Misfire::run_once(SECOND * 30)).run, [at(600)], "the window includes its end");
    }

    #[test]
    fn run_once_runs_the_tick_in_time_as_well() {
        let plan = due(&minutely(), Misfire::run_once(MINUTE * 60), at(0), at(600), SECOND);
        assert_eq!(plan.run, [at(540), at(600)]);
    }

    #[test]
    fn run_all_runs_each_in_the_window() {
        let plan = missed(Misfire::run_all(MINUTE * 4));
        assert_eq!(plan.run, [at(420), at(480), at(540), at(600)]);
        let window = MisfireReason::Window { within: MINUTE * 4 };
        assert_eq!(plan.skipped, [MisfiredTicks { first: at(60), last: at(360), why: window }]);
    }

    #[test]
    fn a_weeks_outage_of_a_fast_job_is_bounded() {
        let week = Duration::from_secs(7 * 24 * 3600);
        let now = START + week;
        let fast: Schedule = Schedule::every(Duration::from_millis(10)).unwrap();
        let plan = due(&fast, Misfire::run_all(week), START, now, SECOND);
        assert_eq!(plan.run.len(), DUE_MAX);
        assert_eq!(plan.run.last(), Some(&now), "the latest are kept");
        assert_eq!(plan.skipped.last().map(|span| span.why), Some(MisfireReason::TooMany));

        let plan = due(&fast, Misfire::run_once(week), START, now, SECOND);
        assert_eq!(plan.run.len(), 1 + 101, "one for the missed ticks, and those less than a second late");
        let plan = due(&fast, Misfire::Skip, START, now, Duration::ZERO);
        assert_eq!(plan.run, [now]);

        let secondly: Schedule = Cron::parse("* * * * * *").unwrap().into();
        let plan = due(&secondly, Misfire::run_all(week), START, now, SECOND);
        assert_eq!(plan.run.len(), DUE_MAX);
        assert_eq!(plan.run.last(), Some(&now));
    }

    #[test]
    fn every_tick_is_run_or_skipped_and_none_twice() {
        let schedules: [Schedule; 3] =
            [minutely(), Schedule::every(SECOND * 7).unwrap(), Cron::parse("*/5 * * * *").unwrap().into()];
        for schedule in &schedules {
            for rule in [Misfire::Skip, Misfire::run_once(MINUTE * 3), Misfire::run_all(MINUTE * 3)] {
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
