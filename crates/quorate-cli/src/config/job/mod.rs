//! The file's jobs, checked.

mod command;
mod rules;
mod times;

use super::{
    ConfigError, LeaseConfig, beside,
    error::SourceText,
    file::{DeliveryText, JobText, MisfireText, RuleText, Time},
};
use quorate::schedule::{
    Delivery, Job, Misfire, Overlap, Placement, Retry, RunAll, RunOnce, Schedule, ScheduleError, Scheduler,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use toml::Spanned;

/// The longest name of a job, in bytes.
const NAME_MAX: usize = 128;

/// A job of the file, checked. `Debug` shows the names in `env`, not the values.
#[derive(Clone, PartialEq, Eq)]
pub struct JobConfig {
    /// Its name, which no other job of the file has.
    pub name: Arc<str>,
    /// When it is due.
    pub schedule: Schedule,
    /// Program and arguments; never empty. A `shell` line is an argument of the shell's.
    pub command: Vec<String>,
    /// The exit codes that are no failure; never empty.
    pub ok_exit_codes: Vec<u8>,
    /// How many bytes of the end of a run's output its history keeps; none where `None`.
    pub keep_output: Option<usize>,
    /// The directory it runs in, from the file's own where relative; the program's where `None`.
    pub cwd: Option<PathBuf>,
    /// What its environment has besides the program's.
    pub env: BTreeMap<String, String>,
    /// What becomes of ticks that nobody looked at in time.
    pub misfire: Misfire,
    /// What becomes of ticks that may have run.
    pub delivery: Delivery,
    /// After which an attempt is ended.
    pub timeout: Option<Duration>,
    /// Over how much time after its tick a run may start.
    pub jitter: Duration,
    /// What becomes of a tick that is due while an earlier one runs.
    pub overlap: Overlap,
    /// How often a run is tried.
    pub retries: Retry,
    /// Where it runs.
    pub placement: Placement,
    /// Which of the ticks that wait starts first.
    pub priority: i32,
    /// How many entries of its history are kept.
    pub history: usize,
}

impl fmt::Debug for JobConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobConfig")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .field("command", &self.command)
            .field("ok_exit_codes", &self.ok_exit_codes)
            .field("keep_output", &self.keep_output)
            .field("cwd", &self.cwd)
            .field("env", &self.env.keys())
            .field("misfire", &self.misfire)
            .field("delivery", &self.delivery)
            .field("timeout", &self.timeout)
            .field("jitter", &self.jitter)
            .field("overlap", &self.overlap)
            .field("retries", &self.retries)
            .field("placement", &self.placement)
            .field("priority", &self.priority)
            .field("history", &self.history)
            .finish()
    }
}

/// Checks the file's jobs, each by itself and against each other.
pub(super) fn check(
    source: &SourceText<'_>,
    jobs: &[Spanned<JobText>],
    lease: LeaseConfig,
) -> Result<Vec<JobConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::new();
    for job in jobs {
        let told = job.as_ref();
        let job_check = JobCheck { source, name: told.name.as_ref(), at: told.name.span(), told };
        checked.push(job_check.check(lease)?);
        if !names.insert(told.name.as_ref()) {
            return Err(job_check.fail(
                job_check.at.clone(),
                "has the name of a job above; its ticks would be taken for the other's: rename one",
            ));
        }
    }
    check_with_scheduler(source, jobs, &checked)?;
    Ok(checked)
}

/// What only the scheduler knows to be wrong.
fn check_with_scheduler(source: &SourceText<'_>, told: &[Spanned<JobText>], jobs: &[JobConfig]) -> Result<(), ConfigError> {
    let idle = |job: &JobConfig| {
        job.with_rules(Job::new(&job.name, job.schedule.clone(), |_| async { Ok::<(), String>(()) }))
    };
    let all: Vec<Job> = jobs.iter().map(idle).collect();
    Scheduler::check_jobs(&all).map_err(|error| {
        let named = match &error {
            ScheduleError::Rule { name, .. } | ScheduleError::TooManyTicks { name, .. } => Some(name),
            _ => None,
        };
        let job =
            told.iter().find(|job| named.is_some_and(|name| **name == *job.as_ref().name.as_ref().as_str()));
        source.error(job.map(|job| job.as_ref().name.span()), &error.to_string())
    })
}

impl JobConfig {
    /// `job` with the rules that the file tells.
    pub(crate) fn with_rules(&self, job: Job) -> Job {
        let job = job
            .misfire(self.misfire)
            .delivery(self.delivery)
            .overlap(self.overlap)
            .jitter(self.jitter)
            .retries(self.retries)
            .placement(self.placement)
            .priority(self.priority)
            .history(self.history)
            .keep_output(self.keep_output.unwrap_or_default());
        match self.timeout {
            Some(timeout) => job.timeout(timeout),
            None => job,
        }
    }
}

struct JobCheck<'a> {
    source: &'a SourceText<'a>,
    name: &'a str,
    at: Range<usize>,
    told: &'a JobText,
}

impl JobCheck<'_> {
    fn fail(&self, at: Range<usize>, why: &str) -> ConfigError {
        let name: String = self.name.chars().take(80).collect();
        self.source.error(Some(at), &format!("job {name:?} {why}"))
    }

    fn check(&self, lease: LeaseConfig) -> Result<JobConfig, ConfigError> {
        let name = self.name;
        if name.is_empty()
            || name.len() > NAME_MAX
            || name.contains(['{', '}', '/'])
            || name.chars().any(char::is_control)
        {
            let why = "has a name that cannot be used; give it 1 to 128 bytes without slashes, braces and control characters";
            return Err(self.fail(self.at.clone(), why));
        }
        self.check_env()?;
        let schedule = self.schedule()?;
        Ok(JobConfig {
            name: name.into(),
            misfire: self.misfire(&schedule, lease)?,
            jitter: self.jitter(&schedule)?,
            schedule,
            command: self.command()?,
            ok_exit_codes: self.ok_exit_codes()?,
            keep_output: self.keep_output()?,
            cwd: self.told.cwd.as_deref().map(|cwd| beside(self.source.file, cwd)),
            env: self.told.env.clone(),
            delivery: match self.told.delivery {
                Some(DeliveryText::AtMostOnce) => Delivery::AtMostOnce,
                Some(DeliveryText::AtLeastOnce) => Delivery::AtLeastOnce,
                None => Delivery::default(),
            },
            timeout: self.told.timeout.as_ref().map(|timeout| self.timeout(timeout)).transpose()?,
            overlap: self.overlap(),
            retries: self.retries()?,
            placement: self.placement(),
            priority: self.priority()?,
            history: self.history()?,
        })
    }

    fn misfire(&self, schedule: &Schedule, lease: LeaseConfig) -> Result<Misfire, ConfigError> {
        // What a crashed leader misses must fit into the window.
        let usual = Misfire::default_for(schedule).within().max(lease.ttl * 2);
        let Some(misfire) = &self.told.misfire else { return Ok(RunOnce::within(usual)) };
        let MisfireText { rule, within } = misfire.as_ref();
        let window = match within {
            Some(within) => **within.as_ref(),
            None => usual,
        };
        let at = within.as_ref().map_or_else(|| misfire.span(), Spanned::span);
        match rule {
            RuleText::Skip if within.is_some() => Err(self.fail(
                at,
                "has the misfire rule `skip` and a window; take `within` out, or use run-once or run-all",
            )),
            RuleText::Skip => Ok(Misfire::Skip),
            _ if window < lease.ttl => {
                let why = format!(
                    "has a misfire window (within) of {window:?}, shorter than the lease's ttl {:?}; ticks due while a crashed \
                     leader's lease runs out would be lost: lengthen it, or use the rule `skip`",
                    lease.ttl
                );
                Err(self.fail(at, &why))
            }
            RuleText::RunOnce => Ok(RunOnce::within(window)),
            RuleText::RunAll => Ok(RunAll::within(window)),
        }
    }

    fn timeout(&self, timeout: &Time) -> Result<Duration, ConfigError> {
        match **timeout.as_ref() {
            Duration::ZERO => Err(self.fail(
                timeout.span(),
                "has a timeout of 0s; give it some time, or take the key out for no limit",
            )),
            some => Ok(some),
        }
    }
}
