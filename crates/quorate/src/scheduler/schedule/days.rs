use crate::{
    env::WallTime,
    scheduler::schedule::{
        error::{InvalidSchedule, shown},
        zone::Zone,
    },
};
use jiff::{Timestamp, civil::Date};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// The largest number of excepted days of a schedule. A search passes over all of them.
const EXCEPT_MAX: usize = 400;
/// The number of excepted days that [`Days::words`] names.
const NAMED: usize = 5;

/// The days on which a schedule has ticks, in its zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) except: BTreeSet<Date>,
    pub(super) from: Option<Date>,
    pub(super) until: Option<Date>,
}

impl Days {
    /// Adds the days on which the schedule has no ticks.
    pub(super) fn except(
        &mut self,
        days: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), InvalidSchedule> {
        for day in days {
            self.except.insert(day_of("except", day.as_ref())?);
        }
        match self.except.len() {
            0..=EXCEPT_MAX => Ok(()),
            count => {
                let reason =
                    format!("has {count} days, and {EXCEPT_MAX} is the most; remove those that are over");
                Err(InvalidSchedule::Day { field: "except", value: format!("[… {count} days]"), reason })
            }
        }
    }

    pub(super) fn set_from(&mut self, day: &str) -> Result<(), InvalidSchedule> {
        self.from = Some(day_of("from", day)?);
        self.check_order()
    }

    pub(super) fn set_until(&mut self, day: &str) -> Result<(), InvalidSchedule> {
        self.until = Some(day_of("until", day)?);
        self.check_order()
    }

    fn check_order(&self) -> Result<(), InvalidSchedule> {
        match (self.from, self.until) {
            (Some(from), Some(until)) if until < from => {
                let reason = format!("is before `from` {from}, so that the schedule has no tick; swap them");
                Err(InvalidSchedule::Day { field: "until", value: until.to_string(), reason })
            }
            _ => Ok(()),
        }
    }

    /// Returns the reason why a tick at `at` is left out, if it is.
    pub(super) fn left_out(&self, zone: &Zone, at: WallTime) -> Option<String> {
        let day = zone.day(at)?;
        if let Some(from) = self.from.filter(|from| day < *from) {
            return Some(format!("{day} is before the schedule's first day, from = {from}"));
        }
        if let Some(until) = self.until.filter(|until| day > *until) {
            return Some(format!("{day} is after the schedule's last day, until = {until}"));
        }
        self.except.contains(&day).then(|| format!("{day} is one of the schedule's excepted days"))
    }

    /// Returns the first tick later than `after` that is not left out. `next` returns the ticks of the schedule without
    /// these days. No day is searched twice.
    pub(super) fn next_after(
        &self,
        zone: &Zone,
        mut after: WallTime,
        next: impl Fn(WallTime) -> Option<WallTime>,
    ) -> Option<WallTime> {
        if let Some(begins) = self.from.and_then(|from| zone.begin(from)) {
            after = after.max(begins - Duration::from_micros(1));
        }
        loop {
            let tick = next(after)?;
            let day = zone.day(tick)?;
            if self.until.is_some_and(|until| day > until) {
                return None;
            }
            if !self.except.contains(&day) && self.from.is_none_or(|from| from <= day) {
                return Some(tick);
            }
            let ends = zone.begin(day.tomorrow().ok()?)?;
            after = tick.max(ends - Duration::from_micros(1));
        }
    }

    /// Returns the days in words, which follow those of the schedule.
    pub(super) fn words(&self) -> String {
        let mut words = String::new();
        words += &self.from.map_or_else(String::new, |from| format!(", from {from}"));
        words += &self.until.map_or_else(String::new, |until| format!(", until {until}"));
        let named: Vec<String> = self.except.iter().take(NAMED).map(Date::to_string).collect();
        if !named.is_empty() {
            let more = match self.except.len() - named.len() {
                0 => String::new(),
                more => format!(" and {more} more days"),
            };
            words += &format!(", not on {}{more}", named.join(", "));
        }
        words
    }

    pub(super) fn texts(days: impl IntoIterator<Item = Date>) -> Vec<Arc<str>> {
        days.into_iter().map(|day| day.to_string().into()).collect()
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words())
    }
}

impl Zone {
    /// Returns the day of an instant, or `None` outside the calendar.
    fn day(&self, at: WallTime) -> Option<Date> {
        Some(self.local(at)?.date())
    }

    /// Returns the first instant of a day.
    fn begin(&self, day: Date) -> Option<WallTime> {
        let at: Timestamp = self.start_of(day)?;
        u64::try_from(at.as_microsecond()).ok().map(WallTime::from_micros)
    }
}

/// Reads a day, such as `2027-12-25`.
fn day_of(field: &'static str, text: &str) -> Result<Date, InvalidSchedule> {
    let is_plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    text.parse().ok().filter(|_| is_plain).ok_or_else(|| InvalidSchedule::Day {
        field,
        value: shown(text),
        reason: "is not a day; write it like 2027-12-25".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::schedule::{Cron, Schedule};

    const HOUR: Duration = Duration::from_secs(3600);

    fn in_kyiv(line: &str) -> Schedule {
        Cron::parse(line).unwrap().zone("Europe/Kyiv").unwrap().into()
    }

    fn texts(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
        let from = from.parse::<Timestamp>().unwrap().as_microsecond();
        let from = WallTime::from_micros(u64::try_from(from).unwrap());
        schedule.upcoming(from, count).map(|at| schedule.format(at)[..16].to_owned()).collect()
    }

    #[test]
    fn days_are_those_of_the_zone_and_the_first_and_the_last_day_count() {
        let daily = in_kyiv("30 0 * * *").except(["2027-12-25", "2027-12-26"]).unwrap();
        // 00:30 in Kyiv is 22:30 of the day before in UTC.
        assert_eq!(
            texts(&daily, "2027-12-23T12:00:00Z", 3),
            ["2027-12-24 00:30", "2027-12-27 00:30", "2027-12-28 00:30"]
        );
        let bounded = daily.from_day("2027-12-24").unwrap().until_day("2027-12-27").unwrap();
        assert_eq!(texts(&bounded, "2020-01-01T00:00:00Z", 9), ["2027-12-24 00:30", "2027-12-27 00:30"]);
        assert_eq!(
            bounded.to_string(),
            "30 0 * * * (Europe/Kyiv), from 2027-12-24, until 2027-12-27, not on 2027-12-25, 2027-12-26"
        );
        let again = Schedule::from_spec(&bounded.spec().unwrap()).unwrap();
        assert_eq!(again, bounded);
    }

    #[test]
    fn no_tick_is_on_a_day_that_is_left_out_and_no_other_tick_is_lost() {
        for plain in [in_kyiv("0 */5 * * *"), in_kyiv("17 3 * * mon"), Schedule::every(7 * HOUR).unwrap()] {
            let schedule =
                plain.clone().except(["2027-03-28", "2027-03-29", "2027-10-31", "2027-04-05"]).unwrap();
            let schedule = schedule.from_day("2027-03-20").unwrap().until_day("2027-11-02").unwrap();
            let start = "2027-03-18T00:00:00Z".parse::<Timestamp>().unwrap().as_microsecond();
            let start = WallTime::from_micros(u64::try_from(start).unwrap());
            let wanted: Vec<WallTime> =
                plain.upcoming(start, 2_000).filter(|at| schedule.left_out(*at).is_none()).collect();
            let found: Vec<WallTime> = schedule.upcoming(start, 2_000).collect();
            assert!(wanted.len() > 20 && found.len() < 2_000 && found == wanted, "{schedule}");
            let last = schedule.last_within(start, start + 500 * 24 * HOUR);
            assert_eq!(last, found.last().copied(), "{schedule}");
        }
    }

    #[test]
    fn a_day_that_cannot_be_used_is_refused_with_the_fix() {
        let daily = || in_kyiv("0 3 * * *");
        for (error, fix) in [
            (
                daily().except(["25.12.2027"]),
                "`except` \"25.12.2027\" is not a day; write it like 2027-12-25",
            ),
            (daily().except(["2027-02-30"]), "is not a day"),
            (daily().except(["2027-12-25T00:00:00"]), "is not a day"),
            (daily().from_day("tomorrow"), "`from` \"tomorrow\" is not a day"),
            (
                daily().from_day("2027-02-01").and_then(|schedule| schedule.until_day("2027-01-01")),
                "`until` \"2027-01-01\" is before `from` 2027-02-01",
            ),
            (Schedule::delay(HOUR).and_then(|delay| delay.except(["2027-12-25"])), "a delay has no days"),
        ] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(fix), "{error}");
        }
        let many = (0..401).map(|day| (Date::constant(2027, 1, 1) + jiff::Span::new().days(day)).to_string());
        assert!(daily().except(many).unwrap_err().to_string().contains("400 is the most"));
    }

    #[test]
    fn the_words_name_a_few_days() {
        let days = (10..=17).map(|day| format!("2027-05-{day}"));
        let words = in_kyiv("0 3 * * *").except(days).unwrap().words();
        assert!(
            words.ends_with(
                ", not on 2027-05-10, 2027-05-11, 2027-05-12, 2027-05-13, 2027-05-14 and 3 more days"
            ),
            "{words}"
        );
    }
}
