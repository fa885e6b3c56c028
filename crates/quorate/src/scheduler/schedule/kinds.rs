use crate::env::WallTime;
use crate::scheduler::schedule::{At, Cron, CustomSchedule, Delay, Every, Timetable, Zone};
use std::{fmt, time::Duration};

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// At a fixed distance.
    Every(Every),
    /// By the calendar and the clock on the wall.
    Cron(Cron),
    /// A fixed time after the last run has ended.
    Delay(Delay),
    /// Once.
    At(At),
    /// By a timetable of one's own.
    Custom(CustomSchedule),
}

impl Schedule {
    /// By a timetable of one's own, guarded: see [`Timetable::next_after`].
    pub fn custom(table: impl Timetable + 'static) -> Self {
        Self::Custom(CustomSchedule::new(table))
    }

    /// The first tick strictly later than `after`; `None` where there is none.
    ///
    /// A pure function: every worker gets the same ticks. Asked again with its own answer it walks through
    /// all ticks, strictly growing. (Where ticks hang on ends, [`Schedule::is_after_end`], `after` is when the
    /// last run ended, and the walk is one of runs that take no time.)
    pub fn next_after(&self, after: WallTime) -> Option<WallTime> {
        match self {
            Self::Every(every) => every.next_after(after),
            Self::Cron(cron) => cron.next_after(after),
            Self::Delay(delay) => delay.next_after_end(after),
            Self::At(at) => at.next_after(after),
            Self::Custom(custom) => custom.next_after(after),
        }
    }

    /// The first tick of a job that has been registered at `since`: where ticks hang on ends, that moment
    /// itself, for there is no end yet.
    pub fn first(&self, since: WallTime) -> Option<WallTime> {
        if self.is_after_end() { Some(since) } else { self.next_after(since) }
    }

    /// Whether a tick hangs on the end of the run before it, so that there is never more than one to come and
    /// none may be left out: see [`Delay`].
    pub const fn is_after_end(&self) -> bool {
        matches!(self, Self::Delay(_))
    }

    /// The tick that follows a run which ended at `end`, as the ledger has it; `None` where ticks do not hang
    /// on ends.
    pub fn next_after_end(&self, end: WallTime) -> Option<WallTime> {
        match self {
            Self::Delay(delay) => delay.next_after_end(end),
            _ => None,
        }
    }

    /// The first `count` ticks later than `from`, one at a time: at most one where ticks hang on ends.
    pub fn upcoming(&self, from: WallTime, count: usize) -> impl Iterator<Item = WallTime> + '_ {
        let count = if self.is_after_end() { count.min(1) } else { count };
        // Not `successors`, which is a tick ahead: the search after the last tick of a line may take long.
        let mut at = from;
        std::iter::from_fn(move || {
            at = self.next_after(at)?;
            Some(at)
        })
        .take(count)
    }

    /// Why there are no more ticks, where a timetable of one's own did what it must not.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Custom(custom) => custom.error(),
            _ => None,
        }
    }

    /// The last tick that is later than `after` and not later than `until`.
    ///
    /// By bisection: some fifty calls of [`Schedule::next_after`], however many ticks lie between.
    pub fn last_within(&self, after: WallTime, until: WallTime) -> Option<WallTime> {
        let upto = |at| self.next_after(at).filter(|tick| *tick <= until);
        let mut last = upto(after)?;
        if self.is_after_end() {
            return Some(last); // What follows it hangs on its end.
        }
        let (mut some, mut none) = (last.as_micros(), until.as_micros());
        while some < none {
            let middle = some + (none - some) / 2;
            match upto(WallTime::from_micros(middle)) {
                Some(tick) => {
                    last = tick;
                    some = tick.as_micros();
                }
                None => none = middle,
            }
        }
        Some(last)
    }

    /// The shortest time between two ticks that follow each other: as found among some of a cron line's.
    pub(in crate::scheduler) fn busiest_gap(&self) -> Duration {
        /// 2024-01-01, so that all workers look at the same ticks.
        const ANCHOR: WallTime = WallTime::from_micros(1_704_067_200_000_000);
        const LOOK_AT: usize = 100;
        match self {
            Self::Every(every) => every.period(),
            Self::Delay(delay) => delay.time(),
            Self::At(_) => Duration::from_secs(24 * 3600),
            Self::Cron(_) | Self::Custom(_) => {
                let ticks: Vec<WallTime> = self.upcoming(ANCHOR, LOOK_AT).collect();
                let gaps = ticks.windows(2).map(|two| two[0].until(two[1]));
                gaps.min().unwrap_or(Duration::from_secs(24 * 3600))
            }
        }
    }

    /// A moment not before `after`, from which on no more than `most` ticks are due up to `until`. As early as
    /// the distance between ticks promises; for a timetable of one's own at most half of them are lost.
    pub(in crate::scheduler) fn cut(&self, after: WallTime, until: WallTime, most: usize) -> WallTime {
        let gaps = u32::try_from(most).unwrap_or(u32::MAX);
        let gap = match self {
            Self::Every(every) => every.period(),
            Self::Delay(delay) => delay.time(),
            Self::Cron(_) | Self::At(_) => Duration::from_secs(1),
            Self::Custom(_) => {
                let fits = |gap: &Duration| {
                    let from = until - *gap * gaps;
                    let ticks = self.upcoming(from, most + 1).take_while(|tick| *tick <= until);
                    from > after && ticks.count() <= most
                };
                let doubled = std::iter::successors(Some(Duration::from_micros(1)), |gap| gap.checked_mul(2));
                doubled.take(50).take_while(fits).last().unwrap_or(Duration::ZERO)
            }
        };
        after.max(until - gap * gaps)
    }

    /// `at` as people write it, in the schedule's zone.
    pub fn format(&self, at: WallTime) -> String {
        match self {
            Self::Cron(cron) => cron.format(at),
            _ => Zone::UTC.format(at),
        }
    }
}

impl From<Every> for Schedule {
    fn from(every: Every) -> Self {
        Self::Every(every)
    }
}

impl From<Cron> for Schedule {
    fn from(cron: Cron) -> Self {
        Self::Cron(cron)
    }
}

impl From<Delay> for Schedule {
    fn from(delay: Delay) -> Self {
        Self::Delay(delay)
    }
}

impl From<At> for Schedule {
    fn from(at: At) -> Self {
        Self::At(at)
    }
}

impl From<CustomSchedule> for Schedule {
    fn from(custom: CustomSchedule) -> Self {
        Self::Custom(custom)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(every) => every.fmt(f),
            Self::Cron(cron) => cron.fmt(f),
            Self::Delay(delay) => delay.fmt(f),
            Self::At(at) => at.fmt(f),
            Self::Custom(custom) => custom.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scheduler::{DUE_MAX, DueTicks, Misfire, RunAll, due};
    use {
        super::*,
        crate::scheduler::{at, delay, every},
    };

    const START: WallTime = WallTime::from_micros(1_741_330_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    /// A tick every seven seconds since the epoch, by hand.
    #[derive(Debug)]
    struct Sevens;

    impl Timetable for Sevens {
        fn next_after(&self, after: WallTime) -> Option<WallTime> {
            Some(WallTime::from_micros((after.as_micros() / 7_000_000 + 1) * 7_000_000))
        }
        fn describe(&self) -> String {
            "sevens".to_owned()
        }
    }

    #[test]
    fn ticks_that_hang_on_ends_come_one_at_a_time_and_are_never_too_late() {
        let schedule: Schedule = delay(10 * SECOND).unwrap().into();
        assert_eq!(schedule.first(START), Some(START));
        assert_eq!(schedule.next_after_end(START), Some(START + 10 * SECOND));
        assert_eq!(schedule.upcoming(START, 5).collect::<Vec<_>>(), [START + 10 * SECOND]);
        assert_eq!(schedule.last_within(START, START + 100 * SECOND), Some(START + 10 * SECOND));
        for rule in [Misfire::Skip, RunAll::within(SECOND)] {
            let plan = due(&schedule, rule, START, START + 500 * SECOND, SECOND);
            assert_eq!(plan, DueTicks { run: vec![START + 10 * SECOND], ..DueTicks::default() }, "{rule}");
            let plan = due(&schedule, rule, START, START + 9 * SECOND, SECOND);
            assert_eq!(plan, DueTicks { next: Some(START + 10 * SECOND), ..DueTicks::default() }, "{rule}");
        }
        let cron: Schedule = every(SECOND).unwrap().into();
        assert_eq!((cron.first(START), cron.next_after_end(START)), (Some(START + SECOND), None));
    }

    #[test]
    fn once_is_once_and_what_has_passed_is_never_due() {
        let schedule: Schedule = at(START).into();
        assert_eq!(schedule.to_string(), "once at 2025-03-07 06:46:40 +00:00 (UTC)");
        assert_eq!(schedule.next_after(START - SECOND), Some(START));
        assert_eq!(schedule.next_after(START), None);
        assert_eq!(schedule.upcoming(WallTime::default(), 9).collect::<Vec<_>>(), [START]);
        let plan = due(&schedule, RunAll::within(60 * SECOND), START - SECOND, START + SECOND, SECOND);
        assert_eq!(plan, DueTicks { run: vec![START], ..DueTicks::default() });
    }

    #[test]
    fn a_timetable_of_ones_own_is_a_schedule_like_any_other() {
        let sevens = Schedule::custom(Sevens);
        let same: Schedule = every(7 * SECOND).unwrap().into();
        let upcoming = |schedule: &Schedule| schedule.upcoming(START, 20).collect::<Vec<_>>();
        assert_eq!(upcoming(&sevens), upcoming(&same));
        assert_eq!((sevens.to_string(), sevens.spec(), sevens.error()), ("sevens".to_owned(), None, None));
        assert_eq!(sevens.busiest_gap(), 7 * SECOND);
        assert_eq!(sevens, Schedule::custom(Sevens));
        assert_ne!(sevens, same);
        // A day was missed at a pace that nobody promised: the latest run, and more than half of what may.
        let week = Duration::from_secs(7 * 24 * 3600);
        let plan = due(&sevens, RunAll::within(week), START, START + week, SECOND);
        assert!((DUE_MAX / 2..=DUE_MAX).contains(&plan.run.len()), "{}", plan.run.len());
        assert_eq!(plan.run.last().copied(), same.last_within(START, START + week));
        let run_from = plan.run[0];
        assert_eq!(plan.skipped[0].last, same.last_within(START, run_from - SECOND).unwrap());
    }

    #[test]
    fn what_is_to_come_is_counted_and_ends_where_the_ticks_do() {
        let daily: Schedule = Cron::parse("@daily").unwrap().into();
        let three: Vec<String> = daily.upcoming(START, 3).map(|tick| daily.format(tick)).collect();
        assert_eq!(three[2], "2025-03-10 00:00:00 +00:00 (UTC)");
        let last: Schedule = Cron::parse("0 0 0 1 1 * 2026").unwrap().into();
        assert_eq!(last.upcoming(START, 3).count(), 1);
        assert_eq!(last.upcoming(START, 0).count(), 0);
    }

    #[test]
    fn the_last_tick_of_a_span_is_the_one_a_walk_finds() {
        let lines = ["*/7 * * * *", "0 3 * * *", "0 0 1 * *", "0,30 2 * * *"];
        let mut schedules: Vec<Schedule> = vec![every(Duration::from_millis(1500)).unwrap().into()];
        for line in lines {
            schedules.push(Cron::parse(line).unwrap().zone("America/New_York").unwrap().into());
        }
        let start = START;
        for schedule in schedules {
            for hours in [0, 1, 2, 5, 24, 50] {
                let until = start + Duration::from_secs(hours * 3600);
                let mut walked = None;
                let mut at = start;
                while let Some(tick) = schedule.next_after(at).filter(|tick| *tick <= until) {
                    walked = Some(tick);
                    at = tick;
                }
                assert_eq!(schedule.last_within(start, until), walked, "{schedule} over {hours} h");
            }
        }
    }
}
