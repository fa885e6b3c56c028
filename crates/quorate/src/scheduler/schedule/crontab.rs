//! The text of a cron line: fields to values, with errors that say what to write instead.

mod days;
mod error;
mod field;
#[cfg(test)]
mod tests;

pub use error::CronError;

use crate::plain::plain;
use crate::scheduler::schedule::{
    line::{Fields, Line},
    local::LocalTimes,
};
use days::Days;
use field::{DAY, Dialect, Field, HOUR, MINUTE, MONTH, SECOND, Wrong, YEAR};
use std::collections::BTreeSet;

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
    /// The lines whose union the text stands for.
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
        let clock = [self.values(&SECOND, second)?, self.values(&MINUTE, minute)?, self.values(&HOUR, hour)?];
        let days = self.days(day, weekday)?;
        let (months, years) = (self.values(&MONTH, month)?, self.values(&YEAR, year)?);
        let line = |days: Days| {
            let Days { days, weekdays, length } = days;
            let (clock, months, years) = (clock.clone(), months.clone(), years.clone());
            Line::new(&Fields { clock, days, months, weekdays, length, years })
        };
        Ok(LocalTimes { lines: days.into_iter().map(line).collect(), fixed })
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

    fn values(&self, field: &Field, text: &str) -> Result<BTreeSet<u32>, CronError> {
        self.dialect.values(field, text).map_err(|wrong| self.fail(field.name, wrong))
    }

    fn fail(&self, field: &'static str, Wrong(value, why): Wrong) -> CronError {
        CronError::Field { text: shown(self.text), field, value: shown(&value), why }
    }
}
