use crate::{
    env::WallTime,
    scheduler::schedule::{
        after::{After, AfterEnd},
        at::At,
        cron::Cron,
        days::Days,
        delay::Delay,
        error::InvalidSchedule,
        every::Every,
        timetable::{GuardedTimetable, Timetable},
        zone::Zone,
    },
};
use std::{fmt, sync::Arc, time::Duration};

/// The points in time at which a job is due, its *ticks*. They begin with an interval
/// ([`Schedule::every`], [`Schedule::delay`]), one time ([`Schedule::at`]), the ends of another job ([`Schedule::after`]), a
/// [`Cron`] line, or a [`Timetable`] ([`Schedule::custom`]).
///
/// ```
/// use quorate::scheduler::{Cron, Schedule};
/// use std::time::Duration;
///
/// let often = Schedule::every(Duration::from_secs(10))?;
/// assert_eq!(often.to_string(), "every 10s");
/// let nightly: Schedule = Cron::parse("0 3 * * *")?.into();
/// assert_eq!(nightly.upcoming(Default::default(), 3).count(), 3);
/// # Ok::<(), quorate::scheduler::InvalidSchedule>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(super) kind: Kind,
    /// The days on which it has ticks. `None` for all days.
    pub(super) days: Option<Arc<Days>>,
}

/// The kinds of schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Every(Every),
    Cron(Cron),
    Delay(Delay),
    At(At),
    After(After),
    Custom(GuardedTimetable),
}

impl Schedule {
    /// Returns a schedule with a tick at each whole multiple of `period` since the Unix epoch. All workers compute
    /// the same ticks, because the ticks do not depend on the time at which a worker started.
    ///
    /// # Errors
    /// [`InvalidSchedule::Interval`] if the period is shorter than a millisecond, has a fraction of a
    /// microsecond, or is longer than the wall clock can count.
    pub fn every(period: Duration) -> Result<Self, InvalidSchedule> {
        Every::new(period).map(|every| Self::of(Kind::Every(every)))
    }

    /// Returns a schedule whose next tick is due `delay` after the end of the last run. Two runs of the job never
    /// overlap, however long a run takes.
    ///
    /// The first tick is the moment at which the job is first registered. Each later tick is the recorded end of
    /// the previous run, plus the delay. The ledger stores this end, so every leader computes the same tick. A run
    /// that is lost, skipped or cancelled ends when a leader writes that outcome to the ledger, and the next tick
    /// follows from that end. A late tick is never skipped as a misfire, because then no further tick would follow.
    ///
    /// # Errors
    /// As for [`Schedule::every`].
    pub fn delay(delay: Duration) -> Result<Self, InvalidSchedule> {
        Delay::new(delay).map(|delay| Self::of(Kind::Delay(delay)))
    }

    /// Returns a schedule with one tick, at `moment`. A moment in the past is accepted. If a job is registered
    /// after `moment`, it has no tick.
    pub const fn at(moment: WallTime) -> Self {
        Self::of(Kind::At(At(moment)))
    }

    /// Returns a schedule with a tick after each run of `job` that ends as `on` says. `job` is a job of the same group.
    ///
    /// The run gets the tick of the run that it follows: the time at which that was due, or was requested. The ledger records
    /// it under this tick, so that there is one run for each end, also if the leader changes in between. While the job is
    /// paused, ends get no run. Runs of a back-fill are followed by none. Jobs that follow each other in a circle are refused.
    ///
    /// ```
    /// use quorate::scheduler::{AfterEnd, Job, Schedule};
    ///
    /// let load = Job::new("load", Schedule::after("extract", AfterEnd::Success), |_run| async { Ok::<(), String>(()) });
    /// assert_eq!(load.schedule().to_string(), "after each success of \"extract\"");
    /// ```
    pub fn after(job: &str, on: AfterEnd) -> Self {
        Self::of(Kind::After(After { job: job.into(), on }))
    }

    /// Returns the job whose ends this schedule follows, if it does.
    pub(in crate::scheduler) fn follows(&self) -> Option<&After> {
        match &self.kind {
            Kind::After(after) => Some(after),
            _ => None,
        }
    }

    pub(super) const fn of(kind: Kind) -> Self {
        Self { kind, days: None }
    }

    /// Leaves out the ticks on these days, such as `2027-12-25`. The days are those of the schedule's
    /// [zone](Schedule::zone), from midnight to midnight; for all schedules but cron lines that is UTC. A tick on such a
    /// day is no tick: it does not run later either.
    ///
    /// ```
    /// use quorate::scheduler::{Cron, InvalidSchedule, Schedule};
    ///
    /// let daily: Schedule = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?.into();
    /// let workdays = daily.except(["2027-12-25", "2027-12-26"])?.from_day("2027-01-01")?.until_day("2027-12-31")?;
    /// assert!(workdays.to_string().ends_with("not on 2027-12-25, 2027-12-26"));
    /// assert!(matches!(workdays.except(["Christmas"]), Err(InvalidSchedule::Day { field: "except", .. })));
    /// # Ok::<(), InvalidSchedule>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidSchedule::Day`] if a text is not a day, or there are more than 400. [`InvalidSchedule::NoDays`] for a
    /// [`Schedule::delay`] and for [`Schedule::at`].
    pub fn except(self, days: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, InvalidSchedule> {
        self.with_days(|of| of.except(days))
    }

    /// Leaves out the ticks before this day, such as `2027-01-01`, in the zone of [`Schedule::except`].
    ///
    /// # Errors
    /// As for [`Schedule::except`], and if the last day is earlier.
    pub fn from_day(self, day: &str) -> Result<Self, InvalidSchedule> {
        self.with_days(|days| days.set_from(day))
    }

    /// Leaves out the ticks after this day, such as `2027-12-31`, in the zone of [`Schedule::except`].
    ///
    /// # Errors
    /// As for [`Schedule::except`], and if the first day is later.
    pub fn until_day(self, day: &str) -> Result<Self, InvalidSchedule> {
        self.with_days(|days| days.set_until(day))
    }

    fn with_days(
        mut self,
        change: impl FnOnce(&mut Days) -> Result<(), InvalidSchedule>,
    ) -> Result<Self, InvalidSchedule> {
        let kind = match self.kind {
            Kind::Delay(_) => "delay",
            Kind::At(_) => "single time (`at`)",
            Kind::After(_) => "job that runs after another",
            Kind::Every(_) | Kind::Cron(_) | Kind::Custom(_) => {
                change(Arc::make_mut(self.days.get_or_insert_default()))?;
                self.days = self.days.filter(|days| **days != Days::default());
                return Ok(self);
            }
        };
        Err(InvalidSchedule::NoDays { kind })
    }

    /// Returns the reason why a tick at `at` would be left out: the day is excepted, before the first or after the last.
    /// Returns `None` if it would not.
    #[doc(hidden)]
    pub fn left_out(&self, at: WallTime) -> Option<String> {
        let is_tick = || self.next_on_any_day(at - Duration::from_micros(1)) == Some(at);
        self.days.as_ref()?.left_out(self.zone(), at).filter(|_| is_tick())
    }

    /// Returns a schedule with the ticks of `table`. The results of `table` are checked: see
    /// [`Timetable::next_after`].
    pub fn custom(table: impl Timetable + 'static) -> Self {
        Self::of(Kind::Custom(GuardedTimetable::new(table)))
    }

    /// Returns the first tick strictly later than `after`, or `None` if there is none.
    ///
    /// This is a pure function, so every worker computes the same ticks. To get all ticks in order, pass each
    /// result to the next call. If ticks depend on the ends of runs ([`Schedule::is_after_end`]), `after` must
    /// be the end of the last run. Calls that pass each result to the next call then return the ticks that
    /// would follow if each run took no time.
    pub fn next_after(&self, after: WallTime) -> Option<WallTime> {
        match &self.days {
            None => self.next_on_any_day(after),
            Some(days) => days.next_after(self.zone(), after, |after| self.next_on_any_day(after)),
        }
    }

    fn next_on_any_day(&self, after: WallTime) -> Option<WallTime> {
        match &self.kind {
            Kind::Every(every) => every.next_after(after),
            Kind::Cron(cron) => cron.next_after(after),
            Kind::Delay(delay) => delay.next_after_end(after),
            Kind::At(at) => at.next_after(after),
            Kind::After(_) => None,
            Kind::Custom(custom) => custom.next_after(after),
        }
    }

    /// Returns the first tick of a job that is registered at `since`. If ticks depend on the ends of runs, this
    /// is `since`, because no run has ended yet.
    pub fn first(&self, since: WallTime) -> Option<WallTime> {
        if self.is_after_end() { Some(since) } else { self.next_after(since) }
    }

    /// Returns whether each tick depends on the end of the previous run, as with [`Schedule::delay`]. If so, at most one
    /// tick is known in advance. Such a tick must not be skipped, because without its run no further tick would
    /// follow.
    pub const fn is_after_end(&self) -> bool {
        matches!(self.kind, Kind::Delay(_))
    }

    /// Returns whether the schedule has one tick, as with [`Schedule::at`].
    pub(in crate::scheduler) const fn is_at(&self) -> bool {
        matches!(self.kind, Kind::At(_))
    }

    /// Returns the tick that follows a run which ended at `end`, as the ledger records it. Returns `None` if
    /// ticks do not depend on the ends of runs.
    pub fn next_after_end(&self, end: WallTime) -> Option<WallTime> {
        match &self.kind {
            Kind::Delay(delay) => delay.next_after_end(end),
            _ => None,
        }
    }

    /// Returns the first `count` ticks later than `from`. Each tick is computed only when the iterator reaches
    /// it. If ticks depend on the ends of runs, returns at most one tick.
    pub fn upcoming(&self, from: WallTime, count: usize) -> impl Iterator<Item = WallTime> + '_ {
        let count = if self.is_after_end() { count.min(1) } else { count };
        // `std::iter::successors` would compute one tick more than `count`. This additional search may be slow
        // if the last tick of a cron line has been reached.
        let mut at = from;
        std::iter::from_fn(move || {
            at = self.next_after(at)?;
            Some(at)
        })
        .take(count)
    }

    /// Returns the time between two ticks, or between the end of a run and the next tick, if this time is
    /// always the same. Returns `None` if it varies, or if there is only one tick.
    pub fn interval(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Every(every) => Some(every.period()),
            Kind::Delay(delay) => Some(delay.time()),
            Kind::Cron(_) | Kind::At(_) | Kind::After(_) | Kind::Custom(_) => None,
        }
    }

    /// Returns the error of a [`Timetable`] that has violated its contract. Such a timetable has no more ticks.
    pub fn error(&self) -> Option<&str> {
        match &self.kind {
            Kind::Custom(custom) => custom.error(),
            _ => None,
        }
    }

    /// Returns the last tick that is later than `after` and not later than `until`.
    ///
    /// The search is a bisection. It makes about fifty calls of [`Schedule::next_after`], even if the span has
    /// many more ticks.
    pub fn last_within(&self, after: WallTime, until: WallTime) -> Option<WallTime> {
        let upto = |at| self.next_after(at).filter(|tick| *tick <= until);
        let mut last = upto(after)?;
        if self.is_after_end() {
            return Some(last); // The tick after it depends on the end of its run.
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

    /// Returns the shortest time between two consecutive ticks. For a cron line and a timetable, only a sample
    /// of the ticks is examined. For a schedule with one tick, returns a day.
    #[doc(hidden)]
    pub fn busiest_gap(&self) -> Duration {
        /// 2024-01-01. It is a constant, so that all workers examine the same ticks.
        const SAMPLE_FROM: WallTime = WallTime::from_micros(1_704_067_200_000_000);
        const SAMPLE: usize = 100;
        match &self.kind {
            Kind::Every(every) => every.period(),
            Kind::Delay(delay) => delay.time(),
            Kind::At(_) => Duration::from_secs(24 * 3600),
            Kind::After(_) => Duration::from_secs(60),
            Kind::Cron(_) | Kind::Custom(_) => {
                let any_day = Self::of(self.kind.clone());
                let ticks: Vec<WallTime> = any_day.upcoming(SAMPLE_FROM, SAMPLE).collect();
                let gaps = ticks.windows(2).map(|two| two[0].until(two[1]));
                gaps.min().unwrap_or(Duration::from_secs(24 * 3600))
            }
        }
    }

    /// Returns a moment at or after `after`, such that at most `most` ticks are due between this moment and
    /// `until`. If the gap between the ticks is known, this is the earliest moment for which that is certain.
    /// The gap of a custom timetable is not known. As few as half of `most` ticks may then be due after the
    /// moment.
    pub(in crate::scheduler) fn cut(&self, after: WallTime, until: WallTime, most: usize) -> WallTime {
        let gaps = u32::try_from(most).unwrap_or(u32::MAX);
        let gap = match &self.kind {
            Kind::Every(every) => every.period(),
            Kind::Delay(delay) => delay.time(),
            Kind::Cron(_) | Kind::At(_) | Kind::After(_) => Duration::from_secs(1),
            Kind::Custom(_) => {
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

    /// Formats `at` for people, in the zone of the schedule.
    pub fn format(&self, at: WallTime) -> String {
        self.zone().format(at)
    }

    /// Returns the zone in which people read the ticks: that of a cron line, and UTC for all other schedules.
    pub fn zone(&self) -> &Zone {
        static UTC: Zone = Zone::UTC;
        match &self.kind {
            Kind::Cron(cron) => cron.zone_of(),
            _ => &UTC,
        }
    }
}

impl From<Cron> for Schedule {
    fn from(cron: Cron) -> Self {
        Self::of(Kind::Cron(cron))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Every(every) => every.fmt(f),
            Kind::Cron(cron) => cron.fmt(f),
            Kind::Delay(delay) => delay.fmt(f),
            Kind::At(at) => at.fmt(f),
            Kind::After(after) => after.fmt(f),
            Kind::Custom(custom) => custom.fmt(f),
        }?;
        self.days.iter().try_for_each(|days| days.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::policy::{DUE_MAX, DueTicks, Misfire, due};

    const START: WallTime = WallTime::from_micros(1_741_330_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    /// A timetable with a tick every seven seconds since the epoch.
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
    fn ticks_that_depend_on_ends_come_one_at_a_time_and_are_never_too_late() {
        let schedule: Schedule = Schedule::delay(10 * SECOND).unwrap();
        assert_eq!(schedule.first(START), Some(START));
        assert_eq!(schedule.next_after_end(START), Some(START + 10 * SECOND));
        assert_eq!(schedule.upcoming(START, 5).collect::<Vec<_>>(), [START + 10 * SECOND]);
        assert_eq!(schedule.last_within(START, START + 100 * SECOND), Some(START + 10 * SECOND));
        for rule in [Misfire::Skip, Misfire::run_all(SECOND)] {
            let plan = due(&schedule, rule, START, START + 500 * SECOND, SECOND);
            assert_eq!(plan, DueTicks { run: vec![START + 10 * SECOND], ..DueTicks::default() }, "{rule}");
            let plan = due(&schedule, rule, START, START + 9 * SECOND, SECOND);
            assert_eq!(plan, DueTicks { next: Some(START + 10 * SECOND), ..DueTicks::default() }, "{rule}");
        }
        let cron: Schedule = Schedule::every(SECOND).unwrap();
        assert_eq!((cron.first(START), cron.next_after_end(START)), (Some(START + SECOND), None));
    }

    #[test]
    fn a_schedule_of_one_moment_is_never_due_after_it() {
        let schedule: Schedule = Schedule::at(START);
        assert_eq!(schedule.to_string(), "once at 2025-03-07 06:46:40 +00:00 (UTC)");
        assert_eq!(schedule.next_after(START - SECOND), Some(START));
        assert_eq!(schedule.next_after(START), None);
        assert_eq!(schedule.upcoming(WallTime::default(), 9).collect::<Vec<_>>(), [START]);
        let plan = due(&schedule, Misfire::run_all(60 * SECOND), START - SECOND, START + SECOND, SECOND);
        assert_eq!(plan, DueTicks { run: vec![START], ..DueTicks::default() });
    }

    #[test]
    fn a_timetable_is_a_schedule_like_any_other() {
        let sevens = Schedule::custom(Sevens);
        let same: Schedule = Schedule::every(7 * SECOND).unwrap();
        let upcoming = |schedule: &Schedule| schedule.upcoming(START, 20).collect::<Vec<_>>();
        assert_eq!(upcoming(&sevens), upcoming(&same));
        assert_eq!((sevens.to_string(), sevens.spec(), sevens.error()), ("sevens".to_owned(), None, None));
        assert_eq!(sevens.busiest_gap(), 7 * SECOND);
        assert_eq!(sevens, Schedule::custom(Sevens));
        assert_ne!(sevens, same);
        // The job missed a week of ticks. The gap between the ticks of a timetable is not known. So fewer ticks
        // than the limit may run, but at least half of the limit. The latest tick is among them.
        let week = Duration::from_secs(7 * 24 * 3600);
        let plan = due(&sevens, Misfire::run_all(week), START, START + week, SECOND);
        assert!((DUE_MAX / 2..=DUE_MAX).contains(&plan.run.len()), "{}", plan.run.len());
        assert_eq!(plan.run.last().copied(), same.last_within(START, START + week));
        let run_from = plan.run[0];
        assert_eq!(plan.skipped[0].last, same.last_within(START, run_from - SECOND).unwrap());
    }

    #[test]
    fn upcoming_ticks_are_limited_by_the_count_and_by_the_last_tick() {
        let daily: Schedule = Cron::parse("@daily").unwrap().into();
        let three: Vec<String> = daily.upcoming(START, 3).map(|tick| daily.format(tick)).collect();
        assert_eq!(three[2], "2025-03-10 00:00:00 +00:00 (UTC)");
        let last: Schedule = Cron::parse("0 0 0 1 1 * 2026").unwrap().into();
        assert_eq!(last.upcoming(START, 3).count(), 1);
        assert_eq!(last.upcoming(START, 0).count(), 0);
    }

    #[test]
    fn the_last_tick_of_a_span_is_the_one_that_a_walk_finds() {
        let lines = ["*/7 * * * *", "0 3 * * *", "0 0 1 * *", "0,30 2 * * *"];
        let mut schedules: Vec<Schedule> = vec![Schedule::every(Duration::from_millis(1500)).unwrap()];
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
