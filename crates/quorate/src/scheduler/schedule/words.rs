//! Schedules in words, for people. All functions are pure.

use crate::scheduler::schedule::{
    crontab,
    kinds::{Kind, Schedule},
    zone::Zone,
};
use std::time::Duration;

/// The units of a duration, in microseconds.
const UNITS: [(&str, u128); 6] = [
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
];

impl Schedule {
    /// Returns the meaning of the schedule in words, such as `at 03:00 from Monday to Friday`. Local times are in
    /// the zone of the schedule.
    #[doc(hidden)]
    pub fn words(&self) -> String {
        let days = self.days.as_ref().map_or_else(String::new, |days| days.words());
        format!("{}{days}", self.words_of_kind())
    }

    fn words_of_kind(&self) -> String {
        match &self.kind {
            Kind::Every(every) => {
                format!("every {}, counted from 1970-01-01 00:00 UTC", span(every.period()))
            }
            Kind::Delay(delay) => {
                format!(
                    "{} after the end of the previous run; first when the job is registered",
                    span(delay.time())
                )
            }
            Kind::At(at) => format!("once, at {}", Zone::UTC.format(at.0)),
            Kind::After(after) => after.to_string(),
            Kind::Cron(cron) => crontab::words(cron.text()).unwrap_or_else(|| cron.text().to_owned()),
            Kind::Custom(custom) => custom.to_string(),
        }
    }
}

/// Returns a duration in words, such as `1 hour 30 minutes`.
fn span(time: Duration) -> String {
    let mut rest = time.as_micros();
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        let count = rest / size;
        rest %= size;
        match count {
            0 => {}
            1 => parts.push(format!("1 {unit}")),
            _ => parts.push(format!("{count} {unit}s")),
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        env::WallTime,
        scheduler::schedule::{Cron, Schedule, Timetable},
    };

    #[derive(Debug)]
    struct Never;

    impl Timetable for Never {
        fn next_after(&self, _: WallTime) -> Option<WallTime> {
            None
        }
        fn describe(&self) -> String {
            "never".to_owned()
        }
    }

    #[test]
    fn each_kind_of_schedule_has_words() {
        let second = Duration::from_secs(1);
        let table: [(Schedule, &str); 6] = [
            (
                Schedule::every(90 * second).unwrap(),
                "every 1 minute 30 seconds, counted from 1970-01-01 00:00 UTC",
            ),
            (
                Schedule::every(Duration::from_micros(86_400_001_500)).unwrap(),
                "every 1 day 1 millisecond 500 microseconds, counted from 1970-01-01 00:00 UTC",
            ),
            (
                Schedule::delay(7_200 * second).unwrap(),
                "2 hours after the end of the previous run; first when the job is registered",
            ),
            (Schedule::at(WallTime::from_micros(0)), "once, at 1970-01-01 00:00:00 +00:00 (UTC)"),
            (Cron::parse("0 3 * * *").unwrap().into(), "at 03:00 every day"),
            (Schedule::custom(Never), "never"),
        ];
        for (schedule, words) in table {
            assert_eq!(schedule.words(), words);
        }
    }
}
