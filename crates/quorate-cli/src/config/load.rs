use super::{
    ConfigError, ElectionConfig, Environment, Flags, HttpConfig, JobConfig, LeaseConfig, NodeSpec, NodesFrom,
    NotifyConfig, OtlpConfig, OutputConfig, ServeConfig, TlsFiles, error::SourceText, file::FileText, job,
    notify, source, validation::Validation,
};
use quorate::quorum::QuorumConfig;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

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
    /// The person who runs the program, as USER@HOST.
    pub person: String,
    /// The TLS files for nodes that name none of their own.
    pub tls: TlsFiles,
    /// The prefix of all keys.
    pub prefix: Arc<str>,
    /// The settings of the quorum, and the name of this worker.
    pub settings: QuorumConfig,
    /// The lease of the leader.
    pub lease: LeaseConfig,
    /// The preference for this worker as the leader.
    pub election: ElectionConfig,
    /// The group in which this worker is a candidate; required by `run`.
    pub group: Option<Arc<str>>,
    /// The largest number of concurrent runs of all jobs on this worker; no limit if `None`.
    pub max_running: Option<usize>,
    /// The labels of this worker.
    pub labels: Vec<String>,
    /// The commands that jobs on the nodes may run, by the names of their handlers.
    pub commands: BTreeMap<Arc<str>, Vec<String>>,
    /// The HTTP server; `None` if there is none.
    pub http: Option<HttpConfig>,
    /// The clients that `quorate serve` serves; `None` if there are none.
    pub serve: Option<ServeConfig>,
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

impl Config {
    /// Reads flags, environment and file.
    ///
    /// # Errors
    /// [`ConfigError`] names the key, the value and the fix, and the file and line where they are known.
    pub fn load(flags: &Flags, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        source::check_variables(environment)?;
        let found = source::find_file(flags, environment)?;
        let source = found.as_ref().map(|(path, text)| SourceText { file: path, text });
        let file_text = match &source {
            Some(source) => source.read()?,
            None => FileText::default(),
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
        let source = SourceText { file: &path, text: &text };
        let file_text = source.read()?;
        let lease = file_text.lease(&file_text.quorum_config("unused"));
        let validation = Validation { source: Some(source), file_text: &file_text };
        let (group, jobs) = (validation.group()?, validation.jobs(lease)?);
        Ok(Some(JobsFile { path, group, jobs }))
    }

    /// Returns the group and the jobs for `run`, which requires the group, and jobs or commands for jobs on the nodes.
    ///
    /// # Errors
    /// [`ConfigError`] if the group is missing, or if there is neither a job nor a command.
    pub fn group_with_jobs(&self) -> Result<(&Arc<str>, &[JobConfig]), ConfigError> {
        let at = |text: &str| ConfigError::new(self.file.as_deref(), None, text);
        let Some(group) = &self.group else {
            return Err(at(
                "`group` is missing; name the group of candidates of this worker, such as group = \"billing\"",
            ));
        };
        if self.jobs.is_empty() && self.commands.is_empty() {
            return Err(at("there is no job; add a [[job]] with name, schedule (or every) and command"));
        }
        Ok((group, &self.jobs))
    }
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
            election: self.election()?,
            max_running: self.max_running()?,
            labels: self.labels()?,
            commands: self.commands()?,
            person: environment.person(),
            http: self.http(flags)?,
            serve: self.serve(flags)?,
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
