//! The jobs of the file, checked.

mod command;
mod http;
mod rules;
mod times;
mod watch;

pub(super) use command::bytes;

use super::{
    ConfigError, HttpJob, LeaseConfig, PingConfig,
    error::SourceText,
    file::{BackgroundText, DeliveryText, JobText, MisfireText, RuleText, Time},
};
use crate::files::beside;
use quorate::scheduler::{Delivery, Job, Misfire, Overlap, Placement, Retry, Schedule, Scheduler};
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

/// The rule for processes that a command leaves in its process group when it ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// They are ended with the command.
    #[default]
    End,
    /// They run on, and no lease covers them.
    Leave,
}

/// A job of the file, checked. `Debug` shows the names of the variables in `env`, not their values.
#[derive(Clone, PartialEq, Eq)]
pub struct JobConfig {
    /// The name, unique in the file.
    pub name: Arc<str>,
    /// The times at which the job is due.
    pub schedule: Schedule,
    /// Program and arguments. For a `shell` line, the program is the shell. Empty for a job that sends a request.
    pub command: Vec<String>,
    /// The request that the job sends in place of running a command.
    pub http: Option<HttpJob>,
    /// The exit codes of success; never empty.
    pub ok_exit_codes: Vec<u8>,
    /// The number of bytes at the end of a run's output that the job's history keeps. `None` keeps no
    /// output.
    pub keep_output: Option<usize>,
    /// The rule for processes that the command leaves in the background.
    pub background: Background,
    /// The working directory, made absolute from the directory of the file. `None` means the working
    /// directory of the program itself.
    pub cwd: Option<PathBuf>,
    /// Additional environment variables of the command.
    pub env: BTreeMap<String, String>,
    /// The rule for ticks that no worker could run in time.
    pub misfire: Misfire,
    /// The rule for ticks whose run may have been interrupted: run them again, or not.
    pub delivery: Delivery,
    /// The longest time of an attempt.
    pub timeout: Option<Duration>,
    /// The longest random delay between a tick and the start of its run.
    pub jitter: Duration,
    /// The rule for a tick that is due while an earlier run is active.
    pub overlap: Overlap,
    /// The number of attempts of a run, and the delays between them.
    pub retries: Retry,
    /// The worker on which the job runs: the leader, or any worker.
    pub placement: Placement,
    /// The labels that a worker must have to run the job; none for a job of the leader.
    pub labels: Vec<String>,
    /// The key and the limit of the active runs that the job shares with others.
    pub concurrency: Option<(String, usize)>,
    /// The priority among runs that wait to start. The run with the highest priority starts first.
    pub priority: i32,
    /// The number of entries that the job's history keeps.
    pub history: usize,
    /// The time within which the job is expected to succeed again.
    pub expect_within: Option<Duration>,
    /// The number of failed runs in a row after which the leader pauses the job.
    pub pause_after_failures: Option<u32>,
    /// The URL that the job pings.
    pub ping: Option<PingConfig>,
}

impl fmt::Debug for JobConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobConfig")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .field("command", &self.command)
            .field("http", &self.http)
            .field("ok_exit_codes", &self.ok_exit_codes)
            .field("keep_output", &self.keep_output)
            .field("background", &self.background)
            .field("cwd", &self.cwd)
            .field("env", &self.env.keys())
            .field("misfire", &self.misfire)
            .field("delivery", &self.delivery)
            .field("timeout", &self.timeout)
            .field("jitter", &self.jitter)
            .field("overlap", &self.overlap)
            .field("retries", &self.retries)
            .field("placement", &self.placement)
            .field("labels", &self.labels)
            .field("concurrency", &self.concurrency)
            .field("priority", &self.priority)
            .field("history", &self.history)
            .field("expect_within", &self.expect_within)
            .field("pause_after_failures", &self.pause_after_failures)
            .field("ping", &self.ping)
            .finish()
    }
}

/// Checks each job of the file separately, and then all jobs together.
pub(super) fn check(
    source: &SourceText<'_>,
    jobs: &[Spanned<JobText>],
    lease: LeaseConfig,
) -> Result<Vec<JobConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::new();
    for job in jobs {
        let written = job.as_ref();
        let job_check = JobCheck { source, name: written.name.as_ref(), at: written.name.span(), written };
        checked.push(job_check.check(lease)?);
        if !names.insert(written.name.as_ref()) {
            return Err(job_check.fail(
                job_check.at.clone(),
                "has the same name as a job above, so that their ticks could not be distinguished; rename one",
            ));
        }
    }
    for job in jobs {
        let Some(after) = &job.as_ref().after else { continue };
        let before = &after.as_ref().job;
        if !names.contains(before.as_ref()) {
            let written = job.as_ref();
            let check = JobCheck { source, name: written.name.as_ref(), at: written.name.span(), written };
            let short: String = before.as_ref().chars().take(80).collect();
            let why = format!(
                "runs after the job {short:?}, which the file does not have; add it, or correct the name"
            );
            return Err(check.fail(before.span(), &why));
        }
    }
    check_with_scheduler(source, jobs, &checked)?;
    Ok(checked)
}

/// Reports the errors that only the scheduler can find.
fn check_with_scheduler(
    source: &SourceText<'_>,
    written: &[Spanned<JobText>],
    jobs: &[JobConfig],
) -> Result<(), ConfigError> {
    let idle = |job: &JobConfig| {
        job.with_rules(Job::new(&job.name, job.schedule.clone(), |_| async { Ok::<(), String>(()) }))
    };
    let all: Vec<Job> = jobs.iter().map(idle).collect();
    Scheduler::check_jobs(&all).map_err(|(name, error)| {
        let job = written.iter().find(|job| *name == *job.as_ref().name.as_ref().as_str());
        source.error(job.map(|job| job.as_ref().name.span()), &error.to_string())
    })
}

impl JobConfig {
    /// Returns what a run of the job `name` on the nodes needs of a job whose command this is. The scheduler has its rules.
    pub(crate) fn of_command(name: &Arc<str>, command: Vec<String>) -> Self {
        Self {
            name: Arc::clone(name),
            schedule: quorate::scheduler::Schedule::at(quorate::env::WallTime::default()),
            command,
            http: None,
            ok_exit_codes: vec![0],
            // The scheduler keeps as much as the rules of the job say.
            keep_output: Some(4 << 10),
            background: Background::End,
            cwd: None,
            env: BTreeMap::new(),
            misfire: Misfire::Skip,
            delivery: Delivery::default(),
            timeout: None,
            jitter: Duration::ZERO,
            overlap: Overlap::default(),
            retries: Retry::NONE,
            placement: Placement::default(),
            labels: Vec::new(),
            concurrency: None,
            priority: 0,
            history: 0,
            expect_within: None,
            pause_after_failures: None,
            ping: None,
        }
    }

    /// Returns `job` with the rules that the file sets for it.
    pub(crate) fn with_rules(&self, job: Job) -> Job {
        let job = job
            .misfire(self.misfire)
            .delivery(self.delivery)
            .overlap(self.overlap)
            .jitter(self.jitter)
            .retries(self.retries)
            .on_workers_with(&self.labels)
            .placement(self.placement)
            .priority(self.priority)
            .history(self.history)
            .keep_output(self.keep_output.unwrap_or_default());
        let job = match self.expect_within {
            Some(time) => job.expect_within(time),
            None => job,
        };
        let job = match &self.concurrency {
            Some((key, limit)) => job.concurrency(key, *limit),
            None => job,
        };
        let job = match self.pause_after_failures {
            Some(runs) => job.pause_after_failures(runs),
            None => job,
        };
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
    written: &'a JobText,
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
            || name.contains(['{', '}', '/', '@'])
            || name.chars().any(char::is_control)
        {
            let why = "has a name that cannot be used; give it 1 to 128 bytes without slashes, braces, @ and control characters";
            return Err(self.fail(self.at.clone(), why));
        }
        self.check_env()?;
        let schedule = self.schedule()?;
        let (placement, labels) = self.runs_on()?;
        let http = self.http()?;
        let usual_timeout = http.as_ref().map(|_| HttpJob::TIMEOUT);
        Ok(JobConfig {
            name: name.into(),
            misfire: self.misfire(&schedule, lease)?,
            jitter: self.jitter(&schedule)?,
            expect_within: self.expect_within(&schedule)?,
            ping: self.ping()?,
            schedule,
            command: if http.is_some() { Vec::new() } else { self.command()? },
            ok_exit_codes: self.ok_exit_codes()?,
            keep_output: self.keep_output()?,
            background: match self.written.background {
                Some(BackgroundText::Leave) => Background::Leave,
                Some(BackgroundText::End) | None => Background::End,
            },
            cwd: self.written.cwd.as_deref().map(|cwd| beside(self.source.file, cwd)),
            env: self.written.env.clone(),
            delivery: match self.written.delivery {
                Some(DeliveryText::AtMostOnce) => Delivery::AtMostOnce,
                Some(DeliveryText::AtLeastOnce) => Delivery::AtLeastOnce,
                None => Delivery::default(),
            },
            timeout: self
                .written
                .timeout
                .as_ref()
                .map(|timeout| self.timeout(timeout))
                .transpose()?
                .or(usual_timeout),
            http,
            overlap: self.overlap(),
            retries: self.retries()?,
            placement,
            labels,
            concurrency: self.concurrency()?,
            priority: self.priority()?,
            history: self.history()?,
            pause_after_failures: self.pause_after_failures()?,
        })
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

    fn timeout(&self, timeout: &Time) -> Result<Duration, ConfigError> {
        match **timeout.as_ref() {
            Duration::ZERO => Err(self.fail(
                timeout.span(),
                "has a timeout of 0s; give a longer time, or remove the key for no limit",
            )),
            some => Ok(some),
        }
    }
}
