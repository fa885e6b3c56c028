//! The day fields of a line in words.

use super::numbers::{Numbers, join, ordinal, title};
use crate::scheduler::schedule::crontab::{
    LineFields,
    field::{CRONTAB_WEEKDAY, DAY, Dialect},
};
use std::collections::BTreeSet;

const NTH: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

/// Returns the days of the line. Returns `Some(None)` if the line is due on every day.
pub(super) fn words(fields: &LineFields<'_>) -> Option<Option<String>> {
    let month = days_of_month(fields.dialect, fields.day)?;
    let week = days_of_week(fields.dialect, fields.weekday)?;
    Some(match (month, week) {
        (Some(month), Some(week)) if fields.either_day() => Some(format!("{month} and also {week}")),
        (Some(month), Some(week)) => Some(format!("{month}, but only {week}")),
        (None, _) | (_, None) if fields.either_day() => None,
        (month, week) => month.or(week),
    })
}

/// Returns the days of a day-of-month field. Returns `Some(None)` if every day matches.
fn days_of_month(dialect: Dialect, text: &str) -> Option<Option<String>> {
    let (mut numbers, mut parts) = (BTreeSet::new(), Vec::new());
    for item in text.split(',') {
        match dialect.special_day(item).ok()? {
            Some(_) => parts.push(special_day(&item.to_ascii_uppercase())),
            None => numbers.extend(dialect.values(&DAY, item).ok()?),
        }
    }
    if numbers.len() == DAY.size() {
        return Some(None);
    }
    if !numbers.is_empty() {
        parts.insert(0, numbered_days(&numbers));
    }
    Some(Some(format!("on {} of the month", join(parts))))
}

fn numbered_days(days: &BTreeSet<u32>) -> String {
    match Numbers::of(days) {
        Numbers::Steps { first, step, last } => {
            format!("every {} day from day {first} to day {last}", ordinal(step))
        }
        list if days.len() == 1 => format!("day {}", list.list()),
        list => format!("days {}", list.list()),
    }
}

/// Describes an item of the forms `L`, `L-3`, `LW` and `15W`. The item is in upper case.
fn special_day(item: &str) -> String {
    if let Some(before) = item.strip_prefix("L-") {
        let days = if before == "1" { "day" } else { "days" };
        return format!("the day {before} {days} before the last day");
    }
    match item {
        "L" => "the last day".to_owned(),
        "LW" | "WL" => "the last working day (Monday to Friday)".to_owned(),
        _ => format!("the working day (Monday to Friday) nearest to day {}", item.trim_end_matches('W')),
    }
}

/// Returns the days of a day-of-week field. Returns `Some(None)` if every day matches.
fn days_of_week(dialect: Dialect, text: &str) -> Option<Option<String>> {
    // The days of the week, as numbers. Monday is 0.
    let (mut days, mut parts) = (BTreeSet::new(), Vec::new());
    for item in text.split(',') {
        let day = |name: &str| Some(from_monday(dialect.weekday_of(name)?));
        match dialect.special_weekday(item).ok()? {
            None => days.extend(dialect.weekdays(item).ok()?.into_iter().map(from_monday)),
            Some(_) => parts.push(match item.split_once('#') {
                Some((name, nth)) => {
                    let nth = nth.parse::<usize>().ok()?.checked_sub(1)?;
                    format!("on the {} {} of the month", NTH.get(nth)?, name_of(day(name)?))
                }
                None => {
                    let name = item.trim_end_matches(['L', 'l']);
                    format!("on the last {} of the month", name_of(day(name)?))
                }
            }),
        }
    }
    if days.len() == 7 {
        return Some(None);
    }
    if !days.is_empty() {
        parts.insert(0, plain_weekdays(&days));
    }
    Some(Some(join(parts)))
}

fn plain_weekdays(days: &BTreeSet<u32>) -> String {
    match Numbers::of(days) {
        Numbers::Range(first, last) => format!("from {} to {}", name_of(first), name_of(last)),
        _ => format!("on {}", join(days.iter().map(|day| name_of(*day)))),
    }
}

/// Converts a day of the week from the numbering in which Sunday is 1 to the one in which Monday is 0.
const fn from_monday(day: u32) -> u32 {
    (day + 5) % 7
}

/// Returns the name of the day `day` days after Monday.
fn name_of(day: u32) -> String {
    title(CRONTAB_WEEKDAY.names, (day + 1) % 7)
}
