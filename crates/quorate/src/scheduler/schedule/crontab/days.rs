//! Sets of days of the calendar. A set is given by the days of the month, the weekdays, and the length of the
//! month. The forms `L`, `W` and `#` of a cron line are unions of such sets.

use std::collections::BTreeSet;

/// Monday, in the numbering of the `cron` crate, where Sunday is 1.
const MONDAY: u32 = 2;
const FRIDAY: u32 = 6;
/// The possible lengths of a month.
const LENGTHS: std::ops::RangeInclusive<u32> = 28..=31;

/// A set of days. A day is in the set if it meets all three conditions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Days {
    /// The days of the month.
    pub(super) days: BTreeSet<u32>,
    /// The days of the week. Sunday is 1.
    pub(super) weekdays: BTreeSet<u32>,
    /// If this is set, only months with this number of days match.
    pub(super) length: Option<u32>,
}

impl Days {
    pub(super) fn of_month(days: BTreeSet<u32>) -> Self {
        Self { days, weekdays: (1..=7).collect(), length: None }
    }

    pub(super) fn of_week(weekdays: BTreeSet<u32>) -> Self {
        Self { days: (1..=31).collect(), weekdays, length: None }
    }

    /// Returns the days of `L` and `L-3`: the day that comes `days` days before the last day of the month.
    pub(super) fn before_last(days: u32) -> Vec<Self> {
        let nth = |length: u32| length.checked_sub(days).filter(|day| *day > 0).map(|day| (day, length));
        LENGTHS.filter_map(nth).map(|(day, length)| Self::one(day, 1..=7, Some(length))).collect()
    }

    /// Returns the days of a form such as `15W`: of the days from Monday to Friday in the same month, the one
    /// that is nearest to the day `day`.
    pub(super) fn nearest_working(day: u32) -> Vec<Self> {
        let lengths = if day < 28 { vec![None] } else { LENGTHS.map(Some).collect() };
        let fits = |length: &Option<u32>| length.is_none_or(|length| day <= length);
        lengths.into_iter().filter(fits).flat_map(|length| Self::working_near(day, length)).collect()
    }

    /// Returns the days of `LW`: the last day of the month that is from Monday to Friday.
    pub(super) fn last_working() -> Vec<Self> {
        LENGTHS.flat_map(|length| Self::working_near(length, Some(length))).collect()
    }

    /// Returns the days of `fri#2`: the `nth` day of the month that falls on `weekday`.
    pub(super) fn nth(weekday: u32, nth: u32) -> Self {
        let days = (nth * 7 - 6..=(nth * 7).min(31)).collect();
        Self { days, weekdays: BTreeSet::from([weekday]), length: None }
    }

    /// Returns the days of `friL`: the last day of the month that falls on `weekday`.
    pub(super) fn last(weekday: u32) -> Vec<Self> {
        let of = |length| Self {
            days: (length - 6..=length).collect(),
            ..Self::one(1, weekday..=weekday, Some(length))
        };
        LENGTHS.map(of).collect()
    }

    /// Returns the days that are in both sets, or `None` if there are none.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let length = match (self.length, other.length) {
            (Some(one), Some(another)) if one != another => return None,
            (one, another) => one.or(another),
        };
        let both =
            Self { days: &self.days & &other.days, weekdays: &self.weekdays & &other.weekdays, length };
        (!both.days.is_empty() && !both.weekdays.is_empty()).then_some(both)
    }

    fn one(day: u32, weekdays: std::ops::RangeInclusive<u32>, length: Option<u32>) -> Self {
        Self { days: BTreeSet::from([day]), weekdays: weekdays.collect(), length }
    }

    /// Returns the day `day` of the month if it is a working day (Monday to Friday), and otherwise the nearest
    /// working day. If the nearest working day is in another month, returns the working day on the other side of
    /// the weekend.
    fn working_near(day: u32, length: Option<u32>) -> [Self; 3] {
        let saturday = if day > 1 { (day - 1, FRIDAY) } else { (day + 2, MONDAY) };
        let sunday = if length == Some(day) { (day - 2, FRIDAY) } else { (day + 1, MONDAY) };
        [
            Self::one(day, MONDAY..=FRIDAY, length),
            Self::one(saturday.0, saturday.1..=saturday.1, length),
            Self::one(sunday.0, sunday.1..=sunday.1, length),
        ]
    }
}
