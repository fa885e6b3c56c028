//! Schedules as arguments: a cron line, `every 90s`, `delay 10m` or `at TIME`.

use crate::time;
use quorate::scheduler::{Cron, InvalidSchedule, Schedule};
use std::time::Duration;

/// Reads a schedule.
///
/// # Errors
/// The reason, with the fix.
pub(crate) fn parse(text: &str) -> Result<Schedule, String> {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let invalid = |error: InvalidSchedule| error.to_string();
    match word {
        "every" | "@every" => Schedule::every(duration(word, rest)?).map_err(invalid),
        "delay" => Schedule::delay(duration(word, rest)?).map_err(invalid),
        "at" => Ok(Schedule::at(time::parse(rest.trim())?)),
        _ => Cron::parse(text).map(Schedule::from).map_err(invalid),
    }
}

fn duration(word: &str, text: &str) -> Result<Duration, String> {
    let fix = format!("write it like `{word} 90s` or `{word} 1h 30m`");
    if text.trim().is_empty() {
        return Err(format!("the duration is missing; {fix}"));
    }
    humantime::parse_duration(text.trim()).map_err(|error| format!("{error}; {fix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_schedule_can_be_written() {
        for (text, expected) in [
            ("0 3 * * *", "0 3 * * * (UTC)"),
            (" @daily ", "@daily (UTC)"),
            ("0 0 3 L * ? 2027", "0 0 3 L * ? 2027 (UTC)"),
            ("every 90s", "every 90s"),
            ("@every 1h 30m", "every 5400s"),
            ("delay  10m", "600s after the last end"),
            ("at 2027-01-01T02:00:00+02:00", "once at 2027-01-01 00:00:00 +00:00 (UTC)"),
        ] {
            assert_eq!(parse(text).map(|schedule| schedule.to_string()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_invalid_schedule_is_refused_with_the_fix() {
        for (text, fix) in [
            ("", "an empty line has no ticks"),
            ("0 3 * *", "has 4 field(s)"),
            ("CRON_TZ=Europe/Kyiv 0 3 * * *", "set `zone` instead"),
            ("TZ=Europe/Kyiv 0 3 * * *", "set `zone` instead"),
            ("61 3 * * *", "is not within 0-59"),
            ("0 0 30 2 *", "never fires"),
            ("@every", "write it like `@every 90s`"),
            ("every soon", "write it like `every 90s`"),
            ("every 0s", "use at least 1ms"),
            ("delay 10", "write it like `delay 90s`"),
            ("at noon", "write it like 2026-11-21T03:00:00Z"),
            ("@reboot", "several machines have no common start"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(fix), "{text}: {error}");
        }
    }
}
