//! What the program is told: flags, environment and one file, read and checked before anything starts.
//!
//! # What is not guaranteed
//!
//! A configuration that passes is possible, not wise: whether the nodes answer, whether all workers have the
//! same list, and whether a command can be started is found out later. Passwords in URLs are kept and handed
//! on but shown by nothing here; a password *file* is not opened here.
//!
//! # Where things come from
//!
//! | what | in this order |
//! | --- | --- |
//! | the file | `--config`, `QUORATE_CONFIG`, `$XDG_CONFIG_HOME/quorate/quorate.toml` (else `~/.config/…`), `/etc/quorate/quorate.toml` |
//! | the nodes | `--nodes` or `--local`, `QUORATE_NODES`, the file's `nodes` |
//! | the files of TLS | the node's own (its URL's options or its table), `--ca-file`, `QUORATE_CA_FILE`, the file's `tls`; `--cert-file` and `--key-file` likewise |
//! | the prefix | `--prefix`, the file's `prefix`, `quorate:` |
//!
//! A relative path is meant from the directory of the file that it is in, else from the working directory.
//!
//! No default stands in for a list of nodes: a list misspelt on three machines must not make three leaders.
//! For the same reason a `QUORATE_…` variable that nobody knows is an error.

mod changes;
mod error;
mod file;
mod job;
mod nodes;
mod source;
mod tls;

pub use error::ConfigError;
pub use job::JobConfig;
pub(crate) use nodes::redact;
pub use nodes::{NodeError, NodeSpec, SecretUrl};
pub(crate) use source::NODES_VARIABLE;
pub use source::{Environment, Flags, NodesFrom, Secret};
pub use tls::{TlsFiles, TlsNames};

use quorate::{node::Resource, quorum::QuorumConfig};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// What keys begin with unless told otherwise.
pub const PREFIX: &str = "quorate:";

/// The shortest `ledger_retention`. Workers vouch for their jobs at least every two hours, and may differ in it during a
/// rolling change.
const LEDGER_RETENTION_MIN: Duration = Duration::from_secs(24 * 3600);

/// Everything the program was told, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file that was read, where one was.
    pub file: Option<PathBuf>,
    /// The nodes, at least one, no two with one name.
    pub nodes: Vec<NodeSpec>,
    /// Who named them.
    pub nodes_from: NodesFrom,
    /// The files of TLS for nodes that name none of their own.
    pub tls: TlsFiles,
    /// What all keys begin with.
    pub prefix: Arc<str>,
    /// What a deployment agrees on, and this worker's name.
    pub setup: QuorumConfig,
    /// The leadership's lease.
    pub lease: LeaseConfig,
    /// Who competes with whom; needed by `run`.
    pub group: Option<Arc<str>>,
    /// How many runs of all jobs there are at once, at most; no limit where `None`.
    pub max_running: Option<usize>,
    /// The jobs, in the order of the file.
    pub jobs: Vec<JobConfig>,
}

/// What a file says of jobs, without the nodes.
#[derive(Debug)]
pub(crate) struct JobsFile {
    pub(crate) path: PathBuf,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) jobs: Vec<JobConfig>,
}

/// The timings of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// For how long each extension holds, and so how long a crashed leader blocks the others.
    pub ttl: Duration,
    /// How long before the end of validity the work is told to stop.
    pub step_down_grace: Duration,
}

impl Config {
    /// Reads what flags, environment and file say.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file and the line where it can, the key, the value and the mend.
    pub fn load(flags: &Flags, around: &Environment<'_>) -> Result<Self, ConfigError> {
        source::check_variables(around)?;
        let found = source::find_file(flags, around)?;
        let page = found.as_ref().map(|(path, text)| error::Page { file: path, text });
        let told = match &page {
            Some(page) => page.read()?,
            None => file::FileText::default(),
        };
        let (nodes, nodes_from) = source::find_nodes(flags, around, page.as_ref(), &told)?;
        let tls = source::find_tls(flags, around, page.as_ref(), &told)?;
        Reading { page, told: &told }.check(flags, around, (nodes, nodes_from), tls)
    }

    /// The jobs of the file alone, and where it is: for what needs no node. `None` where there is no file.
    ///
    /// # Errors
    /// As [`Config::load`], but for the nodes.
    pub(crate) fn jobs_of_file(
        flags: &Flags,
        around: &Environment<'_>,
    ) -> Result<Option<JobsFile>, ConfigError> {
        source::check_variables(around)?;
        let Some((path, text)) = source::find_file(flags, around)? else { return Ok(None) };
        let page = error::Page { file: &path, text: &text };
        let told = page.read()?;
        let lease = told.lease(&told.quorum_config("anybody"));
        let reading = Reading { page: Some(page), told: &told };
        let (group, jobs) = (reading.group()?, reading.jobs(lease)?);
        Ok(Some(JobsFile { path, group, jobs }))
    }

    /// What `run` needs besides: a group and at least one job.
    ///
    /// # Errors
    /// [`ConfigError`] where one of them is missing.
    pub fn group_with_jobs(&self) -> Result<(&Arc<str>, &[JobConfig]), ConfigError> {
        let at = |text: &str| ConfigError::new(self.file.as_deref(), None, text);
        let Some(group) = &self.group else {
            return Err(at("`group` is missing; name who competes with whom, such as group = \"billing\""));
        };
        if self.jobs.is_empty() {
            return Err(at("there is no job; add a [[job]] with name, schedule (or every) and command"));
        }
        Ok((group, &self.jobs))
    }
}

/// The checks that need more than one key.
struct Reading<'a> {
    page: Option<error::Page<'a>>,
    told: &'a file::FileText,
}

impl Reading<'_> {
    fn check(
        self,
        flags: &Flags,
        around: &Environment<'_>,
        (nodes, nodes_from): (Vec<NodeSpec>, NodesFrom),
        tls: TlsFiles,
    ) -> Result<Config, ConfigError> {
        let mut setup = self.told.quorum_config(&format!("{}-{}", around.host, around.pid));
        // One user's directory on one host: a newcomer's first lock need not wait for memories that another
        // machine may have of it. (Do not delete the directory while something holds a lock in it.)
        setup.trust_new_nodes |= nodes_from == NodesFrom::Local;
        let names: Vec<Arc<str>> = nodes.iter().map(NodeSpec::name).collect();
        setup.validate(&names).map_err(|error| self.setting(&error.to_string(), &nodes_from))?;
        if setup.ledger_retention < LEDGER_RETENTION_MIN {
            let text = format!(
                "ledger_retention is {:?}; give it at least 1day: a worker with less would take the jobs of workers with \
                 more for removed ones",
                setup.ledger_retention
            );
            return Err(self.setting(&text, &nodes_from));
        }
        let lease = self.told.lease(&setup);
        setup
            .validate_lease(lease.ttl, lease.step_down_grace, true)
            .map_err(|error| self.setting(&error.to_string(), &nodes_from))?;
        Ok(Config {
            file: self.page.as_ref().map(|page| page.file.to_owned()),
            prefix: self.prefix(flags)?,
            group: self.group()?,
            max_running: self.max_running()?,
            jobs: self.jobs(lease)?,
            nodes,
            nodes_from,
            tls,
            setup,
            lease,
        })
    }

    /// An error of the library's, which begins with the name of the setting: finds its line.
    fn setting(&self, text: &str, nodes_from: &NodesFrom) -> ConfigError {
        let key = text.split_whitespace().next().unwrap_or_default();
        if key == "nodes" && !matches!(nodes_from, NodesFrom::File(_)) {
            return ConfigError::bare(&format!("{nodes_from}: {text}"));
        }
        match &self.page {
            Some(page) => page.error(self.told.span_of(key), text),
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
        match (&self.told.prefix, &self.page) {
            (Some(prefix), Some(page)) if wrong(prefix.as_ref()) => {
                Err(page.error(Some(prefix.span()), &format!("prefix {:?} {WHY}", prefix.as_ref())))
            }
            (Some(prefix), _) => Ok(prefix.as_ref().as_str().into()),
            (None, _) => Ok(PREFIX.into()),
        }
    }

    fn group(&self) -> Result<Option<Arc<str>>, ConfigError> {
        let (Some(group), Some(page)) = (&self.told.group, &self.page) else { return Ok(None) };
        Resource::election(group.as_ref())
            .map_err(|error| page.error(Some(group.span()), &error.to_string()))?;
        Ok(Some(group.as_ref().as_str().into()))
    }

    fn max_running(&self) -> Result<Option<usize>, ConfigError> {
        let (Some(told), Some(page)) = (&self.told.max_running, &self.page) else { return Ok(None) };
        match usize::try_from(*told.as_ref()) {
            Ok(most @ 1..) => Ok(Some(most)),
            _ => {
                let text = format!(
                    "max_running is {}; give it 1 or more, or take the key out for no limit",
                    told.as_ref()
                );
                Err(page.error(Some(told.span()), &text))
            }
        }
    }

    fn jobs(&self, lease: LeaseConfig) -> Result<Vec<JobConfig>, ConfigError> {
        match &self.page {
            Some(page) => job::check(page, &self.told.job, lease),
            None => Ok(Vec::new()),
        }
    }
}

/// A path as written in a file is meant from the file's own directory.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().map_or_else(|| path.to_owned(), |directory| directory.join(path))
}

#[cfg(test)]
mod tests;
