//! When a job is due.

use super::JobCheck;
use crate::{
    config::{ConfigError, error::nearest, file::Time},
    time,
};
use quorate::schedule::{Cron, Dst, Schedule, at, delay, every};
use std::{fmt, ops::Range};
use toml::Spanned;

impl JobCheck<'_> {
    /// The schedule, of the one key that tells it.
    pub(super) fn schedule(&self) -> Result<Schedule, ConfigError> {
        let told = self.told;
        let keys: [(&str, Option<Range<usize>>); 4] = [
            ("schedule", told.schedule.as_ref().map(Spanned::span)),
            ("every", told.every.as_ref().map(Spanned::span)),
            ("delay", told.delay.as_ref().map(Spanned::span)),
            ("at", told.at.as_ref().map(Spanned::span)),
        ];
        let given: Vec<_> = keys.into_iter().filter_map(|(key, at)| Some((key, at?))).collect();
        if let [(one, at), (other, _), ..] = &given[..] {
            let (one, other) = (article(one), article(other));
            return Err(self.fail(at.clone(), &format!("has {one} and {other}; keep one of them")));
        }
        if told.schedule.is_none() {
            self.no_zone(given.first().map_or("nothing", |(key, _)| key))?;
        }
        match (&told.schedule, &told.every, &told.delay, &told.at) {
            (Some(line), ..) => self.cron(line),
            (_, Some(period), ..) => Ok(self.span(period, "every", every)?.into()),
            (_, _, Some(after), _) => Ok(self.span(after, "delay", delay)?.into()),
            (_, _, _, Some(moment)) => {
                let moment_at = time::parse(moment.as_ref()).map_err(|error| {
                    self.fail(moment.span(), &format!("has an `at` {:?} that is no time: {error}", moment.as_ref()))
                })?;
                Ok(at(moment_at).into())
            }
            _ => Err(self.fail(
                self.at.clone(),
                "has no time to run at; add schedule = \"0 3 * * *\", every = \"10s\", delay = \"10s\" or at = \"2026-12-24T18:00:00Z\"",
            )),
        }
    }

    fn cron(&self, line: &Spanned<String>) -> Result<Schedule, ConfigError> {
        let wrong = |at: Range<usize>, key: &str, error: &dyn fmt::Display| {
            self.fail(at, &format!("has a {key} that cannot be used: {error}"))
        };
        let mut cron = Cron::parse(line.as_ref()).map_err(|error| wrong(line.span(), "schedule", &error))?;
        if let Some(zone) = &self.told.zone {
            cron = cron.zone(zone.as_ref()).map_err(|error| wrong(zone.span(), "zone", &error))?;
        }
        if let Some(rule) = &self.told.dst {
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

    /// Only a cron line has a zone, and hours that a zone skips.
    fn no_zone(&self, key: &str) -> Result<(), ConfigError> {
        let (zone, dst) = (&self.told.zone, &self.told.dst);
        let stray =
            [("zone", zone), ("dst", dst)].into_iter().find_map(|(name, text)| Some((name, text.as_ref()?)));
        match stray {
            Some((name, text)) if key != "nothing" => {
                let why = format!(
                    "has `{key}` and a `{name}`; `{key}` counts real time: take the {name} out, or write a cron line as `schedule`"
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
