//! A cron line as sets of values, and the search for the local times that match the line. All functions are
//! pure.

use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};
use std::collections::BTreeSet;

/// The first and the last year that a line can contain. The calendar ends with the same last year.
pub(super) const YEARS: std::ops::RangeInclusive<u32> = 1970..=9999;
/// The number of years after which the dates of the calendar fall on the same weekdays again.
const CYCLE: i16 = 400;
const LAST_YEAR: i16 = 9999;

/// The values of each field of a line, in a form in which the search is fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    seconds: Values,
    minutes: Values,
    hours: Values,
    days: Values,
    months: Values,
    /// The days of the week. Sunday is 1.
    weekdays: Values,
    /// If this is set, only months with this number of days match.
    length: Option<i8>,
    years: Years,
}

/// The values of each field of a line, as sets of numbers.
#[derive(Debug)]
pub(super) struct Fields {
    /// The values of the seconds, the minutes and the hours.
    pub(super) clock: [BTreeSet<u32>; 3],
    pub(super) days: BTreeSet<u32>,
    pub(super) months: BTreeSet<u32>,
    /// The days of the week. Sunday is 1.
    pub(super) weekdays: BTreeSet<u32>,
    /// If this is set, only months with this number of days match.
    pub(super) length: Option<u32>,
    pub(super) years: Years,
}

impl Line {
    /// Creates a line with these values. A number that is not possible in its field matches no time.
    pub(super) fn new(fields: &Fields) -> Self {
        let [seconds, minutes, hours] = &fields.clock;
        Self {
            seconds: Values::of(seconds),
            minutes: Values::of(minutes),
            hours: Values::of(hours),
            days: Values::of(&fields.days),
            months: Values::of(&fields.months),
            weekdays: Values::of(&fields.weekdays),
            length: fields.length.map(|length| i8::try_from(length).unwrap_or(0)),
            years: fields.years.clone(),
        }
    }

    /// Returns the first local time later than `local`. Returns `None` if there is no such time up to the year
    /// 9999. Local times are in seconds since the epoch, as if local time were UTC.
    pub(super) fn next(&self, local: i64) -> Option<i64> {
        let from = TimeZone::UTC.to_datetime(Timestamp::from_second(local.checked_add(1)?).ok()?);
        let found = self.on(from).or_else(|| {
            let date = self.date_from(from.date().tomorrow().ok()?)?;
            self.on(DateTime::from_parts(date, Time::midnight()))
        })?;
        Some(TimeZone::UTC.to_timestamp(found).ok()?.as_second())
    }

    /// Returns the first matching time at or after `from`, on the date of `from`.
    fn on(&self, from: DateTime) -> Option<DateTime> {
        let date = from.date();
        let matches = self.date_from(date) == Some(date);
        matches.then(|| self.time_from(from.time())).flatten().map(|time| DateTime::from_parts(date, time))
    }

    /// Returns the first matching time of a day, at or after `from`.
    fn time_from(&self, from: Time) -> Option<Time> {
        let (hour, minute) = (from.hour(), from.minute());
        let at = |hour, minute, second| Time::new(hour, minute, second, 0).ok();
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.not_below(from.second())
            {
                return at(hour, minute, second);
            }
            if let Some(minute) = self.minutes.not_below(minute + 1) {
                return at(hour, minute, self.seconds.not_below(0)?);
            }
        }
        at(self.hours.not_below(hour + 1)?, self.minutes.not_below(0)?, self.seconds.not_below(0)?)
    }

    /// Returns the first matching date, on or after `from`.
    fn date_from(&self, from: Date) -> Option<Date> {
        let last = self.years.last(from.year());
        let (mut month, mut day) = (from.month(), from.day());
        let mut year = from.year();
        loop {
            let listed = self.years.not_below(year).filter(|listed| *listed <= last)?;
            if listed > year {
                (year, month, day) = (listed, 1, 1);
            }
            while let Some(found) = self.months.not_below(month) {
                let first = Date::new(year, found, 1).ok()?;
                if let Some(date) = self.day_from(first, if found == month { day } else { 1 }) {
                    return Some(date);
                }
                (month, day) = (found + 1, 1);
            }
            (year, month, day) = (year + 1, 1, 1);
        }
    }

    /// Returns the first matching day, on or after `day`, in the month that begins on `first`.
    fn day_from(&self, first: Date, day: i8) -> Option<Date> {
        let length = first.days_in_month();
        if self.length.is_some_and(|only| only != length) {
            return None;
        }
        let begins_on = first.weekday().to_sunday_zero_offset();
        let weekday = |day: i8| (begins_on + day - 1) % 7 + 1;
        let mut day = day;
        loop {
            day = self.days.not_below(day).filter(|day| *day <= length)?;
            if self.weekdays.has(weekday(day)) {
                return Date::new(first.year(), first.month(), day).ok();
            }
            day += 1;
        }
    }
}

/// A set of numbers below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values(u64);

impl Values {
    fn of(numbers: &BTreeSet<u32>) -> Self {
        Self(numbers.iter().fold(0, |bits, number| bits | 1_u64.checked_shl(*number).unwrap_or(0)))
    }

    fn has(self, number: i8) -> bool {
        self.not_below(number) == Some(number)
    }

    fn not_below(self, least: i8) -> Option<i8> {
        let above = self.0.checked_shr(u32::try_from(least).ok()?)?;
        let by = i8::try_from(above.trailing_zeros()).ok()?;
        (above != 0).then_some(least + by)
    }
}

/// The years of a line: all years, or a list of years.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Years {
    All,
    Listed(BTreeSet<i16>),
}

impl Years {
    /// Returns the years with these numbers. For a field that has all years, [`Years::All`] is much faster.
    pub(super) fn of(numbers: &BTreeSet<u32>) -> Self {
        if numbers.iter().copied().eq(YEARS) {
            return Self::All;
        }
        Self::Listed(numbers.iter().filter_map(|year| i16::try_from(*year).ok()).collect())
    }

    fn not_below(&self, least: i16) -> Option<i16> {
        match self {
            Self::All => (least <= LAST_YEAR).then_some(least),
            Self::Listed(years) => years.range(least..).next().copied(),
        }
    }

    /// Returns the last year that a search from the year `from` must examine. If no date matches up to that
    /// year, no later date matches either.
    fn last(&self, from: i16) -> i16 {
        match self {
            Self::All => from.saturating_add(CYCLE).min(LAST_YEAR),
            Self::Listed(_) => LAST_YEAR,
        }
    }
}
