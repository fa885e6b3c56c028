//! Checks jobs before the first campaign.

use crate::scheduler::{
    error::{ScheduleError, TICKS_MAX},
    job::Job,
    policy::{Concurrency, Labels, Misfire},
    store::record_life::ticks_kept,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The largest number of bytes that a job may keep of the output of a run.
const OUTPUT_MAX: usize = 4_096;
/// The longest time within which a job may be expected to succeed.
const EXPECT_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// The largest number of history entries that a job may keep.
const HISTORY_MAX: usize = 10_000;

/// Checks whether these jobs can be run together. Returns the first reason against it as an error.
pub(super) fn check<'a>(jobs: impl Iterator<Item = &'a Job>) -> Result<(), ScheduleError> {
    let jobs: Vec<&Job> = jobs.collect();
    check_keys(&jobs)?;
    check_circles(&jobs)?;
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

/// Checks the labels of a worker.
pub(super) fn check_labels(labels: &Labels) -> Result<(), ScheduleError> {
    labels.fault().map_or(Ok(()), |(value, fix)| Err(ScheduleError::Labels { value, fix }))
}

/// Checks that all jobs with a concurrency key have the same limit.
fn check_keys(jobs: &[&Job]) -> Result<(), ScheduleError> {
    let mut limits: BTreeMap<&Arc<str>, (usize, &Arc<str>)> = BTreeMap::new();
    for job in jobs {
        let Some(Concurrency { key, limit }) = &job.concurrency else { continue };
        let (known, other) = *limits.entry(key).or_insert((*limit, &job.name));
        if known != *limit {
            let value = format!("{limit} for {key:?}, for which the job {other:?} has {known}");
            let fix = "give all jobs with a key the same limit";
            return Err(ScheduleError::Rule {
                name: Arc::clone(&job.name),
                field: "concurrency limit",
                value,
                fix,
            });
        }
    }
    Ok(())
}

/// Checks that no jobs follow each other in a circle.
fn check_circles(jobs: &[&Job]) -> Result<(), ScheduleError> {
    let follows = jobs.iter().filter_map(|job| Some((&job.name, &job.schedule.follows()?.job)));
    let follows: BTreeMap<&Arc<str>, &Arc<str>> = follows.collect();
    for name in follows.keys() {
        // A circle has at most as many jobs as there are. Its other jobs are found under their own names.
        let mut line = vec![*name];
        let mut at = *name;
        while let Some(before) = follows.get(at).filter(|_| line.len() <= follows.len()) {
            if before == name {
                line.push(name);
                let line: Vec<String> = line.iter().map(|job| format!("{job:?}")).collect();
                let value = format!("{} (each runs after the next)", line.join(", "));
                let fix = "let one of them have a schedule of its own";
                return Err(ScheduleError::Rule {
                    name: Arc::clone(name),
                    field: "circle of jobs",
                    value,
                    fix,
                });
            }
            line.push(before);
            at = before;
        }
    }
    Ok(())
}

/// Checks the name and the rules of one job.
pub(super) fn check_one(job: &Job) -> Result<(), ScheduleError> {
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
    if let Some(time) = job.expect_within
        && (time < gap || time > EXPECT_MAX)
    {
        let value = format!("{time:?} over ticks {gap:?} apart");
        return rule("expect_within", value, "make it no shorter than that, and no longer than ten years");
    }
    if job.schedule.follows().is_some() && !job.jitter.is_zero() {
        return rule("jitter", format!("{:?} after the end of another job", job.jitter), "leave it out");
    }
    if let Some((value, fix)) = job.labels.fault() {
        return rule("required", value, fix);
    }
    if let Some(Concurrency { key, limit }) = &job.concurrency {
        if *limit == 0 {
            return rule("concurrency limit", "0".to_owned(), "use 1 or more, or leave the rule out");
        }
        if key.is_empty() || key.len() > 128 || key.chars().any(char::is_control) {
            let shown: String = key.chars().take(80).collect();
            return rule(
                "concurrency key",
                format!("{shown:?}"),
                "use 1 to 128 bytes without control characters",
            );
        }
    }
    if job.pause_after_failures == Some(0) {
        return rule("pause_after_failures", "0 runs".to_owned(), "use 1 or more, or leave it out");
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
/// this tick may be too old for a catch-up run, and then no missed tick runs at all. For ticks that are far
/// apart, such as a day, a window of a minute is allowed, because the user may not want such a late run.
fn least_window(gap: Duration) -> Duration {
    gap.min(Duration::from_secs(60))
}
