//! The schedule of a job.

use super::JobCheck;
use crate::{
    config::{
        ConfigError,
        error::nearest,
        file::{AfterText, JobText, Time},
    },
    time,
};
use quorate::scheduler::{AfterEnd, Cron, Dst, InvalidSchedule, Schedule};
use std::{fmt, ops::Range};
use toml::Spanned;

impl JobCheck<'_> {
    /// Returns the schedule, with the days that it leaves out.
    pub(super) fn schedule(&self) -> Result<Schedule, ConfigError> {
        let JobText { except, from, until, .. } = self.written;
        let wrong = |at: Range<usize>, error: InvalidSchedule| {
            self.fail(at, &format!("has days that cannot be used: {error}"))
        };
        let mut schedule = self.on_any_day()?;
        if let Some(days) = except {
            schedule = schedule.except(days.as_ref()).map_err(|error| wrong(days.span(), error))?;
        }
        if let Some(day) = from {
            schedule = schedule.from_day(day.as_ref()).map_err(|error| wrong(day.span(), error))?;
        }
        if let Some(day) = until {
            schedule = schedule.until_day(day.as_ref()).map_err(|error| wrong(day.span(), error))?;
        }
        Ok(schedule)
    }

    /// Returns the schedule without these days. Exactly one of the keys for it must be present.
    fn on_any_day(&self) -> Result<Schedule, ConfigError> {
        let written = self.written;
        let keys: [(&str, Option<Range<usize>>); 5] = [
            ("after", written.after.as_ref().map(Spanned::span)),
            ("schedule", written.schedule.as_ref().map(Spanned::span)),
            ("every", written.every.as_ref().map(Spanned::span)),
            ("delay", written.delay.as_ref().map(Spanned::span)),
            ("at", written.at.as_ref().map(Spanned::span)),
        ];
        let given: Vec<_> = keys.into_iter().filter_map(|(key, at)| Some((key, at?))).collect();
        if let [(one, at), (other, _), ..] = &given[..] {
            let (one, other) = (article(one), article(other));
            return Err(self.fail(at.clone(), &format!("has {one} and {other}; keep one of them")));
        }
        if written.schedule.is_none() {
            self.no_zone(given.first().map_or("nothing", |(key, _)| key))?;
        }
        if let Some(after) = &written.after {
            return self.after(after.as_ref());
        }
        match (&written.schedule, &written.every, &written.delay, &written.at) {
            (Some(line), ..) => self.cron(line),
            (_, Some(period), ..) => self.span(period, "every", Schedule::every),
            (_, _, Some(after), _) => self.span(after, "delay", Schedule::delay),
            (_, _, _, Some(moment)) => {
                let moment_at = time::parse(moment.as_ref()).map_err(|error| {
                    self.fail(moment.span(), &format!("has an `at` {:?} that is not a time: {error}", moment.as_ref()))
                })?;
                Ok(Schedule::at(moment_at))
            }
            _ => Err(self.fail(
                self.at.clone(),
                "has no schedule; add schedule = \"0 3 * * *\", every = \"10s\", delay = \"10s\", after = { job = \"…\" } or at = \"2026-12-24T18:00:00Z\"",
            )),
        }
    }

    fn after(&self, written: &AfterText) -> Result<Schedule, ConfigError> {
        let AfterText { job, on } = written;
        let names = || AfterEnd::ALL.into_iter().map(AfterEnd::as_str);
        let Some(on) = on else { return Ok(Schedule::after(job.as_ref(), AfterEnd::Success)) };
        let Some(end) = AfterEnd::ALL.into_iter().find(|end| end.as_str() == on.as_ref()) else {
            let short: String = on.as_ref().chars().take(40).collect();
            let fix = names().collect::<Vec<_>>().join(", ");
            return Err(self.fail(on.span(), &format!("has after.on {short:?}, which is unknown; use {fix}")));
        };
        Ok(Schedule::after(job.as_ref(), end))
    }

    fn cron(&self, line: &Spanned<String>) -> Result<Schedule, ConfigError> {
        let wrong = |at: Range<usize>, key: &str, error: &dyn fmt::Display| {
            self.fail(at, &format!("has a {key} that cannot be used: {error}"))
        };
        let mut cron = Cron::parse(line.as_ref()).map_err(|error| wrong(line.span(), "schedule", &error))?;
        if let Some(zone) = &self.written.zone {
            cron = cron.zone(zone.as_ref()).map_err(|error| wrong(zone.span(), "zone", &error))?;
        }
        if let Some(rule) = &self.written.dst {
            let names = || Dst::ALL.into_iter().map(Dst::name);
            let Some(found) = Dst::ALL.into_iter().find(|dst| dst.name() == rule.as_ref()) else {
                let fix = match nearest(rule.as_ref(), names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("use {}", names().collect::<Vec<_>>().join(", ")),
                };
                return Err(
                    self.fail(rule.span(), &format!("has dst `{}`, which is unknown; {fix}", rule.as_ref()))
                );
            };
            cron = cron.dst(found);
        }
        Ok(cron.into())
    }

    fn span<T, E: fmt::Display>(
        &self,
        time: &Time,
        key: &str,
        make: impl Fn(std::time::Duration) -> Result<T, E>,
    ) -> Result<T, ConfigError> {
        make(**time.as_ref()).map_err(|error| {
            self.fail(time.span(), &format!("has {} that cannot be used: {error}", article(key)))
        })
    }

    /// Refuses a time zone or a rule for daylight saving if the job has no cron line. Only cron lines use local
    /// times.
    fn no_zone(&self, key: &str) -> Result<(), ConfigError> {
        let (zone, dst) = (&self.written.zone, &self.written.dst);
        let stray =
            [("zone", zone), ("dst", dst)].into_iter().find_map(|(name, text)| Some((name, text.as_ref()?)));
        match stray {
            Some((name, text)) if key != "nothing" => {
                let why = format!(
                    "has `{key}` and a `{name}`; `{key}` counts real time: remove the {name}, or write a cron line as `schedule`"
                );
                Err(self.fail(text.span(), &why))
            }
            _ => Ok(()),
        }
    }
}

fn article(key: &str) -> String {
    let article = if key.starts_with(['a', 'e']) { "an" } else { "a" };
    format!("{article} `{key}`")
}
