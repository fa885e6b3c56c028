//! Parses one field of a cron line into its values.

use crate::scheduler::schedule::{crontab::days::Days, error::shown};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Crontab,
    Seconds,
}

/// The properties of one field of a cron line: its limits, its names, and its texts for errors.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) least: u32,
    pub(super) most: u32,
    /// The full names of the values, in order from `least`. A line may use the first three letters of a name.
    pub(super) names: &'static [&'static str],
    /// The text at the end of the error for a number that is outside the limits.
    hint: &'static str,
    /// The special forms that the field accepts, such as `L`, as a text for errors.
    also: &'static str,
}

pub(super) const SECOND: Field = Field { name: "second", least: 0, most: 59, names: &[], hint: "", also: "" };
pub(super) const MINUTE: Field = Field { name: "minute", ..SECOND };
pub(super) const HOUR: Field = Field { name: "hour", most: 23, ..SECOND };
pub(super) const DAY: Field =
    Field { name: "day-of-month", least: 1, most: 31, also: ", `L`, `L-3`, `15W`, `LW`", ..SECOND };
pub(super) const MONTH: Field = Field { name: "month", least: 1, most: 12, names: &MONTHS, ..SECOND };
pub(super) const YEAR: Field = Field { name: "year", least: 1970, most: 9999, ..SECOND };
pub(super) const CRONTAB_WEEKDAY: Field =
    Field { name: "day-of-week", most: 7, names: &WEEKDAYS, also: ", `fri#2`, `friL`", ..SECOND };
pub(super) const SECONDS_WEEKDAY: Field = Field {
    least: 1,
    hint: "; with 6 or 7 fields Sunday is 1 and Saturday 7 (write `SUN` to be clear)",
    ..CRONTAB_WEEKDAY
};
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

impl Field {
    pub(super) const fn size(&self) -> usize {
        (self.most - self.least) as usize + 1
    }
}

/// An invalid part of a field.
#[derive(Debug)]
pub(super) struct InvalidItem {
    pub(super) value: String,
    /// The reason why the part is invalid, and the fix.
    pub(super) reason: String,
}

impl InvalidItem {
    fn new(value: &str, reason: impl Into<String>) -> Self {
        Self { value: value.to_owned(), reason: reason.into() }
    }
}

impl Dialect {
    pub(super) fn values(self, field: &Field, text: &str) -> Result<BTreeSet<u32>, InvalidItem> {
        let mut values = BTreeSet::new();
        for item in text.split(',') {
            self.item(field, item, &mut values)?;
        }
        Ok(values)
    }

    pub(super) fn days_of_month(self, text: &str) -> Result<Vec<Days>, InvalidItem> {
        let mut plain = BTreeSet::new();
        let mut days = Vec::new();
        for item in text.split(',') {
            match self.special_day(item)? {
                Some(special) => days.extend(special),
                None => self.item(&DAY, item, &mut plain)?,
            }
        }
        days.extend((!plain.is_empty()).then(|| Days::of_month(plain)));
        Ok(days)
    }

    pub(super) fn days_of_week(self, text: &str) -> Result<Vec<Days>, InvalidItem> {
        let mut plain = BTreeSet::new();
        let mut days = Vec::new();
        for item in text.split(',') {
            match self.special_weekday(item)? {
                Some(special) => days.extend(special),
                None => plain.extend(self.weekdays(item)?),
            }
        }
        days.extend((!plain.is_empty()).then(|| Days::of_week(plain)));
        Ok(days)
    }

    /// Returns the days of the week of one item of a day-of-week field. The item is not a special form. Sunday
    /// is 1.
    pub(super) fn weekdays(self, item: &str) -> Result<BTreeSet<u32>, InvalidItem> {
        let mut days = BTreeSet::new();
        self.item(self.weekday(), item, &mut days)?;
        Ok(days.into_iter().map(|day| self.counted_from_sunday(day)).collect())
    }

    /// Returns the day of the week for a number or a name. Sunday is 1.
    pub(super) fn weekday_of(self, text: &str) -> Option<u32> {
        self.value(self.weekday(), text).ok().map(|day| self.counted_from_sunday(day))
    }

    /// Parses an item of the forms `L`, `L-3`, `LW` and `15W`. Returns `None` for any other item.
    pub(super) fn special_day(self, item: &str) -> Result<Option<Vec<Days>>, InvalidItem> {
        let upper = item.to_ascii_uppercase();
        if upper == "L" {
            return Ok(Some(Days::before_last(0)));
        }
        if matches!(upper.as_str(), "LW" | "WL") {
            return Ok(Some(Days::last_working()));
        }
        if let Some(before) = upper.strip_prefix("L-") {
            return match whole(before) {
                Some(days @ 1..=30) => Ok(Some(Days::before_last(days))),
                _ => Err(InvalidItem::new(item, "is no day before the last; write `L-1` to `L-30`")),
            };
        }
        match upper.strip_suffix('W') {
            Some(day) => match whole(day) {
                Some(day @ 1..=31) => Ok(Some(Days::nearest_working(day))),
                _ => Err(InvalidItem::new(
                    item,
                    "is no day's nearest weekday; write `1W` to `31W`, or `LW` for the month's last",
                )),
            },
            None => Ok(None),
        }
    }

    /// Parses an item of the forms `fri#2` and `friL`. Returns `None` for any other item.
    pub(super) fn special_weekday(self, item: &str) -> Result<Option<Vec<Days>>, InvalidItem> {
        let field = self.weekday();
        if let Some((day, nth)) = item.split_once('#') {
            let weekday = self.counted_from_sunday(self.value(field, day)?);
            return match whole(nth) {
                Some(nth @ 1..=5) => Ok(Some(vec![Days::nth(weekday, nth)])),
                _ => Err(InvalidItem::new(
                    item,
                    format!(
                        "counts to {}; write `{day}#1` to `{day}#5`, or `{day}L` for the last",
                        shown(nth)
                    ),
                )),
            };
        }
        if item.eq_ignore_ascii_case("L") {
            let reason =
                "names no day; write `friL` for the last Friday of the month, or `sat` for each Saturday";
            return Err(InvalidItem::new(item, reason));
        }
        match item.strip_suffix(['L', 'l']) {
            Some(day) => Ok(Some(Days::last(self.counted_from_sunday(self.value(field, day)?)))),
            None => Ok(None),
        }
    }

    /// Adds the values of one item of a list: `*`, a value or a range, each possibly with a step.
    fn item(self, field: &Field, item: &str, values: &mut BTreeSet<u32>) -> Result<(), InvalidItem> {
        let invalid = |reason: &str| InvalidItem::new(item, reason);
        if item.is_empty() {
            return Err(invalid("is an empty item; remove the extra comma"));
        }
        let (span, step) = match item.split_once('/') {
            Some((span, step)) => (span, Some(self.step(field, step)?)),
            None => (item, None),
        };
        let (first, last) = match span.split_once('-') {
            _ if span == "*" => (field.least, field.most),
            _ if span == "?" && self.takes_any(field) => (field.least, field.most),
            Some((first, last)) => self.range(field, span, first, last)?,
            None => {
                let value = self.value(field, span)?;
                match step {
                    None => (value, value),
                    Some(_) if self == Self::Seconds => (value, field.most),
                    Some(step) => {
                        return Err(invalid(&format!(
                            "has a step without a range; write `{value}-{}/{step}`, or `*/{step}`",
                            field.most
                        )));
                    }
                }
            }
        };
        values.extend((first..=last).step_by(usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX)));
        Ok(())
    }

    const fn weekday(self) -> &'static Field {
        match self {
            Self::Crontab => &CRONTAB_WEEKDAY,
            Self::Seconds => &SECONDS_WEEKDAY,
        }
    }

    /// Returns a day of the week in the numbering of the `cron` crate, where Sunday is 1.
    const fn counted_from_sunday(self, day: u32) -> u32 {
        match self {
            Self::Crontab => day % 7 + 1,
            Self::Seconds => day,
        }
    }

    fn takes_any(self, field: &Field) -> bool {
        self == Self::Seconds && matches!(field.name, "day-of-month" | "day-of-week")
    }

    fn step(self, field: &Field, step: &str) -> Result<u32, InvalidItem> {
        match whole(step) {
            Some(number) if (1..=field.most).contains(&number) => Ok(number),
            _ => Err(InvalidItem::new(
                step,
                format!("is no step; write a whole number from 1 to {}", field.most),
            )),
        }
    }

    fn range(self, field: &Field, span: &str, first: &str, last: &str) -> Result<(u32, u32), InvalidItem> {
        let from = self.value(field, first)?;
        let mut to = self.value(field, last)?;
        let by_name = last.starts_with(|c: char| c.is_ascii_alphabetic());
        if self == Self::Crontab && field.most == 7 && by_name && to == 0 && from > 0 {
            to = 7; // `fri-sun`: a Sunday that ends a week.
        }
        if from > to {
            let (least, most) = (field.least, field.most);
            let reason = shown(&format!("runs backwards; write `{first}-{most},{least}-{last}`"));
            return Err(InvalidItem::new(span, reason));
        }
        Ok((from, to))
    }

    fn value(self, field: &Field, text: &str) -> Result<u32, InvalidItem> {
        let Field { least, most, names, hint, .. } = field;
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return match whole(text) {
                Some(value) if (*least..=*most).contains(&value) => Ok(value),
                _ => Err(InvalidItem::new(text, format!("is not within {least}-{most}{hint}"))),
            };
        }
        let lower = text.to_ascii_lowercase();
        let named = |name: &&str| lower.len() >= 3 && name.starts_with(&lower);
        match names.iter().position(named).and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(least + at),
            None => Err(InvalidItem::new(text, self.unreadable(field))),
        }
    }

    fn unreadable(self, field: &Field) -> String {
        let Field { least, most, names, also, .. } = field;
        let name = match names.first() {
            Some(first) => format!(" or a name such as `{}`", &first[..3]),
            None => String::new(),
        };
        let read = match self {
            Self::Crontab => "",
            Self::Seconds => "; with 6 or 7 fields the first is the second, and there is no user or command",
        };
        format!(
            "cannot be read; write a number within {least}-{most}{name}, `a-b`, `*`, `*/n`{also}, or a list{read}"
        )
    }
}

/// Parses a number that consists of digits only, without a sign.
fn whole(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
