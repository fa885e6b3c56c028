//! Checks jobs before the first campaign.

use crate::scheduler::{
    error::{ScheduleError, TICKS_MAX},
    job::Job,
    plan::ticks_kept,
    policy::Misfire,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The largest number of bytes of its output that a run may keep.
const OUTPUT_MAX: usize = 4_096;
/// The largest number of history entries that a job may keep.
const HISTORY_MAX: usize = 10_000;

/// Returns the first reason why these jobs cannot be run together, as an error.
pub(super) fn check<'a>(jobs: impl Iterator<Item = &'a Job>) -> Result<(), ScheduleError> {
    let mut names = BTreeSet::new();
    let mut kept = 0;
    for job in jobs {
        check_one(job)?;
        let name = Arc::clone(job.name());
        kept += ticks_kept(job);
        if kept > TICKS_MAX {
            return Err(ScheduleError::TooManyTicks { name, window: job.misfire.within() });
        }
        if !names.insert(Arc::clone(&name)) {
            return Err(ScheduleError::DuplicateJob { name });
        }
    }
    Ok(())
}

/// Checks the name and the rules of one job.
fn check_one(job: &Job) -> Result<(), ScheduleError> {
    let name = || Arc::clone(&job.name);
    if job.name.is_empty()
        || job.name.len() > 128
        || job.name.contains('/')
        || job.name.chars().any(char::is_control)
    {
        return Err(ScheduleError::JobName { name: name() });
    }
    let rule = |field, value: String, fix| Err(ScheduleError::Rule { name: name(), field, value, fix });
    let gap = job.gap;
    if job.jitter > gap {
        return rule(
            "jitter",
            format!("{:?} over ticks {gap:?} apart", job.jitter),
            "make it no longer than that",
        );
    }
    if let Misfire::RunOnce { within } | Misfire::RunAll { within } = job.misfire
        && within < least_window(gap)
    {
        let value = format!("{within:?} over ticks {gap:?} apart");
        return rule("misfire window", value, "make it no shorter than that, or the rule `skip`");
    }
    if job.retries.attempts() == 0 {
        return rule("retries", "0 attempts".to_owned(), "use 1 for a job that is never tried again");
    }
    if job.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return rule("timeout", "0".to_owned(), "leave it out for a job without a time limit");
    }
    if job.keep_output > OUTPUT_MAX {
        return rule("kept output", format!("{} bytes", job.keep_output), "keep at most 4096");
    }
    if job.history > HISTORY_MAX {
        return rule("history", format!("{} entries", job.history), "keep at most 10000");
    }
    Ok(())
}

/// Returns the shortest misfire window that a job may have, if its ticks are `gap` apart.
///
/// After an outage, the latest missed tick may be almost one gap old. If the window is shorter than the gap,
/// that tick can be too old for a catch-up run, and the outage leaves no run at all. If ticks are far apart,
/// for example a day, a window of a minute suffices, because the user may not want a run that late.
fn least_window(gap: Duration) -> Duration {
    gap.min(Duration::from_secs(60))
}
