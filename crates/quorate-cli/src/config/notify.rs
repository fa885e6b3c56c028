//! The receivers of notifications.

use super::{
    ConfigError, JobConfig, Secret, SecretSource,
    error::{SourceText, nearest},
    file::{NotifyText, one_of},
    webhook::{HEADER_FIX, WEBHOOK_EXAMPLE, is_header, is_private, parse_url},
};
use crate::files::beside;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use toml::Spanned;

/// The default time that a receiver has for one notification.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that a receiver may have for one notification.
const TIMEOUT_MAX: Duration = Duration::from_secs(120);
/// The default time without a leader after which a notification is sent.
const NO_LEADER_AFTER: Duration = Duration::from_secs(60);

/// A receiver of notifications: an entry of `[[notify]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyConfig {
    /// The name in logs: `notify 1` for the first entry.
    pub name: Arc<str>,
    /// The events of which the receiver is notified; never empty.
    pub on: BTreeSet<NotifyEvent>,
    /// The jobs whose events count; all jobs if `None`.
    pub jobs: Option<BTreeSet<Arc<str>>>,
    /// The receiver.
    pub to: NotifyTarget,
    /// The time that the receiver has for one attempt.
    pub timeout: Duration,
    /// The time for which a worker must have seen no leader, if the receiver is notified of that.
    pub no_leader_after: Duration,
}

/// An event of which a receiver can be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotifyEvent {
    /// A job has failed.
    Failed,
    /// A job has succeeded, after it had failed or was overdue.
    Recovered,
    /// A job has not succeeded in time.
    Overdue,
    /// The leader has paused a job after failed runs.
    Paused,
    /// There is no leader.
    NoLeader,
}

impl NotifyEvent {
    /// All events.
    pub const ALL: [Self; 5] = [Self::Failed, Self::Recovered, Self::Overdue, Self::Paused, Self::NoLeader];

    /// Returns the name in the file and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Recovered => "recovered",
            Self::Overdue => "overdue",
            Self::Paused => "paused",
            Self::NoLeader => "no-leader",
        }
    }
}

/// The receiver itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NotifyTarget {
    /// A program with arguments.
    Command(Secret<Vec<String>>),
    /// A URL that gets a POST request.
    Webhook {
        /// The URL.
        url: SecretSource,
        /// Header fields whose values are in files.
        header_files: BTreeMap<String, PathBuf>,
        /// The certificate authorities to trust instead of those that the machine trusts.
        ca_file: Option<PathBuf>,
    },
}

impl fmt::Display for NotifyTarget {
    /// Shows the program or the host, and nothing that may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(Secret(words)) => write!(f, "command {}", words.first().map_or("", String::as_str)),
            Self::Webhook { url: SecretSource::Url(Secret(url)), .. } => {
                write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())
            }
            Self::Webhook { url: SecretSource::File(file), .. } => write!(f, "the URL in {}", file.display()),
        }
    }
}

/// Checks the entries of `[[notify]]`.
pub(super) fn check(
    source: &SourceText<'_>,
    entries: &[Spanned<NotifyText>],
    jobs: &[JobConfig],
) -> Result<Vec<NotifyConfig>, ConfigError> {
    let checks = entries.iter().enumerate().map(|(at, entry)| {
        let name = format!("notify {}", at + 1).into();
        NotifyCheck { source, name, at: entry.span(), written: entry.as_ref() }
    });
    checks.map(|check| check.check(jobs)).collect()
}

struct NotifyCheck<'a> {
    source: &'a SourceText<'a>,
    name: Arc<str>,
    at: Range<usize>,
    written: &'a NotifyText,
}

impl NotifyCheck<'_> {
    fn fail(&self, at: Range<usize>, why: &str) -> ConfigError {
        self.source.error(Some(at), &format!("{} {why}", self.name))
    }

    fn check(&self, jobs: &[JobConfig]) -> Result<NotifyConfig, ConfigError> {
        let on = self.on()?;
        Ok(NotifyConfig {
            jobs: self.jobs(jobs)?,
            to: self.target()?,
            timeout: self.timeout()?,
            no_leader_after: self.no_leader_after(&on)?,
            on,
            name: Arc::clone(&self.name),
        })
    }

    fn on(&self) -> Result<BTreeSet<NotifyEvent>, ConfigError> {
        let names = || NotifyEvent::ALL.map(NotifyEvent::as_str);
        let Some(written) = &self.written.on else {
            let why = "has no events; add on = [\"failed\", \"recovered\", \"overdue\", \"no-leader\"]";
            return Err(self.fail(self.at.clone(), why));
        };
        let events = one_of("on", written, &NotifyEvent::ALL, NotifyEvent::as_str);
        events.map_err(|(at, why)| self.fail(at, &format!("{why}; known are {}", names().join(", "))))
    }

    fn jobs(&self, jobs: &[JobConfig]) -> Result<Option<BTreeSet<Arc<str>>>, ConfigError> {
        let Some(written) = &self.written.jobs else { return Ok(None) };
        if written.as_ref().is_empty() {
            return Err(
                self.fail(written.span(), "has an empty list of jobs; name some, or remove `jobs` for all")
            );
        }
        let known = |name: &Spanned<String>| {
            let found = jobs.iter().find(|job| *job.name == **name.as_ref());
            found.map(|job| Arc::clone(&job.name)).ok_or_else(|| {
                let fix = match nearest(name.as_ref(), jobs.iter().map(|job| &*job.name)) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => "name a job of this file".to_owned(),
                };
                let short: String = name.as_ref().chars().take(80).collect();
                self.fail(name.span(), &format!("names the job {short:?}, which does not exist; {fix}"))
            })
        };
        written.as_ref().iter().map(known).collect::<Result<_, _>>().map(Some)
    }

    fn target(&self) -> Result<NotifyTarget, ConfigError> {
        let written = self.written;
        let given = [
            ("command", written.command.as_ref().map(Spanned::span)),
            ("webhook", written.webhook.as_ref().map(Spanned::span)),
            ("webhook_file", written.webhook_file.as_ref().map(Spanned::span)),
        ];
        let given: Vec<_> = given.into_iter().filter_map(|(key, at)| Some((key, at?))).collect();
        match &given[..] {
            [] => {
                let why = "has no receiver; add command = [\"./page.sh\"], webhook = \"https://…\", or webhook_file = \"FILE\" for a URL that is a secret";
                return Err(self.fail(self.at.clone(), why));
            }
            [(one, _), (other, at), ..] => {
                let why = format!(
                    "has `{one}` and `{other}`; keep one of them, and add another [[notify]] for the other"
                );
                return Err(self.fail(at.clone(), &why));
            }
            [_] => {}
        }
        if let Some(command) = &written.command {
            return self.command(command);
        }
        let url = match (&written.webhook, &written.webhook_file) {
            (Some(url), _) => {
                let parsed = parse_url(&url.as_ref().0, WEBHOOK_EXAMPLE)
                    .map_err(|why| self.fail(url.span(), &format!("has a webhook that {why}")))?;
                if !written.header_files.is_empty() && !is_private(&parsed) {
                    let why = "has header_files and a webhook without TLS, so that everybody on the network could read the headers; use https";
                    return Err(self.fail(url.span(), why));
                }
                SecretSource::Url(Secret(parsed))
            }
            (None, Some(file)) => SecretSource::File(beside(self.source.file, file.as_ref())),
            (None, None) => return Err(self.fail(self.at.clone(), "has no receiver")),
        };
        let here = |file: &PathBuf| beside(self.source.file, file);
        let headers = written.header_files.iter().map(|(name, file)| Ok((self.header(name)?, here(file))));
        let header_files = headers.collect::<Result<_, _>>()?;
        Ok(NotifyTarget::Webhook { url, header_files, ca_file: written.ca_file.as_ref().map(here) })
    }

    fn command(&self, command: &Spanned<Vec<String>>) -> Result<NotifyTarget, ConfigError> {
        let words = command.as_ref();
        if words.first().is_none_or(|program| program.trim().is_empty())
            || words.iter().any(|word| word.contains('\0'))
        {
            let why = "has an empty command, or one with a NUL in it; give program and arguments, like [\"./page.sh\"]";
            return Err(self.fail(command.span(), why));
        }
        if !self.written.header_files.is_empty() || self.written.ca_file.is_some() {
            let why = "has a command, and header_files or ca_file, which only a webhook uses; remove them";
            return Err(self.fail(command.span(), why));
        }
        Ok(NotifyTarget::Command(Secret(words.clone())))
    }

    fn header(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        let text = name.as_ref();
        if !is_header(text) {
            let why = format!("has the header {text:?} in header_files, {HEADER_FIX}");
            return Err(self.fail(name.span(), &why));
        }
        Ok(text.clone())
    }

    fn timeout(&self) -> Result<Duration, ConfigError> {
        let Some(written) = &self.written.timeout else { return Ok(TIMEOUT) };
        match **written.as_ref() {
            time if time.is_zero() || time > TIMEOUT_MAX => Err(self.fail(
                written.span(),
                &format!("has a timeout of {time:?}; give it more than 0s, and at most {TIMEOUT_MAX:?}"),
            )),
            time => Ok(time),
        }
    }

    fn no_leader_after(&self, on: &BTreeSet<NotifyEvent>) -> Result<Duration, ConfigError> {
        let Some(written) = &self.written.no_leader_after else { return Ok(NO_LEADER_AFTER) };
        match **written.as_ref() {
            time if !on.contains(&NotifyEvent::NoLeader) => {
                let why = format!(
                    "has no_leader_after = {time:?}, but no \"no-leader\" in `on`, so that it has no effect; add the event, or remove the key"
                );
                Err(self.fail(written.span(), &why))
            }
            time if time < Duration::from_secs(1) => {
                let why = format!(
                    "has no_leader_after = {time:?}; give it at least 1s, and more than the lease's ttl, which a change of the leader may take"
                );
                Err(self.fail(written.span(), &why))
            }
            time => Ok(time),
        }
    }
}

impl fmt::Display for NotifyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
