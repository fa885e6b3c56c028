//! The configuration: flags, environment and one file, read and checked before anything starts.
//!
//! # What is not guaranteed
//!
//! A configuration that passes the checks is valid, but may still be wrong. The checks do not find out
//! whether the nodes answer, whether all workers have the same list, and whether a command can be started.
//! Passwords in URLs are kept and passed on, but never shown. A password *file* is not opened here.
//!
//! # Sources
//!
//! | setting | sources, the first that has it |
//! | --- | --- |
//! | the file | `--config`, `QUORATE_CONFIG`, `$XDG_CONFIG_HOME/quorate/quorate.toml` (else `~/.config/…`), `/etc/quorate/quorate.toml` |
//! | the nodes | `--nodes` or `--local`, `QUORATE_NODES`, `nodes` in the file |
//! | the TLS files | the node's own (options of its URL, or its table), `--ca-file`, `QUORATE_CA_FILE`, `tls` in the file; `--cert-file` and `--key-file` likewise |
//! | the prefix | `--prefix`, `prefix` in the file, `quorate:` |
//! | the address of the HTTP server | `--listen`, `http.listen` in the file, no server |
//!
//! A relative path in a file is relative to the directory of that file. Any other relative path is relative
//! to the working directory.
//!
//! There is no default list of nodes. With a default, three machines on which the setting is misspelt could
//! each use a node of their own, and so have three leaders. For the same reason an unknown `QUORATE_…`
//! variable is an error.

mod changes;
mod error;
mod file;
mod http;
mod job;
mod node_files;
mod nodes;
mod notify;
mod otlp;
mod output;
mod secret_files;
mod source;
mod tls;

pub use error::ConfigError;
pub(crate) use error::nearest;
pub use http::HttpConfig;
pub use job::{Background, JobConfig};
pub(crate) use nodes::redact;
pub use nodes::{NodeError, NodeSpec, SecretUrl};
pub use notify::{NotifyConfig, NotifyEvent, NotifyTarget, PingConfig, PingEvent, SecretSource};
pub(crate) use notify::{WEBHOOK_EXAMPLE, is_private, parse_url};
pub use otlp::OtlpConfig;
pub use output::OutputConfig;
pub(crate) use source::{COMMAND_VARIABLES, NODES_VARIABLE};
pub use source::{Environment, Flags, NodesFrom, Secret};
pub use tls::{TlsFiles, TlsNames};

use quorate::{node::Resource, quorum::QuorumConfig};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The default prefix of keys.
pub const PREFIX: &str = "quorate:";

/// The shortest `ledger_retention` that is accepted. A worker records that it still has its jobs, but up to two
/// hours may pass between two such records. During a rolling change, another worker may have a shorter retention.
/// If that were less than two hours, the other worker could treat these jobs as removed.
const LEDGER_RETENTION_MIN: Duration = Duration::from_secs(24 * 3600);

/// The whole configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The path of the file, if one was read.
    pub file: Option<PathBuf>,
    /// The nodes: at least one, no two with the same name.
    pub nodes: Vec<NodeSpec>,
    /// The source of the list of nodes.
    pub nodes_from: NodesFrom,
    /// The TLS files for nodes that name none of their own.
    pub tls: TlsFiles,
    /// The prefix of all keys.
    pub prefix: Arc<str>,
    /// The settings of the quorum, and the name of this worker.
    pub settings: QuorumConfig,
    /// The lease of the leader.
    pub lease: LeaseConfig,
    /// The group in which this worker is a candidate; required by `run`.
    pub group: Option<Arc<str>>,
    /// The largest number of concurrent runs of all jobs; no limit if `None`.
    pub max_running: Option<usize>,
    /// The HTTP server; `None` if there is none.
    pub http: Option<HttpConfig>,
    /// The jobs, in the order of the file.
    pub jobs: Vec<JobConfig>,
    /// The files that keep the output of runs; `None` if there are none.
    pub output: Option<OutputConfig>,
    /// The collector that gets traces and metrics; `None` if there is none.
    pub otlp: Option<OtlpConfig>,
    /// The receivers of notifications, in the order of the file.
    pub notify: Vec<NotifyConfig>,
}

/// The jobs of a file, without its nodes.
#[derive(Debug)]
pub(crate) struct JobsFile {
    pub(crate) path: PathBuf,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) jobs: Vec<JobConfig>,
}

/// The timing of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The time for which each extension lasts. So it is also the time for which a crashed leader blocks the
    /// other workers.
    pub ttl: Duration,
    /// The time between step-down and the end of validity.
    pub step_down_grace: Duration,
}

impl Config {
    /// Reads flags, environment and file.
    ///
    /// # Errors
    /// [`ConfigError`] names the key, the value and the fix, and the file and line where they are known.
    pub fn load(flags: &Flags, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        source::check_variables(environment)?;
        let found = source::find_file(flags, environment)?;
        let source = found.as_ref().map(|(path, text)| error::SourceText { file: path, text });
        let file_text = match &source {
            Some(source) => source.read()?,
            None => file::FileText::default(),
        };
        let (nodes, nodes_from) = source::find_nodes(flags, environment, source.as_ref(), &file_text)?;
        let tls = source::find_tls(flags, environment, source.as_ref(), &file_text)?;
        Validation { source, file_text: &file_text }.check(flags, environment, (nodes, nodes_from), tls)
    }

    /// Returns the jobs of the file alone, for a command that needs no nodes. Returns `None` if there is no file.
    ///
    /// # Errors
    /// As [`Config::load`], except for errors in the nodes.
    pub(crate) fn jobs_of_file(
        flags: &Flags,
        environment: &Environment<'_>,
    ) -> Result<Option<JobsFile>, ConfigError> {
        source::check_variables(environment)?;
        let Some((path, text)) = source::find_file(flags, environment)? else { return Ok(None) };
        let source = error::SourceText { file: &path, text: &text };
        let file_text = source.read()?;
        let lease = file_text.lease(&file_text.quorum_config("unused"));
        let validation = Validation { source: Some(source), file_text: &file_text };
        let (group, jobs) = (validation.group()?, validation.jobs(lease)?);
        Ok(Some(JobsFile { path, group, jobs }))
    }

    /// Returns the group and the jobs, both of which `run` requires.
    ///
    /// # Errors
    /// [`ConfigError`] if the group is missing, or if there is no job.
    pub fn group_with_jobs(&self) -> Result<(&Arc<str>, &[JobConfig]), ConfigError> {
        let at = |text: &str| ConfigError::new(self.file.as_deref(), None, text);
        let Some(group) = &self.group else {
            return Err(at(
                "`group` is missing; name the group of candidates of this worker, such as group = \"billing\"",
            ));
        };
        if self.jobs.is_empty() {
            return Err(at("there is no job; add a [[job]] with name, schedule (or every) and command"));
        }
        Ok((group, &self.jobs))
    }
}

/// Checks the settings that depend on more than one key of the file.
struct Validation<'a> {
    source: Option<error::SourceText<'a>>,
    file_text: &'a file::FileText,
}

impl Validation<'_> {
    fn check(
        self,
        flags: &Flags,
        environment: &Environment<'_>,
        (nodes, nodes_from): (Vec<NodeSpec>, NodesFrom),
        tls: TlsFiles,
    ) -> Result<Config, ConfigError> {
        let worker = match environment.pid {
            // In a container the host and this id may be those of another container.
            1 => QuorumConfig::default().worker.to_string(),
            pid => format!("{}-{pid}", environment.host),
        };
        let mut settings = self.file_text.quorum_config(&worker);
        // The directory belongs to one user of one host, so no other machine can have granted a lease on it.
        // Therefore its node is trusted at once, and the first lock does not wait for a quarantine. (The
        // directory must not be deleted while a lock in it is held.)
        settings.trust_new_nodes |= nodes_from == NodesFrom::Local;
        let names: Vec<Arc<str>> = nodes.iter().map(NodeSpec::name).collect();
        settings.validate(&names).map_err(|error| self.setting(&error.to_string(), &nodes_from))?;
        if settings.ledger_retention < LEDGER_RETENTION_MIN {
            let text = format!(
                "ledger_retention is {:?}; give it at least 1day: a worker with less would treat the jobs of workers with \
                 more as removed",
                settings.ledger_retention
            );
            return Err(self.setting(&text, &nodes_from));
        }
        let lease = self.file_text.lease(&settings);
        settings
            .validate_lease(lease.ttl, lease.step_down_grace, true)
            .map_err(|error| self.setting(&error.to_string(), &nodes_from))?;
        let jobs = self.jobs(lease)?;
        Ok(Config {
            notify: self.notify(&jobs)?,
            file: self.source.as_ref().map(|source| source.file.to_owned()),
            prefix: self.prefix(flags)?,
            group: self.group()?,
            max_running: self.max_running()?,
            http: self.http(flags)?,
            output: self.output()?,
            otlp: self.otlp()?,
            jobs,
            nodes,
            nodes_from,
            tls,
            settings,
            lease,
        })
    }

    /// Adds the line of a setting to an error of the library. The text of the error begins with the setting's
    /// name.
    fn setting(&self, text: &str, nodes_from: &NodesFrom) -> ConfigError {
        let key = text.split_whitespace().next().unwrap_or_default();
        if key == "nodes" && !matches!(nodes_from, NodesFrom::File(_)) {
            return ConfigError::bare(&format!("{nodes_from}: {text}"));
        }
        match &self.source {
            Some(source) => source.error(self.file_text.span_of(key), text),
            None => ConfigError::bare(text),
        }
    }

    fn prefix(&self, flags: &Flags) -> Result<Arc<str>, ConfigError> {
        let wrong = |prefix: &str| prefix.contains(['{', '}']) || prefix.chars().any(char::is_control);
        const WHY: &str = "holds a brace or a control character; use letters, digits, `-`, `:` or `/`";
        if let Some(prefix) = &flags.prefix {
            return match wrong(prefix) {
                true => Err(ConfigError::bare(&format!("--prefix {prefix:?} {WHY}"))),
                false => Ok(prefix.as_str().into()),
            };
        }
        match (&self.file_text.prefix, &self.source) {
            (Some(prefix), Some(source)) if wrong(prefix.as_ref()) => {
                Err(source.error(Some(prefix.span()), &format!("prefix {:?} {WHY}", prefix.as_ref())))
            }
            (Some(prefix), _) => Ok(prefix.as_ref().as_str().into()),
            (None, _) => Ok(PREFIX.into()),
        }
    }

    fn group(&self) -> Result<Option<Arc<str>>, ConfigError> {
        let (Some(group), Some(source)) = (&self.file_text.group, &self.source) else { return Ok(None) };
        Resource::election(group.as_ref())
            .map_err(|error| source.error(Some(group.span()), &error.to_string()))?;
        Ok(Some(group.as_ref().as_str().into()))
    }

    fn max_running(&self) -> Result<Option<usize>, ConfigError> {
        let (Some(written), Some(source)) = (&self.file_text.max_running, &self.source) else {
            return Ok(None);
        };
        match usize::try_from(*written.as_ref()) {
            Ok(most @ 1..) => Ok(Some(most)),
            _ => {
                let text = format!(
                    "max_running is {}; give it 1 or more, or remove the key for no limit",
                    written.as_ref()
                );
                Err(source.error(Some(written.span()), &text))
            }
        }
    }

    fn notify(&self, jobs: &[JobConfig]) -> Result<Vec<NotifyConfig>, ConfigError> {
        match &self.source {
            Some(source) => notify::check(source, &self.file_text.notify, jobs),
            None => Ok(Vec::new()),
        }
    }

    fn jobs(&self, lease: LeaseConfig) -> Result<Vec<JobConfig>, ConfigError> {
        match &self.source {
            Some(source) => job::check(source, &self.file_text.job, lease),
            None => Ok(Vec::new()),
        }
    }
}

/// Returns `path` as `file` means it: a relative path starts at the directory of `file`.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().map_or_else(|| path.to_owned(), |directory| directory.join(path))
}

#[cfg(test)]
mod notify_tests;
#[cfg(test)]
mod tests;
