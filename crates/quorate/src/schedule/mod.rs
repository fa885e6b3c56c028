//! When a job's ticks are due, which of the missed ones still run, and what the ledger says of one of them.
//!
//! # What is not guaranteed
//!
//! A tick is a point on the *wall* clock, and a wall clock may step. A step forward makes the ticks in between
//! missed ones (the [`Misfire`] rule decides); a step back repeats none, because the planner is told how far
//! it has looked, but delays the next one. Nothing here reads a clock or promises that anybody is awake at a
//! tick: these are pure functions, and the leader's runner acts on them.
//!
//! Zones are as good as the IANA tables that were compiled in. Workers built with different tables may see
//! one tick at two instants in the weeks around a change of the law. The `cron` crate knows no year after
//! 2100: a cron line does not fire after it.
//!
//! # The parts
//!
//! * [`Schedule`]: [`Every`] or [`Cron`]; at the core one method, [`Schedule::next_after`]
//! * [`due`]: from a schedule, a [`Misfire`] rule and two points in time to the ticks to run
//! * [`verdict`] and [`Delivery::decide`]: from what the nodes' ledgers say of a tick to run or skip
//! * [`TickRecord`], [`TickKey`]: how a tick stands in the ledger
//!
//! # The rule for skipped and repeated local times
//!
//! One rule for both dialects of [`Cron`], that of cronie (Vixie cron), from its manual `cron(8)`, "Daylight
//! Saving Time and other time changes":
//!
//! * A **fixed-time** job is one whose minute field and hour field (and seconds field, where there is one) do
//!   not begin with `*`. Any other is an **interval** job.
//! * An *interval* job follows real time: what the clock on the wall does not show does not happen, and what
//!   it shows twice happens twice, in order.
//! * A *fixed-time* job whose local time is skipped runs right after the gap. Where several of its times are
//!   skipped, each runs, one second apart, never at a second at which the job is due anyway (so that every
//!   tick has an instant of its own); at most 60 for one gap, and no longer after it than the gap was long.
//! * A *fixed-time* job whose local time is repeated runs in the first pass only.
//! * A change of three hours or more is a correction of the calendar (Samoa had no 30 December 2011): the new
//!   time counts at once, nothing is made up and nothing held back.
//!
//! The rule lives in one place, the private module `local`; another, to be chosen by the job, would stand
//! beside it.

mod cron;
mod crontab;
mod delivery;
mod every;
mod job;
mod local;
mod misfire;
mod plan;
mod record;
mod registration;
mod run;
mod runner;
mod scheduler;
mod zone;

pub use cron::Cron;
pub use crontab::CronError;
pub use delivery::{Decision, Delivery, NodeAnswer, SkipReason, TickVerdict, verdict};
pub use every::{Every, EveryError, every};
pub use job::{Job, Tick};
pub use misfire::{DUE_MAX, Due, Misfire, MisfireReason, RunAll, RunOnce, Skipped, due};
pub use record::{RecordError, TickKey, TickRecord};
pub use scheduler::{ScheduleError, Scheduler, SchedulerRun};
pub use zone::{Zone, ZoneError};

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
    pub(crate) fn busiest_gap(&self) -> Duration {
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
    pub(crate) fn least_gap(&self) -> Duration {
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
    use super::*;

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
