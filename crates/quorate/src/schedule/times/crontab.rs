//! The text of a cron line: fields to values, with errors that say what to write instead.

mod days;
mod error;
mod field;
#[cfg(test)]
mod tests;

pub use error::CronError;

use super::local::LocalTimes;
use crate::plain::plain;
use ::cron::TimeUnitSpec;
use days::Days;
use field::{DAY, Dialect, Field, HOUR, MINUTE, MONTH, SECOND, Wrong, YEAR};
use std::{collections::BTreeSet, str::FromStr};

/// The most bytes of a line that an error repeats.
const SHOWN_MAX: usize = 160;

/// Reads a line in either dialect, or an `@word`.
pub(super) fn read(text: &str) -> Result<LocalTimes, CronError> {
    if text.trim_start().starts_with('@') {
        return word(text.trim()).and_then(read);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    match *fields.as_slice() {
        [minute, hour, day, month, weekday] => {
            let reader = Reader { text, dialect: Dialect::Crontab };
            reader.line(["0", minute, hour], day, month, weekday, "*")
        }
        [second, minute, hour, day, month, weekday] => {
            let reader = Reader { text, dialect: Dialect::Seconds };
            reader.line([second, minute, hour], day, month, weekday, "*")
        }
        [second, minute, hour, day, month, weekday, year] => {
            let reader = Reader { text, dialect: Dialect::Seconds };
            reader.line([second, minute, hour], day, month, weekday, year)
        }
        _ => Err(CronError::Fields { text: shown(text), fields: fields.len(), hint: count_hint(&fields) }),
    }
}

/// Whether a line of six or seven fields is a fixed-time job.
pub(super) fn is_fixed(text: &str) -> bool {
    text.split_whitespace().take(3).all(|field| !field.starts_with('*'))
}

/// A line of the `cron` crate, which takes spaces within a list, with spaces between fields alone.
pub(super) fn tidied(text: &str) -> String {
    let mut tidy = String::new();
    for word in text.split_whitespace() {
        let joins = |c: char| matches!(c, ',' | '-' | '/');
        if !tidy.is_empty() && !tidy.ends_with(joins) && !word.starts_with(joins) {
            tidy.push(' ');
        }
        tidy.push_str(word);
    }
    tidy
}

/// A line of the `cron` crate, from its values.
pub(super) fn rewritten(line: &::cron::Schedule) -> String {
    fn text(field: &impl TimeUnitSpec) -> String {
        if field.is_all() { "*".to_owned() } else { list(field.iter()) }
    }
    let mut fields = vec![
        text(line.seconds()),
        text(line.minutes()),
        text(line.hours()),
        text(line.days_of_month()),
        text(line.months()),
        text(line.days_of_week()),
    ];
    if !line.years().is_all() {
        fields.push(text(line.years()));
    }
    fields.join(" ")
}

/// As much of what was written as an error repeats.
pub(super) fn shown(text: &str) -> String {
    plain(text, SHOWN_MAX)
}

fn count_hint(fields: &[&str]) -> &'static str {
    match fields {
        [] => "; an empty line has no ticks",
        // As a schedule of that kind is shown.
        ["every", ..] => "; for a fixed distance use `every` instead of a cron line",
        ["at", ..] => "; for one time use `at` instead of a cron line",
        ["delay", ..] => "; to wait after each end use `delay` instead of a cron line",
        [_, _, _, _, _, _, _, _, ..] => "; the command does not belong here",
        _ => "",
    }
}

fn word(text: &str) -> Result<&'static str, CronError> {
    let hint = match text {
        "@hourly" => return Ok("0 * * * *"),
        "@daily" | "@midnight" => return Ok("0 0 * * *"),
        "@weekly" => return Ok("0 0 * * 0"),
        "@monthly" => return Ok("0 0 1 * *"),
        "@yearly" | "@annually" => return Ok("0 0 1 1 *"),
        "@reboot" => ": several machines have no one start",
        _ if text.starts_with("@every") => "; for a fixed distance use `every` instead of a cron line",
        _ => "",
    };
    Err(CronError::Word { text: shown(text), hint })
}

struct Reader<'a> {
    text: &'a str,
    dialect: Dialect,
}

impl Reader<'_> {
    /// Translated into lines of the `cron` crate, as plain lists: their union.
    fn line(
        &self,
        clock: [&str; 3],
        day: &str,
        month: &str,
        weekday: &str,
        year: &str,
    ) -> Result<LocalTimes, CronError> {
        let [second, minute, hour] = clock;
        let fixed = match self.dialect {
            Dialect::Crontab => [minute, hour].iter().all(|field| !field.starts_with('*')),
            Dialect::Seconds => clock.iter().all(|field| !field.starts_with('*')),
        };
        let clock =
            [self.list(&SECOND, second)?, self.list(&MINUTE, minute)?, self.list(&HOUR, hour)?].join(" ");
        let days = self.days(day, weekday)?;
        let (months, years) = (self.values(&MONTH, month)?, self.values(&YEAR, year)?);
        let mut lines = Vec::new();
        for days in days {
            let (months, years) = days::of_length(days.length, &months, &years);
            if !months.is_empty() && !years.is_empty() {
                let days = [list(days.days), list(months), list(days.weekdays), list(years)].join(" ");
                lines.push(self.parsed(&format!("{clock} {days}"))?);
            }
        }
        Ok(LocalTimes { lines, fixed })
    }

    /// The days that meet both fields; in crontab either, unless one of them begins with `*`. (Cronie looks at
    /// the first character alone: `*/2` counts as a star.)
    fn days(&self, day: &str, weekday: &str) -> Result<BTreeSet<Days>, CronError> {
        let of_month = self.dialect.days_of_month(day).map_err(|wrong| self.fail(DAY.name, wrong))?;
        let of_week = self.dialect.days_of_week(weekday).map_err(|wrong| self.fail("day-of-week", wrong))?;
        if self.dialect == Dialect::Crontab && !day.starts_with('*') && !weekday.starts_with('*') {
            return Ok(of_month.into_iter().chain(of_week).collect());
        }
        Ok(of_month.iter().flat_map(|one| of_week.iter().filter_map(|other| one.and(other))).collect())
    }

    fn parsed(&self, line: &str) -> Result<::cron::Schedule, CronError> {
        ::cron::Schedule::from_str(line).map_err(|error| CronError::Line {
            text: shown(self.text),
            why: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    fn list(&self, field: &Field, text: &str) -> Result<String, CronError> {
        Ok(list(self.values(field, text)?))
    }

    fn values(&self, field: &Field, text: &str) -> Result<BTreeSet<u32>, CronError> {
        self.dialect.values(field, text).map_err(|wrong| self.fail(field.name, wrong))
    }

    fn fail(&self, field: &'static str, Wrong(value, why): Wrong) -> CronError {
        CronError::Field { text: shown(self.text), field, value: shown(&value), why }
    }
}

fn list(values: impl IntoIterator<Item = u32>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}
