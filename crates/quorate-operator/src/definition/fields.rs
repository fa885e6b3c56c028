//! The fields of a stored job, and how their texts are read.

use crate::{Field, Given, Kind, Need, WrongField};
use quorate::plain::plain;
use std::{fmt::Display, str::FromStr, time::Duration};

/// The largest number of bytes of a value that an error repeats.
pub(super) const SHOWN_MAX: usize = 200;
/// The value of the field `expect` for a job that must not be stored yet.
pub(super) const ABSENT: &str = "absent";

const fn rule(name: &'static str, label: &'static str, about: &'static str) -> Field {
    Field::new(name, label, Kind::Text, Need::Programs, about)
}

pub(super) const HANDLER: Field = Field::new(
    "handler",
    "Handler",
    Kind::Text,
    Need::Required,
    "The name of a function or command that workers have registered",
);
pub(super) const SCHEDULE: Field = Field::new(
    "schedule",
    "Cron line",
    Kind::Text,
    Need::Optional,
    "A cron line such as 0 3 * * *; or every, delay or at",
);
pub(super) const EVERY: Field =
    Field::new("every", "Every", Kind::Text, Need::Optional, "The time between two ticks, such as 10s");
pub(super) const DELAY: Field =
    rule("delay", "Delay", "The time from the end of a run to the next tick, such as 10s");
pub(super) const AT: Field = Field::new(
    "at",
    "At",
    Kind::Time,
    Need::Optional,
    "The time of a single run, after which the job is removed",
);
pub(super) const ZONE: Field = rule("zone", "Zone", "The zone of the cron line, such as Europe/Kyiv");
pub(super) const DST: Field = rule("dst", "DST", "The rule of the cron line for changes of the clock");
pub(super) const PAYLOAD: Field =
    Field::new("payload", "Payload", Kind::Text, Need::Optional, "The input of each run, up to 8 KiB");
pub(super) const MISFIRE: Field = rule("misfire", "Misfire", "skip, run-once 1h or run-all 1h");
pub(super) const DELIVERY: Field = rule("delivery", "Delivery", "at-least-once or at-most-once");
pub(super) const OVERLAP: Field = rule("overlap", "Overlap", "queue, skip, cancel-old or allow");
pub(super) const RUNS_ON: Field = rule(
    "runs_on",
    "Runs on",
    "any, every, leader, or the labels that a worker must have: labels eu, ssd, or every labels eu",
);
pub(super) const AFTER: Field =
    rule("after", "After", "Each end of another job: success extract, failure extract or end extract");
pub(super) const EXCEPT: Field = rule("except", "Not on", "Days without ticks: 2027-12-25, 2027-12-26");
pub(super) const FROM: Field = rule("from", "From", "The first day with ticks, such as 2027-01-01");
pub(super) const UNTIL: Field = rule("until", "Until", "The last day with ticks, such as 2027-12-31");
pub(super) const CONCURRENCY: Field = rule(
    "concurrency",
    "Concurrency",
    "The largest number of runs of all jobs with a key, and the key: 2 database",
);
pub(super) const PAUSE_AFTER_FAILURES: Field = rule(
    "pause_after_failures",
    "Pause after failures",
    "The number of failed runs in a row after which it is paused",
);
pub(super) const JITTER: Field = rule("jitter", "Jitter", "The longest random delay of a run");
pub(super) const TIMEOUT: Field = rule("timeout", "Timeout", "The longest time of an attempt");
pub(super) const RETRIES: Field =
    rule("retries", "Retries", "The number of attempts, and the first and the longest pause: 3 1s 60s");
pub(super) const PRIORITY: Field =
    rule("priority", "Priority", "A number; runs with a higher one start first");
pub(super) const HISTORY: Field = rule("history", "History", "The number of kept entries");
pub(super) const KEEP_OUTPUT: Field =
    rule("keep_output", "Kept output", "The number of kept bytes of a run's output");
pub(super) const EXPECT_WITHIN: Field =
    rule("expect_within", "Expected within", "The time within which it is expected to succeed again");
pub(super) const EXPECT: Field = rule("expect", "Expected", "absent, or the version that must be stored now");

/// The fields of a job with their texts.
pub(super) struct Written(pub(super) Vec<(&'static str, String)>);

impl Written {
    pub(super) fn add<T: ToString>(&mut self, field: &Field, value: Option<T>) {
        self.0.extend(value.map(|value| (field.name, value.to_string())));
    }
}

/// Returns a length in one word.
pub(super) fn span(time: Duration) -> String {
    humantime::format_duration(time).to_string().replace(' ', "")
}

/// Returns the parts of a list with commas.
pub(super) fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
}

pub(super) fn one_of<T: Display + Copy>(
    given: &impl Given,
    field: &Field,
    all: &[T],
) -> Result<Option<T>, WrongField> {
    let Some(text) = given.text(field.name) else { return Ok(None) };
    let found = all.iter().find(|one| one.to_string() == text).copied();
    found.map(Some).ok_or_else(|| wrong(field, text, &format!("is unknown; use {}", field.about)))
}

pub(super) fn number<T: FromStr>(given: &impl Given, field: &Field) -> Result<Option<T>, WrongField> {
    let Some(text) = given.text(field.name) else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| wrong(field, text, "is not a number in the permitted range; give a whole number"))
}

pub(super) fn length(given: &impl Given, field: &Field) -> Result<Option<Duration>, WrongField> {
    given.text(field.name).map(|text| time_of(field, text)).transpose()
}

pub(super) fn time_of(field: &Field, text: &str) -> Result<Duration, WrongField> {
    humantime::parse_duration(text)
        .map_err(|_| wrong(field, text, "is not a length of time; write it like 30s, 10m or 2h"))
}

pub(super) fn wrong(field: &Field, value: &str, reason: &str) -> WrongField {
    let (value, reason) = (plain(value, SHOWN_MAX), plain(reason, SHOWN_MAX * 2));
    WrongField::new(field.name, format!("{} {value:?} {reason}", field.name))
}
