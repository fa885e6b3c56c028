//! The next change of a zone's offset from UTC, and its effect on a schedule. All functions are pure.

use crate::{
    env::WallTime,
    scheduler::schedule::{
        cron::Cron,
        kinds::{Kind, Schedule},
        local::ClockChange,
        zone::Zone,
    },
};

/// A change of the offset of a zone from UTC, and its effect on the ticks of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetChange {
    /// The first instant with the new offset.
    pub at: WallTime,
    /// The seconds by which local time was ahead of UTC before the change.
    pub before: i64,
    /// The seconds by which local time is ahead of UTC from the change on.
    pub after: i64,
    /// The effect on the schedule.
    pub effect: OffsetEffect,
}

/// The effect of a change of the offset on the ticks of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffsetEffect {
    /// The ticks of the schedule do not depend on local time, so the change of the offset does not matter.
    Independent,
    /// No tick is at a skipped or repeated local time. After the change, each tick has the same local time as
    /// before, but another time in UTC.
    Shifted,
    /// The clock skips local times of the schedule.
    Skipped {
        /// The number of local times of the schedule that the clock skips.
        times: u64,
        /// The number of those skipped local times for which the job runs later, right after the change.
        late: usize,
        /// The instant of the first late run.
        first_late: Option<WallTime>,
    },
    /// The clock shows local times of the schedule twice.
    Repeated {
        /// The number of local times of the schedule that the clock shows twice.
        times: u64,
        /// True if each of these times is a tick both times, false if it is a tick only the first time.
        twice: bool,
    },
}

impl Schedule {
    /// Returns the first change of the offset of `zone` after `after`, and its effect on this schedule. If the
    /// schedule has a zone of its own, that zone is used. Returns `None` if the tables have no later change.
    #[doc(hidden)]
    pub fn next_offset_change(&self, zone: &Zone, after: WallTime) -> Option<OffsetChange> {
        let cron = match &self.kind {
            Kind::Cron(cron) => Some(cron),
            _ => None,
        };
        let zone = cron.map_or(zone, |cron| cron.zone_of());
        let seconds = i64::try_from(after.as_micros() / 1_000_000).ok()?;
        let change = ClockChange::next(zone, seconds)?;
        let effect = cron.map_or(OffsetEffect::Independent, |cron| effect(cron, &change));
        Some(OffsetChange { at: wall(change.at)?, before: change.before, after: change.after, effect })
    }
}

fn effect(cron: &Cron, change: &ClockChange) -> OffsetEffect {
    let (times, rule) = (&*cron.times, cron.dst_rule());
    let (skipped, repeated) = (times.count_within(change.skipped()), times.count_within(change.repeated()));
    if skipped > 0 {
        let late = change.late_ticks(times, cron.zone_of(), rule);
        let first_late = late.first().copied().and_then(wall);
        return OffsetEffect::Skipped { times: skipped, late: late.len(), first_late };
    }
    if repeated > 0 {
        let twice = change.is_correction() || !rule.ignores_second_pass(times.fixed);
        return OffsetEffect::Repeated { times: repeated, twice };
    }
    OffsetEffect::Shifted
}

fn wall(seconds: i64) -> Option<WallTime> {
    u64::try_from(seconds).ok()?.checked_mul(1_000_000).map(WallTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::schedule::{Dst, Schedule};
    use std::time::Duration;

    fn at(text: &str) -> WallTime {
        let instant: jiff::Timestamp = text.parse().unwrap();
        WallTime::from_micros(instant.as_microsecond().try_into().unwrap())
    }

    fn change(line: &str, zone: &str, rule: Dst, after: &str) -> OffsetChange {
        let schedule: Schedule = Cron::parse(line).unwrap().zone(zone).unwrap().dst(rule).into();
        schedule.next_offset_change(&Zone::UTC, at(after)).unwrap()
    }

    #[test]
    fn the_effect_of_each_rule_on_a_gap_and_on_a_repetition() {
        use Dst::{Both, First, Skip, Vixie};
        use OffsetEffect::{Repeated, Shifted, Skipped};
        // At 01:00 UTC, 03:00 becomes 04:00.
        let (spring, gap) = ("2027-01-01T00:00:00Z", at("2027-03-28T01:00:00Z"));
        // At 01:00 UTC, 04:00 becomes 03:00.
        let (autumn, repetition) = ("2027-06-01T00:00:00Z", at("2027-10-31T01:00:00Z"));
        let late = |times, late| Skipped { times, late, first_late: (late > 0).then_some(gap) };
        let table = [
            (spring, "0 2 * * *", Vixie, Shifted),
            (spring, "0 4 * * *", Vixie, Shifted),
            (spring, "30 3 * * *", Vixie, late(1, 1)),
            (spring, "30 3 * * *", Skip, late(1, 0)),
            (spring, "30 3 * * *", First, late(1, 1)),
            (spring, "0,30 3 * * *", Both, late(2, 2)),
            (spring, "*/15 * * * *", Vixie, late(4, 0)),
            (spring, "* * * * * *", Vixie, late(3_600, 0)),
            (spring, "0 1 * * * *", Both, late(1, 0)),
            (spring, "@hourly", Vixie, late(1, 0)),
            (spring, "30 3 * * mon", Vixie, Shifted),
            (autumn, "0 2 * * *", Vixie, Shifted),
            (autumn, "0 4 * * *", Vixie, Shifted),
            (autumn, "30 3 * * *", Vixie, Repeated { times: 1, twice: false }),
            (autumn, "30 3 * * *", Skip, Repeated { times: 1, twice: false }),
            (autumn, "30 3 * * *", Both, Repeated { times: 1, twice: true }),
            (autumn, "*/15 * * * *", Vixie, Repeated { times: 4, twice: true }),
            (autumn, "*/15 * * * *", First, Repeated { times: 4, twice: false }),
        ];
        for (after, line, rule, effect) in table {
            let found = change(line, "Europe/Kyiv", rule, after);
            let (instant, offsets) = match after == spring {
                true => (gap, (7_200, 10_800)),
                false => (repetition, (10_800, 7_200)),
            };
            assert_eq!((found.at, (found.before, found.after)), (instant, offsets), "{line} {rule}");
            assert_eq!(found.effect, effect, "{line} {rule} after {after}");
        }
    }

    #[test]
    fn the_effect_agrees_with_the_ticks() {
        let lines = ["30 2 * * *", "0,20 30 1,2 * * *", "*/7 * * * *", "15 * * * *", "@daily", "0 0-5 * * *"];
        let changes = [
            ("America/New_York", "2027-01-01T00:00:00Z"),
            ("America/New_York", "2027-06-01T00:00:00Z"),
            ("Australia/Lord_Howe", "2027-01-01T00:00:00Z"),
            ("Australia/Lord_Howe", "2027-06-01T00:00:00Z"),
            ("Antarctica/Troll", "2027-01-01T00:00:00Z"),
            ("Pacific/Apia", "2011-12-01T00:00:00Z"),
        ];
        for (line, (zone, after), rule) in lines
            .iter()
            .flat_map(|line| changes.map(|change| (line, change)))
            .flat_map(|(line, change)| Dst::ALL.map(|rule| (line, change, rule)))
        {
            let cron = Cron::parse(line).unwrap().zone(zone).unwrap().dst(rule);
            let schedule: Schedule = cron.clone().into();
            let change = schedule.next_offset_change(&Zone::UTC, at(after)).unwrap();
            let step = Duration::from_secs((change.after - change.before).unsigned_abs());
            let ticks: Vec<i64> = schedule
                .upcoming(change.at - Duration::from_micros(1), 5_000)
                .take_while(|tick| *tick < change.at + step)
                .map(|tick| i64::try_from(tick.as_micros() / 1_000_000).unwrap())
                .collect();
            let is_listed =
                |tick: &i64| cron.times.count_within(tick + change.after..tick + change.after + 1) > 0;
            let case = format!("{line} in {zone} under {rule} after {after}");
            match change.effect {
                OffsetEffect::Skipped { late, .. } => {
                    assert_eq!(ticks.iter().filter(|tick| !is_listed(tick)).count(), late, "{case}");
                }
                // After the change, the clock shows the repeated times for the second time.
                OffsetEffect::Repeated { times, twice } => {
                    assert_eq!(ticks.len() as u64, if twice { times } else { 0 }, "{case}");
                }
                OffsetEffect::Shifted if change.after < change.before => assert!(ticks.is_empty(), "{case}"),
                OffsetEffect::Shifted => assert!(ticks.iter().all(is_listed), "{case}"),
                OffsetEffect::Independent => panic!("{case}"),
            }
        }
    }

    #[test]
    fn a_correction_of_the_calendar_ignores_the_rules() {
        let apia = change("0 3 30 12 *", "Pacific/Apia", Dst::Vixie, "2011-12-01T00:00:00Z");
        assert_eq!(apia.effect, OffsetEffect::Skipped { times: 1, late: 0, first_late: None });
        let casey = change("30 23 * * *", "Antarctica/Casey", Dst::Vixie, "2010-03-01T00:00:00Z");
        assert_eq!(casey.effect, OffsetEffect::Repeated { times: 1, twice: true });
    }

    #[test]
    fn a_schedule_of_real_time_does_not_depend_on_the_offset() {
        let (kyiv, now) = (Zone::named("Europe/Kyiv").unwrap(), at("2027-01-01T00:00:00Z"));
        let minute = Duration::from_secs(60);
        for schedule in
            [Schedule::every(minute).unwrap(), Schedule::delay(minute).unwrap(), Schedule::at(now)]
        {
            let change = schedule.next_offset_change(&kyiv, now).unwrap();
            assert_eq!((change.at, change.effect), (at("2027-03-28T01:00:00Z"), OffsetEffect::Independent));
            assert_eq!(schedule.next_offset_change(&Zone::UTC, now), None);
        }
        let fixed: Schedule = Cron::parse("0 3 * * *").unwrap().zone("Asia/Tokyo").unwrap().into();
        assert_eq!(fixed.next_offset_change(&kyiv, now), None, "the zone of the line counts");
    }
}
