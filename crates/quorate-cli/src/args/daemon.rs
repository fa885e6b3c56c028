use super::NodeArgs;
use crate::config::Flags;
use clap::{Args, ValueEnum};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The level from which log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Failures only.
    Error,
    /// Failures, and conditions that may lead to a failure.
    Warn,
    /// All of the above, and changes of state.
    Info,
    /// All of the above, and details for diagnosis.
    Debug,
    /// Everything.
    Trace,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate run --config /etc/quorate/quorate.toml
  # only check the file, and show when each job is next due
  quorate run --check --config quorate.toml
  # the page, metrics, health checks and the API on http://127.0.0.1:9640
  quorate run --config quorate.toml --listen 127.0.0.1:9640

Run it on several machines with the same file. On SIGTERM or SIGINT the daemon
resigns: its commands get SIGTERM, those that still run at the end of
lease.step_down_grace get SIGKILL, then the lease is released. That takes at most
the grace and one second. On SIGHUP, or when the file changes, the daemon reloads
the jobs, and a leader stays leader. A file with an error, or a file system that
does not answer within 5 s, changes nothing. Under systemd the daemon reports
when it is ready, reloads and stops, and serves the watchdog.

A daemon whose main loop is blocked stops extending its lease, so that another
worker leads. SIGTERM ends it at the latest 10 s after the grace (exit status
125). Lines of the log, and of the commands' output, are dropped while standard
error or standard output is not read, and counted. Each line of a command's output is printed with the time, the job, the run
and the stream, and without control characters; with --log-format json it is a
JSON object. `output` in the file also keeps the lines in a file for each run.

A command has these variables in its environment: QUORATE_JOB, QUORATE_TICK (RFC
3339), QUORATE_CAUSE, QUORATE_ATTEMPT, QUORATE_RESOURCE, QUORATE_FENCING_TOKEN,
with a timeout QUORATE_DEADLINE, and in a run on request QUORATE_REQUEST, the id
of the request. It runs under a supervisor process, which
ends it in time even if quorate is killed, stopped or stuck. It does not inherit
QUORATE_NODES, which may contain passwords: a job that calls quorate itself
inherits QUORATE_CONFIG, or sets QUORATE_NODES in its `env`. While a process that
a command started cannot be ended (it belongs to another user), the lease is not
released early, and the run counts as failed.

Exit status: 0 after SIGTERM or SIGINT; 78 configuration, or a majority of the
nodes refuses this user, node list or setting; 125 quorate failed.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Check the file, print what it means, and exit
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl RunArgs {
    pub(crate) fn flags(&self) -> Flags {
        self.listen.add_to(self.nodes.flags())
    }
}

/// The address of the HTTP server.
#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Serve the operator's page, metrics, health checks and the API over HTTP on this address [default: http.listen of the file, or none]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
}

impl ListenArgs {
    pub(in crate::args) fn add_to(&self, flags: Flags) -> Flags {
        Flags { listen: self.listen.clone(), ..flags }
    }
}

/// The log lines of a daemon.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// The format of log lines
    #[arg(long = "log-format", value_enum, default_value = "text")]
    pub(crate) format: LogFormat,
    /// The level from which log lines are written
    #[arg(long = "log-level", value_enum, default_value = "info")]
    pub(crate) level: LogLevel,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # a load balancer sends requests to the copy whose /leader answers 200
  quorate lead --nodes redis://a,redis://b,redis://c --group billing --listen 127.0.0.1:9640
  curl -f http://127.0.0.1:9640/leader

Start it next to each copy of a service, with the same group. It campaigns for
the leadership of the group, and does nothing as the leader. GET /leader answers
200 where this process leads, and 503 elsewhere, with the leader in JSON. On
SIGTERM or SIGINT it resigns. It has the same endpoints as `quorate run --listen`.
It runs no jobs and sends no notifications: it refuses the group of a file that
has jobs, and [[notify]] has no effect.

A 200 is only as new as the request: the leader may lose its lease before the
service acts. Let the target of a write compare the term in the answer.

Exit status: 0 after SIGTERM or SIGINT; 78 configuration, or a majority of the
nodes refuses this user, node list or setting; 125 quorate failed.")]
pub(crate) struct LeadArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group whose leader is elected [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl LeadArgs {
    pub(crate) fn flags(&self) -> Flags {
        self.listen.add_to(self.nodes.flags())
    }
}
