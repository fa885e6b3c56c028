//! The text of a cron line: fields to values, with errors that say what to write instead.

use super::{ZoneError, local::LocalTimes};
use crate::plain::plain;
use std::{collections::BTreeSet, str::FromStr};

/// The most bytes of a line that an error repeats.
const SHOWN_MAX: usize = 160;

/// A cron line that cannot be used, why, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The number of fields fits neither dialect.
    #[error(
        "`{text}` has {fields} field(s); write 5 (minute hour day-of-month month day-of-week), or 6 or 7 \
         (second minute hour day-of-month month day-of-week [year]){hint}"
    )]
    Fields {
        /// The line.
        text: String,
        /// How many it has.
        fields: usize,
        /// What the writer may have meant.
        hint: &'static str,
    },
    /// One field holds something that it cannot.
    #[error("in `{text}`: {field} `{value}` {why}")]
    Field {
        /// The line.
        text: String,
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What is wrong with it, and the mend.
        why: String,
    },
    /// An `@word` that is none of ours.
    #[error("`{text}` is unknown; use @hourly, @daily, @weekly, @monthly or @yearly{hint}")]
    Word {
        /// The word.
        text: String,
        /// What the writer may have meant.
        hint: &'static str,
    },
    /// No date between 1970 and 2100 meets the line.
    #[error("`{text}` never fires: no date meets its day, month and year; change one of them")]
    Never {
        /// The line.
        text: String,
    },
    /// The `cron` crate refuses what passed our own checks.
    #[error("in `{text}`: {why}")]
    Line {
        /// The line.
        text: String,
        /// What the crate says.
        why: String,
    },
    /// There is no such zone.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

/// Reads a line in either dialect, or an `@word`.
pub(super) fn read(text: &str) -> Result<LocalTimes, CronError> {
    if text.trim_start().starts_with('@') {
        return word(text.trim()).and_then(read);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields.as_slice() {
        [minute, hour, day, month, weekday] => {
            Reader { text, dialect: Dialect::Crontab }.crontab(minute, hour, day, month, weekday)
        }
        [_, _, _, _, _, _] | [_, _, _, _, _, _, _] => {
            Reader { text, dialect: Dialect::Seconds }.seconds(&fields)
        }
        _ => Err(CronError::Fields { text: shown(text), fields: fields.len(), hint: count_hint(&fields) }),
    }
}

fn count_hint(fields: &[&str]) -> &'static str {
    match fields {
        [] => "; an empty line has no ticks",
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Crontab,
    Seconds,
}

/// What a field may hold.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    /// Each name, in the order of the values from `least`, as long as it may be; three letters suffice.
    names: &'static [&'static str],
    /// What to add where a number is out of bounds.
    hint: &'static str,
}

const SECOND: Field = Field { name: "second", least: 0, most: 59, names: &[], hint: "" };
const MINUTE: Field = Field { name: "minute", least: 0, most: 59, names: &[], hint: "" };
const HOUR: Field = Field { name: "hour", least: 0, most: 23, names: &[], hint: "" };
const DAY: Field = Field { name: "day-of-month", least: 1, most: 31, names: &[], hint: "" };
const MONTH: Field = Field { name: "month", least: 1, most: 12, names: &MONTHS, hint: "" };
const YEAR: Field = Field { name: "year", least: 1970, most: 2100, names: &[], hint: "" };
const CRONTAB_WEEKDAY: Field = Field { name: "day-of-week", least: 0, most: 7, names: &WEEKDAYS, hint: "" };
const SECONDS_WEEKDAY: Field = Field {
    name: "day-of-week",
    least: 1,
    most: 7,
    names: &WEEKDAYS,
    hint: "; with 6 or 7 fields Sunday is 1 and Saturday 7 (write `SUN` to be clear)",
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

/// Something wrong with a part of a field: the part, and why.
struct Wrong(String, String);

struct Reader<'a> {
    text: &'a str,
    dialect: Dialect,
}

impl Reader<'_> {
    /// Five fields: translated into the `cron` crate's numbering, as plain lists.
    fn crontab(
        &self,
        minute: &str,
        hour: &str,
        day: &str,
        month: &str,
        weekday: &str,
    ) -> Result<LocalTimes, CronError> {
        let clock = format!("0 {} {}", self.list(&MINUTE, minute)?, self.list(&HOUR, hour)?);
        let days = self.list(&DAY, day)?;
        let months = self.list(&MONTH, month)?;
        let weekdays = self.values(&CRONTAB_WEEKDAY, weekday)?;
        let weekdays = list(&weekdays.into_iter().map(|day| day % 7 + 1).collect());
        // cronie looks at the first character alone: `*/2` counts as a star.
        let either = !day.starts_with('*') && !weekday.starts_with('*');
        let lines = if either {
            vec![format!("{clock} {days} {months} *"), format!("{clock} * {months} {weekdays}")]
        } else {
            vec![format!("{clock} {days} {months} {weekdays}")]
        };
        let lines = lines.iter().map(|line| self.line(line)).collect::<Result<_, _>>()?;
        Ok(LocalTimes { lines, fixed: !minute.starts_with('*') && !hour.starts_with('*') })
    }

    /// Six or seven fields: checked, then left to the `cron` crate as they stand.
    fn seconds(&self, fields: &[&str]) -> Result<LocalTimes, CronError> {
        const FIELDS: [&Field; 7] = [&SECOND, &MINUTE, &HOUR, &DAY, &MONTH, &SECONDS_WEEKDAY, &YEAR];
        for (field, text) in FIELDS.into_iter().zip(fields) {
            self.values(field, text)?;
        }
        let fixed = fields.iter().take(3).all(|field| !field.starts_with('*'));
        Ok(LocalTimes { lines: vec![self.line(&fields.join(" "))?], fixed })
    }

    fn line(&self, line: &str) -> Result<::cron::Schedule, CronError> {
        ::cron::Schedule::from_str(line).map_err(|error| CronError::Line {
            text: shown(self.text),
            why: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    fn list(&self, field: &Field, text: &str) -> Result<String, CronError> {
        Ok(list(&self.values(field, text)?))
    }

    /// The values that a field's text stands for.
    fn values(&self, field: &Field, text: &str) -> Result<BTreeSet<u32>, CronError> {
        let mut values = BTreeSet::new();
        for item in text.split(',') {
            self.item(field, item, &mut values).map_err(|Wrong(value, why)| CronError::Field {
                text: shown(self.text),
                field: field.name,
                value: shown(&value),
                why,
            })?;
        }
        Ok(values)
    }

    /// One item of a list: `*`, a value or a range, each perhaps with a step.
    fn item(&self, field: &Field, item: &str, values: &mut BTreeSet<u32>) -> Result<(), Wrong> {
        let wrong = |why: &str| Wrong(item.to_owned(), why.to_owned());
        if item.is_empty() {
            return Err(wrong("is an empty item; take out the comma that stands alone"));
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
                    Some(_) if self.dialect == Dialect::Seconds => (value, field.most),
                    Some(step) => {
                        return Err(wrong(&format!(
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

    fn takes_any(&self, field: &Field) -> bool {
        self.dialect == Dialect::Seconds && matches!(field.name, "day-of-month" | "day-of-week")
    }

    fn step(&self, field: &Field, step: &str) -> Result<u32, Wrong> {
        match step.parse::<u32>() {
            Ok(number) if step.bytes().all(|b| b.is_ascii_digit()) && (1..=field.most).contains(&number) => {
                Ok(number)
            }
            _ => Err(Wrong(
                step.to_owned(),
                format!("is no step; write a whole number from 1 to {}", field.most),
            )),
        }
    }

    fn range(&self, field: &Field, span: &str, first: &str, last: &str) -> Result<(u32, u32), Wrong> {
        let from = self.value(field, first)?;
        let mut to = self.value(field, last)?;
        let by_name = last.starts_with(|c: char| c.is_ascii_alphabetic());
        if self.dialect == Dialect::Crontab && field.most == 7 && by_name && to == 0 && from > 0 {
            to = 7; // `fri-sun`: a Sunday that ends a week.
        }
        if from > to {
            let (least, most) = (field.least, field.most);
            let why = shown(&format!("runs backwards; write `{first}-{most},{least}-{last}`"));
            return Err(Wrong(span.to_owned(), why));
        }
        Ok((from, to))
    }

    fn value(&self, field: &Field, text: &str) -> Result<u32, Wrong> {
        let Field { least, most, names, hint, .. } = field;
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return match text.parse() {
                Ok(value) if (*least..=*most).contains(&value) => Ok(value),
                _ => Err(Wrong(text.to_owned(), format!("is not within {least}-{most}{hint}"))),
            };
        }
        let lower = text.to_ascii_lowercase();
        let named = |name: &&str| lower.len() >= 3 && name.starts_with(&lower);
        match names.iter().position(named).and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(least + at),
            None => Err(Wrong(text.to_owned(), self.unreadable(field))),
        }
    }

    fn unreadable(&self, field: &Field) -> String {
        let Field { least, most, names, .. } = field;
        let name = match names.first() {
            Some(first) => format!(" or a name such as `{}`", &first[..3]),
            None => String::new(),
        };
        let read = match self.dialect {
            Dialect::Crontab => "",
            Dialect::Seconds => {
                "; with 6 or 7 fields the first is the second, and there is no user or command"
            }
        };
        format!(
            "cannot be read; write a number within {least}-{most}{name}, `a-b`, `*`, `*/n`, or a list{read}"
        )
    }
}

/// As much of what was written as an error repeats.
pub(super) fn shown(text: &str) -> String {
    plain(text, SHOWN_MAX)
}

fn list(values: &BTreeSet<u32>) -> String {
    values.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cron::TimeUnitSpec;

    fn says(text: &str) -> String {
        match read(text) {
            Ok(times) => panic!("{text} was read as {times:?}"),
            Err(error) => error.to_string(),
        }
    }

    /// The values of a line's fields as the `cron` crate holds them.
    fn held(line: &cron::Schedule) -> [Vec<u32>; 5] {
        [
            line.minutes().iter().collect(),
            line.hours().iter().collect(),
            line.days_of_month().iter().collect(),
            line.months().iter().collect(),
            line.days_of_week().iter().collect(),
        ]
    }

    #[test]
    fn five_fields_are_translated() {
        let all = |from: u32, to: u32| (from..=to).collect::<Vec<_>>();
        let table: [(&str, [Vec<u32>; 5]); 8] = [
            ("0 3 * * *", [vec![0], vec![3], all(1, 31), all(1, 12), all(1, 7)]),
            ("*/20 1-3 1,15 */6 *", [vec![0, 20, 40], all(1, 3), vec![1, 15], vec![1, 7], all(1, 7)]),
            ("5-59/25 * * jan-mar *", [vec![5, 30, 55], all(0, 23), all(1, 31), all(1, 3), all(1, 7)]),
            ("0 0 * * 0", [vec![0], vec![0], all(1, 31), all(1, 12), vec![1]]),
            ("0 0 * * 7", [vec![0], vec![0], all(1, 31), all(1, 12), vec![1]]),
            ("0 0 * * 5-7", [vec![0], vec![0], all(1, 31), all(1, 12), vec![1, 6, 7]]),
            ("0 0 * * Fri-Sun", [vec![0], vec![0], all(1, 31), all(1, 12), vec![1, 6, 7]]),
            ("0 0 * DECEMBER mon,Wednesday", [vec![0], vec![0], all(1, 31), vec![12], vec![2, 4]]),
        ];
        for (text, expect) in table {
            let times = read(text).unwrap();
            assert_eq!(times.lines.len(), 1, "{text}");
            assert_eq!(held(&times.lines[0]), expect, "{text}");
        }
    }

    #[test]
    fn two_restricted_day_fields_mean_either_day() {
        let lines = |text: &str| read(text).unwrap().lines.len();
        assert_eq!(lines("0 0 1,15 * sun"), 2);
        assert_eq!(lines("0 0 1,15 * *"), 1);
        assert_eq!(lines("0 0 */2 * mon"), 1, "cronie looks at the first character: both must be met");
        assert_eq!(lines("0 0 0 1,15 * sun"), 1, "the other dialect knows no either");
    }

    #[test]
    fn fixed_time_jobs_are_told_from_interval_jobs_by_cronies_rule() {
        let table = [
            ("30 2 * * *", true),
            ("0,30 2 * * *", true),
            ("0-59/15 2 * * *", true),
            ("*/15 2 * * *", false),
            ("30 * * * *", false),
            ("30 */2 * * *", false),
            ("@hourly", false),
            ("@daily", true),
            ("0 30 2 * * *", true),
            ("* 30 2 * * *", false),
        ];
        for (text, fixed) in table {
            assert_eq!(read(text).unwrap().fixed, fixed, "{text}");
        }
    }

    #[test]
    fn six_and_seven_fields_mean_what_the_crate_means() {
        for text in [
            "0 0 3 * * *",
            "0/15 5 3 ? jan-mar Mon-Fri",
            "1,2 0-59/10 3 1,15 January sun,tue 2030-2040/2",
            "59 59 23 31 12 7 2100",
        ] {
            let times = read(text).unwrap();
            let fields: Vec<&str> = text.split_whitespace().collect();
            let reader = Reader { text, dialect: Dialect::Seconds };
            let ours = |field, at: usize| match reader.values(field, fields[at]) {
                Ok(values) => Vec::from_iter(values),
                Err(error) => panic!("{error}"),
            };
            let expect =
                [ours(&MINUTE, 1), ours(&HOUR, 2), ours(&DAY, 3), ours(&MONTH, 4), ours(&SECONDS_WEEKDAY, 5)];
            assert_eq!(held(&times.lines[0]), expect, "{text}");
        }
    }

    #[test]
    fn errors_name_the_field_the_value_and_the_mend() {
        let table = [
            ("61 * * * *", "in `61 * * * *`: minute `61` is not within 0-59"),
            ("0 24 * * *", "hour `24` is not within 0-23"),
            ("0 0 0 * *", "day-of-month `0` is not within 1-31"),
            ("0 0 * 13 *", "month `13` is not within 1-12"),
            ("0 0 * * 8", "day-of-week `8` is not within 0-7"),
            ("0 0 3 * * 0", "with 6 or 7 fields Sunday is 1"),
            (
                "0 0 3 * * root",
                "day-of-week `root` cannot be read; write a number within 1-7 or a name such as `sun`",
            ),
            ("0 0 3 * * root", "the first is the second, and there is no user"),
            ("0 0 * * mo", "day-of-week `mo` cannot be read"),
            ("0 22-2 * * *", "hour `22-2` runs backwards; write `22-23,0-2`"),
            ("5/15 * * * *", "minute `5/15` has a step without a range; write `5-59/15`"),
            ("*/0 * * * *", "minute `0` is no step; write a whole number from 1 to 59"),
            ("*/+5 * * * *", "minute `+5` is no step"),
            ("0,,5 * * * *", "minute `` is an empty item"),
            ("-5 * * * *", "minute `` cannot be read"),
            ("? * * * *", "minute `?` cannot be read"),
            ("0 0 L * *", "day-of-month `L` cannot be read"),
            ("99999999999 * * * *", "minute `99999999999` is not within 0-59"),
            ("0 0 0 1 1 * 1969", "year `1969` is not within 1970-2100"),
            ("", "`` has 0 field(s)"),
            ("0 3 * *", "has 4 field(s); write 5 (minute hour"),
            ("0 3 * * * ./report.sh --all now", "the command does not belong here"),
            ("@reboot", "`@reboot` is unknown; use @hourly, @daily"),
            ("@every 5m", "for a fixed distance use `every`"),
        ];
        for (text, part) in table {
            let error = says(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
