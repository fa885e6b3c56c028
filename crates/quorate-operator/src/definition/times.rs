//! The times of a stored job as fields.

use super::fields::{
    AFTER, AT, DELAY, DST, EVERY, EXCEPT, FROM, SCHEDULE, UNTIL, Written, ZONE, list, span, time_of, wrong,
};
use crate::{Field, Given, WrongField, time::rfc3339};
use quorate::{
    env::WallTime,
    internals::ScheduleSpec,
    scheduler::{AfterEnd, Cron, Dst, InvalidSchedule, Schedule},
};
use std::time::Duration;

/// Adds the fields of a schedule.
pub(super) fn write(schedule: &ScheduleSpec, fields: &mut Written) {
    match schedule {
        ScheduleSpec::Every { micros } => fields.add(&EVERY, Some(span(Duration::from_micros(*micros)))),
        ScheduleSpec::Delay { micros } => fields.add(&DELAY, Some(span(Duration::from_micros(*micros)))),
        ScheduleSpec::At { micros } => fields.add(&AT, Some(rfc3339(WallTime::from_micros(*micros)))),
        ScheduleSpec::Cron { line, zone, dst } => {
            fields.add(&SCHEDULE, Some(line));
            fields.add(&ZONE, (**zone != *"UTC").then_some(zone));
            fields.add(&DST, (**dst != *Dst::default().name()).then_some(dst));
        }
        ScheduleSpec::After { job, on } => fields.add(&AFTER, Some(format!("{} {job}", on.as_str()))),
        ScheduleSpec::Days { of, except, from, until } => {
            write(of, fields);
            fields.add(&EXCEPT, (!except.is_empty()).then(|| except.join(", ")));
            fields.add(&FROM, from.as_ref());
            fields.add(&UNTIL, until.as_ref());
        }
        _ => {}
    }
}

/// Returns the schedule of a job.
///
/// # Errors
/// The field that must be changed, and the reason.
pub(super) fn schedule(given: &impl Given) -> Result<Schedule, WrongField> {
    let keys = [&SCHEDULE, &EVERY, &DELAY, &AT, &AFTER];
    let present: Vec<&Field> = keys.into_iter().filter(|field| given.text(field.name).is_some()).collect();
    let [one] = present[..] else {
        let text = match &present[..] {
            [one, other, ..] => format!("{} and {} are given; keep one of them", one.name, other.name),
            _ => "schedule is missing; give a cron line as schedule, or every, delay, at or after".to_owned(),
        };
        return Err(WrongField::new(present.get(1).map_or(SCHEDULE.name, |field| field.name), text));
    };
    let text = given.text(one.name).unwrap_or_default();
    if one.name != SCHEDULE.name
        && let Some(stray) = [&ZONE, &DST].into_iter().find(|field| given.text(field.name).is_some())
    {
        let value = given.text(stray.name).unwrap_or_default();
        return Err(wrong(
            stray,
            value,
            &format!("has no meaning with {}; remove it, or give a cron line", one.name),
        ));
    }
    let schedule = match one.name {
        "every" => Schedule::every(time_of(one, text)?).map_err(|error| wrong(one, text, &error.to_string())),
        "delay" => Schedule::delay(time_of(one, text)?).map_err(|error| wrong(one, text, &error.to_string())),
        "at" => Ok(Schedule::at(given.read_time(text).map_err(|error| wrong(one, text, &error))?)),
        "after" => after(text),
        _ => cron(given, text),
    }?;
    on_days(schedule, given)
}

/// Leaves out the ticks on days without them.
fn on_days(mut schedule: Schedule, given: &impl Given) -> Result<Schedule, WrongField> {
    type Change = fn(Schedule, &str) -> Result<Schedule, InvalidSchedule>;
    let changes: [(&Field, Change); 3] = [
        (&EXCEPT, |schedule, days| schedule.except(list(days))),
        (&FROM, |schedule, day| schedule.from_day(day)),
        (&UNTIL, |schedule, day| schedule.until_day(day)),
    ];
    for (field, change) in changes {
        if let Some(text) = given.text(field.name) {
            let wrong = |error: InvalidSchedule| wrong(field, text, &format!("cannot be used: {error}"));
            schedule = change(schedule, text.trim()).map_err(wrong)?;
        }
    }
    Ok(schedule)
}

fn after(text: &str) -> Result<Schedule, WrongField> {
    let parts = text.trim().split_once(char::is_whitespace);
    let found =
        parts.and_then(|(word, job)| Some((AfterEnd::ALL.into_iter().find(|on| on.as_str() == word)?, job)));
    let Some((on, job)) = found else {
        let reason = "does not begin with success, failure or end; write success and the name of the job";
        return Err(wrong(&AFTER, text, reason));
    };
    Ok(Schedule::after(job.trim(), on))
}

fn cron(given: &impl Given, line: &str) -> Result<Schedule, WrongField> {
    let mut cron = Cron::parse(line).map_err(|error| wrong(&SCHEDULE, line, &error.to_string()))?;
    if let Some(zone) = given.text(ZONE.name) {
        cron = cron.zone(zone).map_err(|error| wrong(&ZONE, zone, &error.to_string()))?;
    }
    if let Some(rule) = given.text(DST.name) {
        let found = Dst::ALL.into_iter().find(|dst| dst.name() == rule);
        let names = || Dst::ALL.map(Dst::name).join(", ");
        cron = cron.dst(found.ok_or_else(|| wrong(&DST, rule, &format!("is unknown; use {}", names())))?);
    }
    Ok(cron.into())
}
