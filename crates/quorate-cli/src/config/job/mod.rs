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
    file::{BackgroundText, JobText},
    secret::Secret,
};
use crate::files::beside;
use quorate::{
    internals::JobRules,
    scheduler::{Job, Schedule, Scheduler},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::PathBuf,
    sync::Arc,
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

/// A job of the file, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The rule for processes that the command leaves in the background.
    pub background: Background,
    /// The working directory, made absolute from the directory of the file. `None` means the working
    /// directory of the program itself.
    pub cwd: Option<PathBuf>,
    /// Additional environment variables of the command.
    pub env: BTreeMap<String, Secret<String>>,
    /// The rules that the scheduler follows.
    pub rules: JobRules,
    /// The URL that the job pings.
    pub ping: Option<PingConfig>,
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
        Job::new(&job.name, job.schedule.clone(), |_| async { Ok::<(), String>(()) })
            .with_rules(job.rules.clone())
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
            background: Background::End,
            cwd: None,
            env: BTreeMap::new(),
            // The scheduler keeps as much as the rules of the job say.
            rules: JobRules { keep_output: 4 << 10, ..JobRules::default() },
            ping: None,
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
        let http = self.http()?;
        let mut rules = self.rules(&schedule, lease)?;
        rules.timeout = rules.timeout.or(http.as_ref().map(|_| HttpJob::TIMEOUT));
        Ok(JobConfig {
            name: name.into(),
            ping: self.ping()?,
            schedule,
            command: if http.is_some() { Vec::new() } else { self.command()? },
            ok_exit_codes: self.ok_exit_codes()?,
            background: match self.written.background {
                Some(BackgroundText::Leave) => Background::Leave,
                Some(BackgroundText::End) | None => Background::End,
            },
            cwd: self.written.cwd.as_deref().map(|cwd| beside(self.source.file, cwd)),
            env: self.written.env.clone(),
            http,
            rules,
        })
    }
}
