//! Describes a cron line in words, for people.

mod days;
mod numbers;
#[cfg(test)]
mod tests;

use super::{
    LineFields,
    field::{HOUR, MINUTE, MONTH, SECOND, YEAR},
};
use numbers::{Numbers, join, ordinal, title};
use std::collections::BTreeSet;

/// The largest number of times of a day that are listed one by one.
const TIMES_MAX: usize = 4;

/// Returns the meaning of a line, such as `at 03:00 from Monday to Friday`. Returns `None` if the line is
/// invalid.
pub(in crate::scheduler::schedule) fn words(text: &str) -> Option<String> {
    let fields = LineFields::split(text).ok()?;
    let values = |field, text| fields.dialect.values(field, text).ok();
    let [second, minute, hour] = fields.clock;
    let clock = ClockWords::of(&values(&SECOND, second)?, &values(&MINUTE, minute)?, &values(&HOUR, hour)?);
    let mut text = clock.text;
    match days::words(&fields)? {
        Some(days) if clock.is_list => text = format!("{text} {days}"),
        Some(days) => text = format!("{text}, {days}"),
        None if clock.is_list => text += " every day",
        None => {}
    }
    let months = values(&MONTH, fields.month)?;
    if months.len() < MONTH.size() {
        text = format!("{text}, {}", month_words(&months));
    }
    if fields.year != "*" {
        let years = values(&YEAR, fields.year)?;
        if years.len() < YEAR.size() {
            text = format!("{text}, {}", year_words(&years));
        }
    }
    Some(text)
}

fn month_words(months: &BTreeSet<u32>) -> String {
    let name = |month: u32| title(MONTH.names, month.saturating_sub(1));
    match Numbers::of(months) {
        Numbers::Range(first, last) => format!("from {} to {}", name(first), name(last)),
        // The months are listed by name, because names are easier to read than steps, and there are at most
        // twelve.
        _ => format!("in {}", join(months.iter().map(|month| name(*month)))),
    }
}

fn year_words(years: &BTreeSet<u32>) -> String {
    match Numbers::of(years) {
        Numbers::Range(first, last) => format!("from {first} to {last}"),
        Numbers::Steps { first, step, last } => {
            format!("in every {} year from {first} to {last}", ordinal(step))
        }
        other => format!("in {}", other.list()),
    }
}

/// The meaning of the seconds, minutes and hours of a line, in words.
struct ClockWords {
    text: String,
    /// True if the text lists times of a day.
    is_list: bool,
}

impl ClockWords {
    fn of(seconds: &BTreeSet<u32>, minutes: &BTreeSet<u32>, hours: &BTreeSet<u32>) -> Self {
        if seconds.len() * minutes.len() * hours.len() <= TIMES_MAX {
            let mut times = Vec::new();
            for hour in hours {
                for minute in minutes {
                    times.extend(seconds.iter().map(|second| time(*hour, *minute, *second)));
                }
            }
            return Self { text: format!("at {}", join(times)), is_list: true };
        }
        if let (Some(second), Some(minute)) = (only(seconds), only(minutes)) {
            return hourly(second, minute, hours);
        }
        Self { text: Self::parts(seconds, minutes, hours), is_list: false }
    }

    /// Describes each of the fields separately. The first is the seconds field, or the minutes field if the
    /// only second is 0.
    fn parts(seconds: &BTreeSet<u32>, minutes: &BTreeSet<u32>, hours: &BTreeSet<u32>) -> String {
        let mut text = String::new();
        if only(seconds) != Some(0) {
            text = shortest_unit(seconds, "second");
            if minutes.len() == MINUTE.size() {
                if text.starts_with("at ") {
                    text += " of every minute";
                }
            } else {
                text = format!("{text}, {}", minutes_around(minutes));
            }
        } else {
            text += &shortest_unit(minutes, "minute");
        }
        if hours.len() < HOUR.size() {
            return format!("{text}, {}", hours_around(hours));
        }
        // The text `at minute 5` alone does not say how often the job is due.
        let names_minutes = text.rsplit(", ").next().is_some_and(|part| part.contains("minute "))
            || text.starts_with("at minutes");
        if names_minutes && !text.ends_with("every minute") { text + " of every hour" } else { text }
    }
}

/// Describes a line that has one minute and one second, and several hours.
fn hourly(second: u32, minute: u32, hours: &BTreeSet<u32>) -> ClockWords {
    let at = |hour| time(hour, minute, second);
    let (text, is_list) = match Numbers::of(hours) {
        _ if hours.len() == HOUR.size() && second == 0 => {
            (format!("at minute {minute} of every hour"), false)
        }
        _ if hours.len() == HOUR.size() => {
            (format!("at minute {minute} and second {second} of every hour"), false)
        }
        Numbers::Range(first, last) => (format!("every hour from {} to {}", at(first), at(last)), false),
        Numbers::Steps { first, step, last } => {
            (format!("every {step} hours from {} to {}", at(first), at(last)), false)
        }
        Numbers::List(_) => (format!("at {}", join(hours.iter().map(|hour| at(*hour)))), true),
    };
    ClockWords { text, is_list }
}

/// Describes the values of the first described field, which is the seconds or the minutes.
fn shortest_unit(values: &BTreeSet<u32>, unit: &str) -> String {
    if values.len() == SECOND.size() {
        return format!("every {unit}");
    }
    match numbers::cycle(values, 60) {
        Some((0, step)) => return format!("every {step} {unit}s"),
        Some((first, step)) => return format!("every {step} {unit}s from {unit} {first}"),
        None => {}
    }
    match Numbers::of(values) {
        Numbers::Steps { first, step, last } => {
            format!("every {step} {unit}s from {unit} {first} to {unit} {last}")
        }
        Numbers::List(_) if values.len() == 1 => format!("at {unit} {}", Numbers::of(values).list()),
        other => format!("at {unit}s {}", other.list()),
    }
}

/// Describes the minutes in which the line is due, if the seconds are already described.
fn minutes_around(minutes: &BTreeSet<u32>) -> String {
    match Numbers::of(minutes) {
        Numbers::Steps { first, step, last } => {
            format!("in every {} minute from minute {first} to minute {last}", ordinal(step))
        }
        Numbers::List(_) if minutes.len() == 1 => format!("in minute {}", Numbers::of(minutes).list()),
        other => format!("in the minutes {}", other.list()),
    }
}

/// Describes the hours in which the line is due, if the minutes are already described.
fn hours_around(hours: &BTreeSet<u32>) -> String {
    match (Numbers::of(hours), only(hours)) {
        (_, Some(hour)) => format!("from {hour:02}:00 to {hour:02}:59"),
        (Numbers::Range(first, last), _) => format!("from {first:02}:00 to {last:02}:59"),
        (Numbers::Steps { first, step, last }, _) => {
            format!("in every {} hour from {first} to {last}", ordinal(step))
        }
        (list, _) => format!("in the hours {}", list.list()),
    }
}

fn only(values: &BTreeSet<u32>) -> Option<u32> {
    values.first().copied().filter(|_| values.len() == 1)
}

fn time(hour: u32, minute: u32, second: u32) -> String {
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}
