//! Checks jobs before the first campaign.

use crate::config::SettingError;
use crate::scheduler::{
    job::{Job, whole_of},
    policy::{Concurrency, Labels, Misfire, Placement},
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

/// The largest number of ticks that a group's ledger keeps. A new leader reads the whole ledger, so this number
/// limits the time of a takeover.
const TICKS_MAX: u128 = 200_000;

/// A job that cannot be run, or not together with the others, and the reason.
#[derive(Debug)]
pub(super) struct JobFault {
    pub(super) job: Arc<str>,
    pub(super) error: SettingError,
}

impl JobFault {
    fn new(job: &Job, field: &str, value: impl Into<String>, reason: &str, fix: &str) -> Self {
        let name = &job.name;
        Self {
            job: Arc::clone(name),
            error: SettingError::new(format!("{field} of the job {name:?}"), value, reason, fix),
        }
    }

    /// Returns the fault of a second job of the same name.
    pub(super) fn duplicate(name: &Arc<str>) -> Self {
        let (reason, fix) =
            ("which another job has, and which keys the ticks", "give each job a name of its own");
        Self {
            job: Arc::clone(name),
            error: SettingError::new("the name of a job", format!("{name:?}"), reason, fix),
        }
    }
}

impl From<JobFault> for SettingError {
    fn from(fault: JobFault) -> Self {
        fault.error
    }
}

/// Checks whether these jobs can be run together. Returns the first reason against it as an error.
pub(super) fn check<'a>(jobs: impl Iterator<Item = &'a Job>) -> Result<(), JobFault> {
    let jobs: Vec<&Job> = jobs.collect();
    check_keys(&jobs)?;
    check_circles(&jobs)?;
    check_followed(&jobs)?;
    let mut names = BTreeSet::new();
    let mut kept = 0;
    for job in jobs {
        check_one(job)?;
        kept += ticks_kept(job);
        if kept > TICKS_MAX {
            let reason = format!(
                "in which it is due so often that the ledger would keep more than {TICKS_MAX} ticks of all jobs together"
            );
            let window = format!("{:?}", job.misfire_rule().within());
            return Err(JobFault::new(
                job,
                "misfire window",
                window,
                &reason,
                "shorten the windows or lengthen the periods",
            ));
        }
        if !names.insert(&job.name) {
            return Err(JobFault::duplicate(&job.name));
        }
    }
    Ok(())
}

/// Checks the labels of a worker.
pub(super) fn check_labels(labels: &Labels) -> Result<(), SettingError> {
    let fault = |value: String, fix: &str| {
        Err(SettingError::new("a label of the worker", value, "which cannot be used", fix))
    };
    if labels.has_name() {
        return fault(
            "a label that begins with \"worker=\"".to_owned(),
            "leave it out: a worker has it by its name",
        );
    }
    labels.fault().map_or(Ok(()), |(value, fix)| fault(value, fix))
}

/// Checks that all jobs with a concurrency key have the same limit.
fn check_keys(jobs: &[&Job]) -> Result<(), JobFault> {
    let mut limits: BTreeMap<&Arc<str>, (usize, &Arc<str>)> = BTreeMap::new();
    for job in jobs {
        let Some(Concurrency { key, limit }) = &job.rules.concurrency else { continue };
        let (known, other) = *limits.entry(key).or_insert((*limit, &job.name));
        if known != *limit {
            let reason = format!("and the job {other:?} has {known} for the same key {key:?}");
            let fix = "give all jobs with a key the same limit";
            return Err(JobFault::new(job, "concurrency limit", limit.to_string(), &reason, fix));
        }
    }
    Ok(())
}

/// Checks that no jobs follow each other in a circle.
fn check_circles(jobs: &[&Job]) -> Result<(), JobFault> {
    let followers = || jobs.iter().filter_map(|job| Some((*job, &job.schedule.follows()?.job)));
    // The run of one worker follows the hand-out of the job for every worker.
    let whole = |job: &Arc<str>| whole_of(job).map_or_else(|| Arc::clone(job), Arc::from);
    let follows: BTreeMap<Arc<str>, Arc<str>> =
        followers().map(|(job, before)| (Arc::clone(&job.name), whole(before))).collect();
    for (job, _) in followers() {
        let name = &job.name;
        // A circle has at most as many jobs as there are. Its other jobs are found under their own names.
        let mut line = vec![name];
        let mut at = name;
        while let Some(before) = follows.get(at).filter(|_| line.len() <= follows.len()) {
            if before == name {
                line.push(name);
                let line: Vec<String> = line.iter().map(|job| format!("{job:?}")).collect();
                let fix = "let one of them have a schedule of its own";
                return Err(JobFault::new(
                    job,
                    "line",
                    line.join(" after "),
                    "a circle in which no job is the first",
                    fix,
                ));
            }
            line.push(before);
            at = before;
        }
    }
    Ok(())
}

/// Checks that no job follows one that runs on every worker, whose run is only the hand-out of the tick.
fn check_followed(jobs: &[&Job]) -> Result<(), JobFault> {
    let every = jobs.iter().filter(|job| job.rules.placement == Placement::EveryWorker);
    let every: BTreeSet<&Arc<str>> = every.map(|job| &job.name).collect();
    let follows = |job: &&&Job| job.schedule.follows().is_some_and(|after| every.contains(&after.job));
    let Some(job) = jobs.iter().find(follows) else { return Ok(()) };
    let before = job.schedule.follows().map(|after| Arc::clone(&after.job)).unwrap_or_default();
    let reason = "which runs on every worker, so its runs end at different times";
    let fix = format!("follow one worker's runs: {before}@WORKER");
    wrong(job, "job before", format!("{before:?}"), reason, &fix)
}

/// Checks the name and the rules of one job.
pub(super) fn check_one(job: &Job) -> Result<(), JobFault> {
    let name = &job.name;
    if name.is_empty() || name.len() > 128 || name.contains(['/', '@']) || name.chars().any(char::is_control)
    {
        let fix = "use 1 to 128 bytes without slashes, @ or control characters";
        let reason = "which cannot key its ticks";
        let error = SettingError::new("the name of a job", format!("{name:?}"), reason, fix);
        return Err(JobFault { job: Arc::clone(name), error });
    }
    check_times(job)?;
    check_place(job)?;
    check_amounts(job)
}

fn wrong(job: &Job, field: &str, value: impl Into<String>, reason: &str, fix: &str) -> Result<(), JobFault> {
    Err(JobFault::new(job, field, value, reason, fix))
}

/// Checks the rules of a job about times.
fn check_times(job: &Job) -> Result<(), JobFault> {
    let (gap, jitter) = (job.gap, format!("{:?}", job.rules.jitter));
    let apart = format!("over ticks {gap:?} apart");
    if job.rules.jitter > gap {
        return wrong(job, "jitter", jitter, &apart, "make it no longer than that");
    }
    if job.schedule.follows().is_some() && !job.rules.jitter.is_zero() {
        return wrong(job, "jitter", jitter, "after the end of another job", "leave it out");
    }
    if let Misfire::RunOnce { within } | Misfire::RunAll { within } = job.misfire_rule()
        && within < least_window(gap)
    {
        let fix = "make it no shorter than that, or the rule `skip`";
        return wrong(job, "misfire window", format!("{within:?}"), &apart, fix);
    }
    if job.rules.timeout.is_some_and(|timeout| timeout.is_zero()) {
        let fix = "leave it out for a job without a time limit";
        return wrong(job, "timeout", "0s", "so no run could end in time", fix);
    }
    if let Some(time) = job.rules.expect_within
        && (time < gap || time > EXPECT_MAX)
    {
        let fix = "make it no shorter than that, and no longer than ten years";
        return wrong(job, "time `expect_within`", format!("{time:?}"), &apart, fix);
    }
    Ok(())
}

/// Checks the rules of a job about the workers, and about the runs of other jobs.
fn check_place(job: &Job) -> Result<(), JobFault> {
    if let Some((value, fix)) = job.rules.labels.fault() {
        return wrong(job, "rule `required`", value, "which cannot be used", fix);
    }
    let Some(of @ Concurrency { key, limit }) = &job.rules.concurrency else { return Ok(()) };
    if *limit == 0 {
        let fix = "use 1 or more, or leave the rule out";
        return wrong(job, "concurrency limit", "0", "so no run would begin", fix);
    }
    if key.is_empty() || key.len() > 128 || key.chars().any(char::is_control) {
        let shown: String = key.chars().take(80).collect();
        let fix = "use 1 to 128 bytes without control characters";
        return wrong(job, "concurrency key", format!("{shown:?}"), "which cannot be a key", fix);
    }
    if !of.has_sound_fields() {
        let fix = "enclose the name of a field of the payload, such as {customer}";
        return wrong(job, "concurrency key", format!("{key:?}"), "with a brace that encloses no name", fix);
    }
    Ok(())
}

/// Checks the numbers of a job's attempts, failures, bytes and entries.
fn check_amounts(job: &Job) -> Result<(), JobFault> {
    if job.rules.retries.attempts() == 0 {
        let fix = "use 1 for a job that is never tried again";
        return wrong(job, "number of attempts", "0", "so no run would begin", fix);
    }
    if job.rules.pause_after_failures == Some(0) {
        let fix = "use 1 or more, or leave it out";
        return wrong(job, "number `pause_after_failures`", "0", "so it would never run", fix);
    }
    if job.rules.keep_output > OUTPUT_MAX {
        let (value, reason) = (format!("{} bytes", job.rules.keep_output), "too much for the ledger");
        return wrong(job, "kept output", value, reason, "keep at most 4096");
    }
    if job.rules.history > HISTORY_MAX {
        let (value, reason) = (format!("{} entries", job.rules.history), "too long for the ledger");
        return wrong(job, "history", value, reason, "keep at most 10000");
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
