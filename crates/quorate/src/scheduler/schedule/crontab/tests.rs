use super::*;
use jiff::{
    ToSpan,
    civil::{Date, Weekday, date},
    tz::TimeZone,
};
#[cfg(feature = "cron-crate")]
use std::str::FromStr;

fn error_of(text: &str) -> String {
    match read(text) {
        Ok(times) => panic!("{text} was read as {times:?}"),
        Err(error) => error.to_string(),
    }
}

/// Converts a line of six or seven fields that the `cron` crate has parsed.
#[cfg(feature = "cron-crate")]
fn crate_line(text: &str) -> Line {
    Line::from(&::cron::Schedule::from_str(text).unwrap())
}

/// Returns the local midnight at which a date begins, in seconds since the epoch, as if local time were UTC.
fn midnight(date: Date) -> i64 {
    date.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second()
}

/// Returns the date of a local time. The time is in seconds since the epoch, as if local time were UTC.
fn date_of(local: i64) -> Date {
    TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(local).unwrap()).date()
}

#[cfg(feature = "cron-crate")]
#[test]
fn five_fields_are_translated() {
    let table = [
        ("0 3 * * *", "0 0 3 * * *"),
        ("*/20 1-3 1,15 */6 *", "0 0,20,40 1,2,3 1,15 1,7 *"),
        ("5-59/25 * * jan-mar *", "0 5,30,55 * * 1,2,3 *"),
        ("0 0 * * 0", "0 0 0 * * 1"),
        ("0 0 * * 7", "0 0 0 * * 1"),
        ("0 0 * * 5-7", "0 0 0 * * 1,6,7"),
        ("0 0 * * Fri-Sun", "0 0 0 * * 1,6,7"),
        ("0 0 * DECEMBER mon,Wednesday", "0 0 0 * 12 2,4"),
    ];
    for (text, theirs) in table {
        assert_eq!(read(text).unwrap().lines, [crate_line(theirs)], "{text}");
    }
}

#[test]
fn two_restricted_day_fields_mean_either_day() {
    let lines = |text: &str| read(text).unwrap().lines.len();
    assert_eq!(lines("0 0 1,15 * sun"), 2);
    assert_eq!(lines("0 0 1,15 * *"), 1);
    assert_eq!(lines("0 0 */2 * mon"), 1, "cronie looks at the first character: both must match");
    assert_eq!(lines("0 0 0 1,15 * sun"), 1, "in the other dialect a day matches both");
}

#[test]
fn fixed_time_and_interval_jobs_are_distinguished_by_the_rule_of_cronie() {
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

#[cfg(feature = "cron-crate")]
#[test]
fn six_and_seven_fields_mean_what_the_crate_means() {
    for text in [
        "0 0 3 * * *",
        "0/15 5 3 ? jan-mar Mon-Fri",
        "1,2 0-59/10 3 1,15 January sun,tue 2030-2040/2",
        "59 59 23 31 12 7 2100",
    ] {
        assert_eq!(read(text).unwrap().lines, [crate_line(text)], "{text}");
    }
}

#[cfg(feature = "cron-crate")]
#[test]
fn a_line_that_the_crate_has_parsed_means_the_same_here() {
    let fixed = [
        ("0 30 2 * * *", "0 30 2 * * *", true),
        ("  0  30 1 , 2 ? * Mon-Thurs/2", "0 30 1,2 ? * Mon-Thurs/2", true),
        ("*/30 30 2 * * * 2030", "*/30 30 2 * * * 2030", false),
        ("@daily", "@daily", true),
        ("@hourly", "@hourly", false),
        ("0 0 0 1JAN *", "0 0 0 1 1 *", true),
        ("* 0 0 1JAN *", "* 0 0 1 1 *", false),
    ];
    for (source, text, fixed) in fixed {
        let theirs = ::cron::Schedule::from_str(source).unwrap();
        let ours = super::super::Cron::from(theirs.clone());
        assert_eq!(ours.text(), text, "{source}");
        assert_eq!(read(ours.text()).unwrap().fixed, fixed, "{source}");
        let mut theirs = theirs.after(&chrono::DateTime::from_timestamp(1_741_330_000, 0).unwrap());
        let start = crate::env::WallTime::from_micros(1_741_330_000_000_000);
        let next = super::super::Schedule::from(ours);
        for tick in next.upcoming(start, 20) {
            let their = theirs.next().unwrap().timestamp();
            assert_eq!(Ok(tick.as_micros() / 1_000_000), u64::try_from(their), "{source}");
        }
    }
}

/// Returns the first days of a year on which a line that is due at midnight has ticks, as `month-day`. 2028
/// is a leap year.
fn days_due(line: &str, year: i16) -> String {
    let times = read(line).unwrap();
    let due = std::iter::successors(times.next(midnight(date(year, 1, 1)) - 1), |at| times.next(*at));
    let dates = due.map(date_of).take_while(|date| date.year() == year).take(14);
    dates.map(|date| date.strftime("%m-%d").to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn last_days_nearest_weekdays_and_nth_weekdays_in_both_dialects() {
    let lasts = |february: &str| {
        format!("01-31 {february} 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31")
    };
    let table = [
        ("0 0 L * *", 2027, lasts("02-28")),
        ("0 0 0 L * ?", 2028, lasts("02-29")),
        ("0 0 l 2 *", 2100, "02-28".to_owned()),
        (
            "0 0 L-28 * *",
            2027,
            "01-03 03-03 04-02 05-03 06-02 07-03 08-03 09-02 10-03 11-02 12-03".to_owned(),
        ),
        ("0 0 LW 1-6 *", 2027, "01-29 02-26 03-31 04-30 05-31 06-30".to_owned()),
        // In 2027, 1 May is a Saturday and 1 August is a Sunday, so the nearest weekday is another day.
        (
            "0 0 1W * *",
            2027,
            "01-01 02-01 03-01 04-01 05-03 06-01 07-01 08-02 09-01 10-01 11-01 12-01".to_owned(),
        ),
        // In 2027, 28 February, 31 January and 31 October are Sundays, and 31 July is a Saturday.
        ("0 0 31W * *", 2027, "01-29 03-31 05-31 07-30 08-31 10-29 12-31".to_owned()),
        ("0 0 28W 2 *", 2027, "02-26".to_owned()),
        ("0 0 15w 5,8 *", 2027, "05-14 08-16".to_owned()),
        ("0 0 * 1-3 fri#2", 2027, "01-08 02-12 03-12".to_owned()),
        ("0 0 * * 5#5", 2027, "01-29 04-30 07-30 10-29 12-31".to_owned()),
        ("0 0 0 ? * 6#5", 2027, "01-29 04-30 07-30 10-29 12-31".to_owned()),
        ("0 0 * 1-3 friL", 2027, "01-29 02-26 03-26".to_owned()),
        ("0 0 * 2 2L", 2028, "02-29".to_owned()),
        ("0 0 0 ? 1-3 6L", 2027, "01-29 02-26 03-26".to_owned()),
        ("0 0 1,L 1-2 *", 2027, "01-01 01-31 02-01 02-28".to_owned()),
        ("0 0 * 1 mon,sunL", 2027, "01-04 01-11 01-18 01-25 01-31".to_owned()),
        // In the crontab dialect, a day is due if either day field matches. In the dialect of the `cron`
        // crate, both must match.
        ("0 0 L 1 mon#1", 2027, "01-04 01-31".to_owned()),
        ("0 0 0 L * sun", 2027, "01-31 02-28 10-31".to_owned()),
        ("0 0 0 LW * friL", 2027, "01-29 02-26 04-30 07-30 10-29 12-31".to_owned()),
    ];
    for (line, year, expect) in table {
        assert_eq!(days_due(line, year), expect, "{line} in {year}");
    }
}

/// For every day from 1999 to 2059, checks whether the cron line is due. The expected result is calculated
/// separately, from calendar dates.
#[test]
fn special_days_are_those_that_a_calendar_shows() {
    let working = |date: Date| !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday);
    let last = Date::last_of_month;
    let nearest = |date: Date, day: i8| {
        let aim = Date::new(date.year(), date.month(), day).ok()?;
        let beside = (0..3).flat_map(|by| [aim - by.days(), aim + by.days()]);
        beside.into_iter().find(|near| working(*near) && near.month() == aim.month())
    };
    for line in
        ["L", "L-5", "LW", "1W", "2W", "15W", "27W", "28W", "29W", "30W", "31W", "tueL", "sun#1", "sat#5"]
    {
        let weekday = line.contains('#') || (line.ends_with('L') && line.len() > 1);
        let times =
            read(&if weekday { format!("0 0 * * {line}") } else { format!("0 0 {line} * *") }).unwrap();
        let mut date = date(1999, 1, 1);
        let mut next = None;
        while date.year() < 2060 {
            let is = match line {
                "L" => date == last(date),
                "L-5" => date + 5.days() == last(date),
                "LW" => (0..3).map(|by| last(date) - by.days()).find(|day| working(*day)) == Some(date),
                "tueL" => date.weekday() == Weekday::Tuesday && date.day() + 7 > last(date).day(),
                "sun#1" => date.weekday() == Weekday::Sunday && date.day() <= 7,
                "sat#5" => date.weekday() == Weekday::Saturday && date.day() > 28,
                _ => nearest(date, line.trim_end_matches('W').parse().unwrap()) == Some(date),
            };
            let midnight = midnight(date);
            let due = match next.filter(|next| *next >= midnight) {
                Some(next) => next,
                None => *next.insert(times.next(midnight - 1).unwrap()),
            };
            assert_eq!(due == midnight, is, "{line} on {date}");
            date = date.tomorrow().unwrap();
        }
    }
}

#[test]
fn errors_name_the_field_the_value_and_the_fix() {
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
        ("0 L * * *", "hour `L` cannot be read"),
        ("0 0 32W * *", "day-of-month `32W` is no day's nearest weekday; write `1W` to `31W`"),
        ("0 0 W * *", "day-of-month `W` is no day's nearest weekday"),
        ("0 0 L-31 * *", "day-of-month `L-31` is no day before the last; write `L-1` to `L-30`"),
        (
            "0 0 L/2 * *",
            "day-of-month `L` cannot be read; write a number within 1-31, `a-b`, `*`, `*/n`, `L`, `L-3`, `15W`, `LW`, or a list",
        ),
        ("0 0 * * L", "day-of-week `L` names no day; write `friL` for the last Friday"),
        (
            "0 0 * * fri#6",
            "day-of-week `fri#6` counts to 6; write `fri#1` to `fri#5`, or `friL` for the last",
        ),
        ("0 0 * * 8#1", "day-of-week `8` is not within 0-7"),
        ("0 0 * * 15W", "day-of-week `15W` cannot be read"),
        ("99999999999 * * * *", "minute `99999999999` is not within 0-59"),
        ("0 0 0 1 1 * 1969", "year `1969` is not within 1970-9999"),
        ("", "`` has 0 field(s)"),
        ("0 3 * *", "has 4 field(s); write 5 (minute hour"),
        ("0 3 * * * ./report.sh --all now", "the command does not belong here"),
        ("@reboot", "`@reboot` is unknown; use @hourly, @daily"),
        ("@every 5m", "for a fixed period use `every`"),
        ("every 5m", "for a fixed period use `every`"),
        ("at 2026-11-21T00:00:00Z", "for one time use `at`"),
        ("delay 5m", "to wait after each end use `delay`"),
    ];
    for (text, part) in table {
        let error = error_of(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}
