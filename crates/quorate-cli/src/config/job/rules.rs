//! The rules of a job.

use super::JobCheck;
use crate::config::{
    ConfigError, LeaseConfig,
    file::{ConcurrencyText, MisfireText, RuleText, RunsOnText},
};
use quorate::{
    internals::JobRules,
    scheduler::{Concurrency, Labels, Misfire, Placement, Retry, Schedule},
};
use std::time::Duration;
use toml::Spanned;

/// The largest number of attempts of a run.
const ATTEMPTS_MAX: i64 = 100;
/// The largest number of entries of a job's history. The limit is necessary because the history is read as a
/// whole.
const HISTORY_MAX: i64 = 10_000;
/// The largest limit of a concurrency key.
const CONCURRENCY_MAX: i64 = 100_000;
/// The largest number of failed runs after which a job is paused.
const FAILURES_MAX: i64 = 1_000;

impl JobCheck<'_> {
    /// Returns the rules of the job, in a file whose leadership lease is `lease`.
    pub(super) fn rules(&self, schedule: &Schedule, lease: LeaseConfig) -> Result<JobRules, ConfigError> {
        let (placement, labels) = self.runs_on()?;
        Ok(JobRules {
            misfire: Some(self.misfire(schedule, lease)?),
            delivery: self.written.delivery.unwrap_or_default(),
            overlap: self.written.overlap.unwrap_or_default(),
            placement,
            labels,
            concurrency: self.concurrency()?,
            pause_after_failures: self.pause_after_failures()?,
            jitter: self.jitter(schedule)?,
            timeout: self.timeout()?,
            retries: self.retries()?,
            priority: self.priority()?,
            history: self.history()?,
            keep_output: self.keep_output()?.unwrap_or_default(),
            expect_within: self.expect_within(schedule)?,
        })
    }

    fn jitter(&self, schedule: &Schedule) -> Result<Duration, ConfigError> {
        let Some(written) = &self.written.jitter else { return Ok(Duration::ZERO) };
        let jitter = **written.as_ref();
        match schedule.interval() {
            Some(period) if jitter > period && !schedule.is_after_end() => {
                let why = format!(
                    "has a jitter of {jitter:?}, longer than its period {period:?}, so that a tick could be delayed past the next one; shorten it"
                );
                Err(self.fail(written.span(), &why))
            }
            _ => Ok(jitter),
        }
    }

    /// Returns the workers on which the job runs, with the labels that it requires.
    fn runs_on(&self) -> Result<(Placement, Labels), ConfigError> {
        let Some(written) = &self.written.runs_on else {
            return Ok((Placement::default(), Labels::default()));
        };
        match written.as_ref() {
            RunsOnText::Named(name) if name == "leader" => Ok((Placement::Leader, Labels::default())),
            RunsOnText::Named(name) if name == "any" => Ok((Placement::AnyWorker, Labels::default())),
            RunsOnText::Named(name) if name == "every" => Ok((Placement::EveryWorker, Labels::default())),
            RunsOnText::Named(name) => {
                let short: String = name.chars().take(40).collect();
                let why = format!("has runs_on {short:?}, which is unknown; use \"leader\", \"any\", \"every\" or {{ labels = [\"…\"] }}");
                Err(self.fail(written.span(), &why))
            }
            RunsOnText::Labels { labels, .. } if labels.is_empty() => Err(self.fail(
                written.span(),
                "has runs_on without labels, so that any worker has them; write runs_on = \"any\", or name labels",
            )),
            RunsOnText::Labels { labels, every: true } => Ok((Placement::EveryWorker, Labels::new(labels))),
            RunsOnText::Labels { labels, every: false } => Ok((Placement::AnyWorker, Labels::new(labels))),
        }
    }

    fn concurrency(&self) -> Result<Option<Concurrency>, ConfigError> {
        let Some(written) = &self.written.concurrency else { return Ok(None) };
        let ConcurrencyText { key, limit } = written.as_ref();
        let number = self.number("concurrency.limit", limit, 1, CONCURRENCY_MAX)?;
        Ok(Some(Concurrency { key: key.as_str().into(), limit: usize::try_from(number).unwrap_or(1) }))
    }

    fn retries(&self) -> Result<Retry, ConfigError> {
        let Some(written) = &self.written.retries else { return Ok(Retry::NONE) };
        let text = written.as_ref();
        let attempts = self.number("retries.attempts", &text.attempts, 1, ATTEMPTS_MAX)?;
        let retry = Retry::new(u32::try_from(attempts).unwrap_or(1));
        let usual = Retry::new(2);
        let max = text.max_backoff.as_ref().map_or(usual.max_backoff(), |time| **time.as_ref());
        let first = text.backoff.as_ref().map_or(Duration::from_secs(1).min(max), |time| **time.as_ref());
        if first > max {
            let at = text.backoff.as_ref().map_or_else(|| written.span(), Spanned::span);
            let why = format!(
                "has a first wait (backoff) of {first:?}, longer than max_backoff {max:?}; shorten the one or lengthen the other"
            );
            return Err(self.fail(at, &why));
        }
        Ok(retry.backoff(first, max))
    }

    fn priority(&self) -> Result<i32, ConfigError> {
        let Some(written) = &self.written.priority else { return Ok(0) };
        let number = self.number("priority", written, i32::MIN.into(), i32::MAX.into())?;
        Ok(i32::try_from(number).unwrap_or_default())
    }

    fn history(&self) -> Result<usize, ConfigError> {
        let usual = JobRules::default().history;
        let Some(written) = &self.written.history else { return Ok(usual) };
        let number = self.number("history", written, 1, HISTORY_MAX)?;
        Ok(usize::try_from(number).unwrap_or(usual))
    }

    fn pause_after_failures(&self) -> Result<Option<u32>, ConfigError> {
        let Some(written) = &self.written.pause_after_failures else { return Ok(None) };
        let number = self.number("pause_after_failures", written, 1, FAILURES_MAX)?;
        Ok(u32::try_from(number).ok())
    }

    fn misfire(&self, schedule: &Schedule, lease: LeaseConfig) -> Result<Misfire, ConfigError> {
        // If a leader crashes, the next leader starts only when the old lease has ended. The catch-up window
        // must contain the ticks of that time.
        let usual = Misfire::default_for(schedule).within().max(lease.ttl * 2);
        let Some(misfire) = &self.written.misfire else { return Ok(Misfire::run_once(usual)) };
        let MisfireText { rule, within } = misfire.as_ref();
        let window = match within {
            Some(within) => **within.as_ref(),
            None => usual,
        };
        let at = within.as_ref().map_or_else(|| misfire.span(), Spanned::span);
        match rule {
            RuleText::Skip if within.is_some() => Err(self.fail(
                at,
                "has the misfire rule `skip` and a window; remove `within`, or use run-once or run-all",
            )),
            RuleText::Skip => Ok(Misfire::Skip),
            _ if window < lease.ttl => {
                let why = format!(
                    "has a misfire window (within) of {window:?}, shorter than the lease's ttl {:?}, so that ticks would be \
                     lost while a crashed leader's lease runs out; lengthen it, or use the rule `skip`",
                    lease.ttl
                );
                Err(self.fail(at, &why))
            }
            RuleText::RunOnce => Ok(Misfire::run_once(window)),
            RuleText::RunAll => Ok(Misfire::run_all(window)),
        }
    }

    fn timeout(&self) -> Result<Option<Duration>, ConfigError> {
        let Some(written) = &self.written.timeout else { return Ok(None) };
        match **written.as_ref() {
            Duration::ZERO => Err(self.fail(
                written.span(),
                "has a timeout of 0s; give a longer time, or remove the key for no limit",
            )),
            time => Ok(Some(time)),
        }
    }

    fn number(&self, key: &str, written: &Spanned<i64>, least: i64, most: i64) -> Result<i64, ConfigError> {
        let number = *written.as_ref();
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let why = format!("has {key} = {number}; give it {least} to {most}");
        Err(self.fail(written.span(), &why))
    }
}
