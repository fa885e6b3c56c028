//! Parses the text of a cron line into the values of its fields. Errors include the fix.

mod days;
mod field;
#[cfg(test)]
mod tests;
mod words;

use crate::scheduler::schedule::{
    error::{InvalidSchedule, shown},
    line::{Fields, Line, Years},
    local::LocalTimes,
};
use days::Days;
use field::{DAY, Dialect, Field, HOUR, InvalidItem, MINUTE, MONTH, SECOND, YEAR};
use std::collections::BTreeSet;

pub(super) use words::words;

/// Reads a line in either of the two dialects, or an `@word`.
pub(super) fn read(text: &str) -> Result<LocalTimes, InvalidSchedule> {
    let fields = LineFields::split(text)?;
    Reader { text, dialect: fields.dialect }.line(&fields)
}

/// The fields of a line. A field that the dialect does not have contains its default.
struct LineFields<'a> {
    dialect: Dialect,
    /// The seconds, the minutes and the hours.
    clock: [&'a str; 3],
    day: &'a str,
    month: &'a str,
    weekday: &'a str,
    year: &'a str,
}

impl<'a> LineFields<'a> {
    /// Splits a line, or the line that an `@word` abbreviates.
    fn split(text: &'a str) -> Result<Self, InvalidSchedule> {
        let line = if text.trim_start().starts_with('@') { word(text.trim())? } else { text };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let has_zone = fields.first().is_some_and(|first| is_zone(first));
        let (dialect, clock, [day, month, weekday], year) = match *fields.as_slice() {
            [minute, hour, day, month, weekday] if !has_zone => {
                (Dialect::Crontab, ["0", minute, hour], [day, month, weekday], "*")
            }
            [second, minute, hour, day, month, weekday] if !has_zone => {
                (Dialect::Seconds, [second, minute, hour], [day, month, weekday], "*")
            }
            [second, minute, hour, day, month, weekday, year] if !has_zone => {
                (Dialect::Seconds, [second, minute, hour], [day, month, weekday], year)
            }
            _ => {
                return Err(InvalidSchedule::Fields {
                    text: shown(text),
                    fields: fields.len(),
                    hint: count_hint(&fields),
                });
            }
        };
        Ok(Self { dialect, clock, day, month, weekday, year })
    }

    /// Returns whether a day matches the line if it matches either day field. Otherwise a day must match both
    /// fields. As in cronie, only the first character of a field is examined, so `*/2` is treated like `*`.
    fn either_day(&self) -> bool {
        self.dialect == Dialect::Crontab && !self.day.starts_with('*') && !self.weekday.starts_with('*')
    }
}

/// Returns whether the first word of a line names a zone, as other programs write it.
fn is_zone(word: &str) -> bool {
    word.starts_with("CRON_TZ=") || word.starts_with("TZ=")
}

fn count_hint(fields: &[&str]) -> &'static str {
    match fields {
        [] => "; an empty line has no ticks",
        // A text that begins with one of these words is probably another kind of schedule. The hint says how to
        // write that kind.
        ["every", ..] => "; for a fixed period use `every` instead of a cron line",
        ["at", ..] => "; for one time use `at` instead of a cron line",
        [first, ..] if is_zone(first) => "; the zone does not belong here, set `zone` instead",
        ["delay", ..] => "; to wait after each end use `delay` instead of a cron line",
        [_, _, _, _, _, _, _, _, ..] => "; the command does not belong here",
        _ => "",
    }
}

fn word(text: &str) -> Result<&'static str, InvalidSchedule> {
    let hint = match text {
        "@hourly" => return Ok("0 * * * *"),
        "@daily" | "@midnight" => return Ok("0 0 * * *"),
        "@weekly" => return Ok("0 0 * * 0"),
        "@monthly" => return Ok("0 0 1 * *"),
        "@yearly" | "@annually" => return Ok("0 0 1 1 *"),
        "@reboot" => ": several machines have no common start",
        _ if text.starts_with("@every") => "; for a fixed period use `every` instead of a cron line",
        _ => "",
    };
    Err(InvalidSchedule::Word { text: shown(text), hint })
}

struct Reader<'a> {
    text: &'a str,
    dialect: Dialect,
}

impl Reader<'_> {
    /// Returns the lines whose times together are the times of the cron line.
    fn line(&self, fields: &LineFields<'_>) -> Result<LocalTimes, InvalidSchedule> {
        let [second, minute, hour] = fields.clock;
        let fixed = match self.dialect {
            Dialect::Crontab => [minute, hour].iter().all(|field| !field.starts_with('*')),
            Dialect::Seconds => fields.clock.iter().all(|field| !field.starts_with('*')),
        };
        let clock = [self.values(&SECOND, second)?, self.values(&MINUTE, minute)?, self.values(&HOUR, hour)?];
        let days = self.days(fields)?;
        let months = self.values(&MONTH, fields.month)?;
        let years = match fields.year {
            "*" => Years::All,
            year => Years::of(&self.values(&YEAR, year)?),
        };
        let line = |days: Days| {
            let Days { days, weekdays, length } = days;
            let (clock, months, years) = (clock.clone(), months.clone(), years.clone());
            Line::new(&Fields { clock, days, months, weekdays, length, years })
        };
        Ok(LocalTimes { lines: days.into_iter().map(line).collect(), fixed })
    }

    /// Returns the days that match the two day fields, as [`LineFields::either_day`] requires.
    fn days(&self, fields: &LineFields<'_>) -> Result<BTreeSet<Days>, InvalidSchedule> {
        let of_month = self.dialect.days_of_month(fields.day);
        let of_month = of_month.map_err(|invalid| self.fail(DAY.name, invalid))?;
        let of_week = self.dialect.days_of_week(fields.weekday);
        let of_week = of_week.map_err(|invalid| self.fail("day-of-week", invalid))?;
        if fields.either_day() {
            return Ok(of_month.into_iter().chain(of_week).collect());
        }
        Ok(of_month.iter().flat_map(|one| of_week.iter().filter_map(|other| one.and(other))).collect())
    }

    fn values(&self, field: &Field, text: &str) -> Result<BTreeSet<u32>, InvalidSchedule> {
        self.dialect.values(field, text).map_err(|invalid| self.fail(field.name, invalid))
    }

    fn fail(&self, field: &'static str, InvalidItem { value, reason }: InvalidItem) -> InvalidSchedule {
        InvalidSchedule::Field { text: shown(self.text), field, value: shown(&value), reason }
    }
}
