//! Conversions from the parsed schedules of the `cron` crate (0.17). No other module uses this crate, which
//! depends on `chrono`.

use crate::scheduler::schedule::{
    cron::Cron,
    dst::Dst,
    kinds::Schedule,
    line::{Fields, Line, Years},
    local::LocalTimes,
    zone::Zone,
};
use ::cron::TimeUnitSpec;
use std::{collections::BTreeSet, sync::Arc};

/// Converts a line that the `cron` crate has parsed. The zone is UTC unless [`Cron::zone`] sets another zone.
/// As with [`Cron::parse`], the text of the line decides whether it is a fixed-time or an interval job
/// ([`Dst`]). A line that no date matches is accepted, and has no ticks. If the line has no year field, its
/// ticks continue after 2100, although the ticks of the crate end there.
impl From<::cron::Schedule> for Cron {
    fn from(line: ::cron::Schedule) -> Self {
        let as_written = normalized(line.source());
        if let Ok(cron) = Self::read(&as_written) {
            return cron;
        }
        let text = rewritten(&line);
        let times = LocalTimes { fixed: is_fixed(&text), lines: vec![Line::from(&line)] };
        Self { text: text.into(), times: Arc::new(times), zone: Zone::UTC, dst: Dst::default() }
    }
}

/// Converts the line to a [`Cron`] in UTC, and then to a [`Schedule`].
impl From<::cron::Schedule> for Schedule {
    fn from(schedule: ::cron::Schedule) -> Self {
        Cron::from(schedule).into()
    }
}

impl From<&::cron::Schedule> for Line {
    fn from(line: &::cron::Schedule) -> Self {
        fn values(field: &impl TimeUnitSpec) -> BTreeSet<u32> {
            field.iter().collect()
        }
        let years = if line.years().is_all() { Years::All } else { Years::of(&values(line.years())) };
        Self::new(&Fields {
            clock: [values(line.seconds()), values(line.minutes()), values(line.hours())],
            days: values(line.days_of_month()),
            months: values(line.months()),
            weekdays: values(line.days_of_week()),
            length: None,
            years,
        })
    }
}

/// Returns whether a line of six or seven fields is a fixed-time job, as [`Dst`] defines it.
fn is_fixed(text: &str) -> bool {
    text.split_whitespace().take(3).all(|field| !field.starts_with('*'))
}

/// Returns the text of a line without spaces inside its fields. The crate accepts spaces within a list, but
/// this library splits a line into fields at its spaces.
fn normalized(text: &str) -> String {
    let mut result = String::new();
    for word in text.split_whitespace() {
        let joins = |c: char| matches!(c, ',' | '-' | '/');
        if !result.is_empty() && !result.ends_with(joins) && !word.starts_with(joins) {
            result.push(' ');
        }
        result.push_str(word);
    }
    result
}

/// Returns a text for a line, created from the values of its fields.
fn rewritten(line: &::cron::Schedule) -> String {
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

fn list(values: impl IntoIterator<Item = u32>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}
