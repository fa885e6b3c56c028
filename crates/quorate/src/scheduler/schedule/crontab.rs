//! Parses the text of a cron line into the values of its fields. Errors include the fix.

mod days;
mod field;
#[cfg(test)]
mod tests;

use crate::scheduler::schedule::{
    error::{InvalidSchedule, shown},
    line::{Fields, Line},
    local::LocalTimes,
};
use days::Days;
use field::{DAY, Dialect, Field, HOUR, InvalidItem, MINUTE, MONTH, SECOND, YEAR};
use std::collections::BTreeSet;

/// Reads a cron line in either of the two dialects, or a shorthand such as `@daily`.
pub(super) fn read(text: &str) -> Result<LocalTimes, InvalidSchedule> {
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
        _ => Err(InvalidSchedule::Fields {
            text: shown(text),
            fields: fields.len(),
            hint: count_hint(&fields),
        }),
    }
}

fn count_hint(fields: &[&str]) -> &'static str {
    match fields {
        [] => "; an empty line has no ticks",
        // A text that begins with one of these words is meant as another kind of schedule, so the hint names
        // that kind.
        ["every", ..] => "; for a fixed period use `every` instead of a cron line",
        ["at", ..] => "; for one time use `at` instead of a cron line",
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
    fn line(
        &self,
        clock: [&str; 3],
        day: &str,
        month: &str,
        weekday: &str,
        year: &str,
    ) -> Result<LocalTimes, InvalidSchedule> {
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

    /// Returns the days that match both day fields. In the crontab dialect, returns the days that match either
    /// field, unless one of the fields begins with `*`. Like cronie, this looks only at the first character, so
    /// `*/2` counts as `*`.
    fn days(&self, day: &str, weekday: &str) -> Result<BTreeSet<Days>, InvalidSchedule> {
        let of_month = self.dialect.days_of_month(day).map_err(|invalid| self.fail(DAY.name, invalid))?;
        let of_week =
            self.dialect.days_of_week(weekday).map_err(|invalid| self.fail("day-of-week", invalid))?;
        if self.dialect == Dialect::Crontab && !day.starts_with('*') && !weekday.starts_with('*') {
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
