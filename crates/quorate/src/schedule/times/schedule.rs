use super::{Cron, Every, Zone};
use crate::env::WallTime;
use std::{fmt, time::Duration};

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// At a fixed distance.
    Every(Every),
    /// By the calendar and the clock on the wall.
    Cron(Cron),
}

impl Schedule {
    /// The first tick strictly later than `after`; `None` where there is none.
    ///
    /// A pure function: every worker gets the same ticks. Asked again with its own answer it walks through
    /// all ticks, strictly growing.
    pub fn next_after(&self, after: WallTime) -> Option<WallTime> {
        match self {
            Self::Every(every) => every.next_after(after),
            Self::Cron(cron) => cron.next_after(after),
        }
    }

    /// The last tick that is later than `after` and not later than `until`.
    ///
    /// By bisection: some fifty calls of [`Schedule::next_after`], however many ticks lie between.
    pub fn last_within(&self, after: WallTime, until: WallTime) -> Option<WallTime> {
        let upto = |at| self.next_after(at).filter(|tick| *tick <= until);
        let mut last = upto(after)?;
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
    pub(in crate::schedule) fn busiest_gap(&self) -> Duration {
        /// 2024-01-01, so that all workers look at the same ticks.
        const ANCHOR: WallTime = WallTime::from_micros(1_704_067_200_000_000);
        const LOOK_AT: usize = 100;
        match self {
            Self::Every(every) => every.period(),
            Self::Cron(cron) => {
                let ticks = std::iter::successors(cron.next_after(ANCHOR), |at| cron.next_after(*at));
                let ticks: Vec<WallTime> = ticks.take(LOOK_AT).collect();
                let gaps = ticks.windows(2).map(|two| two[0].until(two[1]));
                gaps.min().unwrap_or(Duration::from_secs(24 * 3600))
            }
        }
    }

    /// No two ticks are closer than this.
    pub(in crate::schedule) fn least_gap(&self) -> Duration {
        match self {
            Self::Every(every) => every.period(),
            Self::Cron(_) => Duration::from_secs(1),
        }
    }

    /// `at` as people write it, in the schedule's zone.
    pub fn show(&self, at: WallTime) -> String {
        match self {
            Self::Every(_) => Zone::UTC.show(at),
            Self::Cron(cron) => cron.show(at),
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

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(every) => every.fmt(f),
            Self::Cron(cron) => cron.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::every, *};

    #[test]
    fn the_last_tick_of_a_span_is_the_one_a_walk_finds() {
        let lines = ["*/7 * * * *", "0 3 * * *", "0 0 1 * *", "0,30 2 * * *"];
        let mut schedules: Vec<Schedule> = vec![every(Duration::from_millis(1500)).unwrap().into()];
        for line in lines {
            schedules.push(Cron::parse(line).unwrap().zone("America/New_York").unwrap().into());
        }
        let start = WallTime::from_micros(1_741_330_000_000_000);
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
