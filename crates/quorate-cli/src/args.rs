mod jobs;

pub(crate) use jobs::{
    AskArgs, BackfillArgs, CancelArgs, GroupArgs, HistoryArgs, JobsCommand, ListJobsArgs, NextArgs, ShowArgs,
    WaitArgs,
};

use crate::config::{Flags, Secret, TlsNames, redact};
use clap::{Args, Parser, Subcommand, ValueEnum};
use quorate::plain::plain;
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// The longest line of an error that repeats what was typed, in bytes.
const LINE_MAX: usize = 1_000;

/// The command line, as clap reads it.
#[derive(Debug, Parser)]
#[command(
    name = "quorate",
    version,
    about = "Lets several copies of a service agree on which of them does the work",
    long_about = "Lets several copies of a service agree, through a majority of independent Redis servers (or of \
                  directories on one host), on which of them leads, runs a job or handles a message.",
    after_long_help = "\
Examples:
  # see it work: three workers, five nodes, two kills
  quorate demo
  # a command on one machine of several
  quorate exec --nodes redis://a,redis://b,redis://c --lock nightly -- ./report
  # the jobs of the file, on whichever machine leads
  quorate run --config /etc/quorate/quorate.toml
  # who votes, who leads, for how long yet
  quorate status --config quorate.toml

Where the nodes come from, the first that names any: --nodes, --local,
QUORATE_NODES, the file of --config or QUORATE_CONFIG,
~/.config/quorate/quorate.toml, /etc/quorate/quorate.toml.

Where the files of TLS come from, the first that names one: the node itself
(rediss://HOST?ca_file=FILE&cert_file=FILE&key_file=FILE, or its table in the
file), --ca-file and the like, QUORATE_CA_FILE and the like, the file's tls. They
are read at every connection, so that a renewed certificate needs no restart.

A lock cannot give exactly-once effects alone: a command may be paused between
its last look and its write. Compare QUORATE_FENCING_TOKEN in the place that
the command writes to."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Why there is no command line to follow.
#[derive(Debug)]
pub(crate) struct Unread {
    /// What to print. No node's password is in it.
    pub(crate) text: String,
    /// Whether this is the help or version that was asked for, and no error.
    pub(crate) asked_for: bool,
}

impl Cli {
    /// Reads the arguments, of which the first is the program's name.
    pub(crate) fn read(args: &[OsString]) -> Result<Self, Unread> {
        Self::try_parse_from(args).map_err(|error| {
            let mut text = error.render().to_string();
            // clap repeats what it could not place, and a node's URL in the wrong place has its password too.
            for arg in args.iter().skip(1) {
                let arg = arg.to_string_lossy();
                let value = arg.split_once('=').map(|(_, value)| value);
                for part in [Some(&*arg), value].into_iter().flatten() {
                    if part.contains("://") || part.contains('@') {
                        text = text.replace(part, &redact(part));
                    }
                }
            }
            let text: String = text.split_inclusive('\n').map(line_of).collect();
            Unread { text, asked_for: !error.use_stderr() }
        })
    }
}

/// A line of help or of an error, which may repeat what somebody typed.
fn line_of(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => plain(line, LINE_MAX) + "\n",
        None => plain(line, LINE_MAX),
    }
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a failover: real worker processes, five nodes, a leader killed twice
    Demo(DemoArgs),
    /// Run the jobs of a configuration file on whichever machine leads
    Run(RunArgs),
    /// Run a command while holding a lock
    Exec(ExecArgs),
    /// Show which nodes vote, and who holds what
    Status(StatusArgs),
    /// Examine the nodes, and say what to mend
    Doctor(DoctorArgs),
    /// See jobs and operate them, from any machine
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// See to who leads
    #[command(subcommand)]
    Lead(LeadCommand),
    /// Take a lock from its holder, who does not know: the last resort
    Unlock(UnlockArgs),
    /// Look after the nodes
    #[command(subcommand)]
    Nodes(NodesCommand),
}

/// Where the nodes are.
#[derive(Debug, Args, Clone)]
pub(crate) struct NodeArgs {
    /// The nodes, with commas between: redis://HOST[:PORT][/DB], rediss://…, unix:///SOCKET, file:///DIR
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    nodes: Vec<String>,
    /// One node in a directory of this user on this host, for locks among its processes. A new directory is
    /// trusted at once: do not delete it while a lock is held
    #[arg(long, conflicts_with = "nodes")]
    local: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What all keys begin with; every worker must say the same [default: quorate:]
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Of rediss:// nodes trust the certificates of this PEM file, instead of those that the machine trusts
    /// [env: QUORATE_CA_FILE]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Show rediss:// nodes the certificate of this PEM file [env: QUORATE_CERT_FILE]
    #[arg(long, value_name = "FILE")]
    cert_file: Option<PathBuf>,
    /// The certificate's key, in PEM, not encrypted [env: QUORATE_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl NodeArgs {
    pub(crate) fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            nodes: Secret(self.nodes.clone()),
            local: self.local,
            prefix: self.prefix.clone(),
            tls: TlsNames {
                ca_file: self.ca_file.clone(),
                cert_file: self.cert_file.clone(),
                key_file: self.key_file.clone(),
            },
        }
    }
}

/// How logs look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// What failed.
    Error,
    /// And what may fail.
    Warn,
    /// And what happens.
    Info,
    /// And why.
    Debug,
    /// And everything else.
    Trace,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on five directories: needs nothing but this program
  quorate demo
  # on five redis-server processes that it starts and stops
  quorate demo --redis
  # one JSON object on the last line
  quorate demo --json

Exit status: 0 if no tick started twice and none was missed, and no message
was processed twice or lost; else 1.")]
pub(crate) struct DemoArgs {
    /// On five redis-server processes, started on free loopback ports and stopped at the end
    #[arg(long)]
    pub(crate) redis: bool,
    /// End with one JSON object on the last line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate run --config /etc/quorate/quorate.toml
  # only read the file, and show when each job is next due
  quorate run --check --config quorate.toml

Run it on several machines with one file. SIGTERM and SIGINT resign: running
commands get SIGTERM, what is left at the end of lease.step_down_grace gets
SIGKILL, then the lease is released; that takes no longer than the grace and
one second. SIGHUP, or a changed file, takes up the file's jobs while the leader
leads on; a file with a mistake, or without an answer within 5 s, changes
nothing. Under systemd it tells of its readiness, its reloads and its end, and
heeds the watchdog.

A daemon whose loop is blocked does not extend its lease, so that another leads;
SIGTERM ends it 10 s after the grace at the latest (exit status 125). Log lines
that nobody reads in time are dropped, and counted in the log. The output of
commands is passed on as it is.

A command finds QUORATE_JOB, QUORATE_TICK (RFC 3339), QUORATE_CAUSE,
QUORATE_ATTEMPT, QUORATE_RESOURCE, QUORATE_FENCING_TOKEN and, where it has a
timeout, QUORATE_DEADLINE in its environment. It runs under a warden, and so
ends in time even if quorate is killed, stopped or stuck. It does not inherit
QUORATE_NODES, which may hold passwords: a job that calls quorate itself gets
QUORATE_CONFIG, or QUORATE_NODES by its `env` in the file. While something that
a command started cannot be ended (a process of another user), the lease is not
released early, and the run has failed.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Only read the file and say what it means
    #[arg(long)]
    pub(crate) check: bool,
    /// How logs look [default: text on a terminal and off it]
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// How much is logged
    #[arg(long, value_enum, default_value = "info")]
    pub(crate) log_level: LogLevel,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # wait for the lock, for ever if need be
  quorate exec --lock backup -- ./backup.sh
  # or let another machine do it
  quorate exec --lock nightly --no-wait -- ./report.sh
  # try for half a minute
  quorate exec --lock migrate --wait 30s --ttl 5s -- ./migrate

The command finds QUORATE_RESOURCE and QUORATE_FENCING_TOKEN in its
environment. It runs under a warden: at step-down, a fifth of the TTL before
the lease ends, its process group gets SIGTERM, and SIGKILL before the lease
ends, even if quorate itself is killed, stopped or stuck. It does not inherit
QUORATE_NODES, which may hold passwords; a command that calls quorate itself
gets the nodes by --config or QUORATE_CONFIG.

Commands that daemonise: when the command ends, what it leaves in its process
group is ended too (SIGTERM, SIGKILL two seconds later), and then the lock is
released. What has left the group (setsid, a daemon) runs on without the lock
where the command ended by itself; it is ended (on Linux) where the lease was
lost, or where HUP, INT, QUIT or TERM asked the command to end. To hold the lock
for as long as a daemon runs, start it in the foreground.

Commands that change their user (sudo, setuid programs): an unprivileged quorate
may not signal them, and says so. What then cannot be ended keeps the lock: the
lease is not released, ends by itself within its TTL, and the exit status is 70.
In a cgroup that is delegated to quorate's user (Delegate=yes under systemd,
Linux 5.14) they are ended all the same.

Exit status: the command's own; 128+n if signal n ended it; 126 not
executable; 127 not found; 125 quorate failed; 75 the lock was not had in time
(--conflict-exit-code); 69 no quorum of nodes (without --wait after 10 s; at
once where a majority of the nodes refuses this user, node list or setting);
70 the lease was lost while the command ran, or may have been, or processes of
the command could not be ended; 78 configuration.")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The lock's name
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: String,
    /// For how long a crashed holder blocks the others, at most [default: the file's lease.ttl, or 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock [default: for ever; without a quorum, ten seconds]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Try once
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The exit status if the lock is not had in time
    #[arg(long, value_name = "N", default_value_t = crate::exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # the nodes, and the leader of the file's group
  quorate status
  quorate status backup election/billing claim/orders/17
  quorate status --json backup

It only looks: it writes no marker and competes for nothing. Exit status: 0 if
a majority of nodes votes; 69 if not; 78 configuration.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Locks by name, groups as election/GROUP, messages as claim/SET/ID
    #[arg(value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate doctor --config /etc/quorate/quorate.toml
  quorate doctor --nodes redis://a,redis://b,redis://c --json

Looks at roles, run ids, eviction, memory, persistence against `durable`,
clocks, round trips against node_timeout and ttl, versions, and whether the
user may do what is needed. It writes nothing. Exit status: 2 if something is
grave, 1 if something is a warning, else 0; 78 configuration.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be done about a leader.
#[derive(Debug, Subcommand)]
pub(crate) enum LeadCommand {
    /// Ask the leader of a group to resign, and wait until it has
    Resign(ResignArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # the leader of the file's group, before its machine goes down
  quorate lead resign --config /etc/quorate/quorate.toml
  quorate lead resign --group billing --wait 1m
  # only if it is still this term
  quorate lead resign --group billing --term 1763720135000417 --json

The leader hears within half a second, tells its work to stop, gives it the
grace, and releases. The wish is for this one term and concerns no later
leader; it ends by itself a second after the wait. Without another candidate
the same worker leads again after its back-off.

Exit status: 0 if it has resigned; 1 if nobody leads, or another term than
--term has begun; 75 if it leads on after the wait (cut off, stuck, or told
not to obey); 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct ResignArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Only if this is its term
    #[arg(long, value_name = "N")]
    pub(crate) term: Option<u64>,
    /// How long to wait for it to go
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) wait: Duration,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # who holds it, and what taking it away would mean
  quorate unlock backup
  quorate unlock --force backup
  # a message, a leadership: as `quorate status` names them
  quorate unlock --force claim/orders/17

What can go wrong: the holder is not asked and not told. It believes in its
lease until its next extension, a third of the TTL later at most; until then
two may act at once. Fencing tokens protect only sinks that check them. A
holder that extends while nodes are being freed may set itself again. So: when
the holder is known to be gone or stuck for good, or the key has no end and is
another client's. A living leader is asked with `quorate lead resign`.

It deletes the lock where the owner is the one that it has just shown, and
nothing else: no other holder, no fencing counter, no done record.

Exit status: 0 if a majority of nodes is rid of the owner; 1 if nobody holds
it, or --force was not given; 69 if too few nodes answered; 78 configuration.")]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Do it, rather than say what would be done
    #[arg(long)]
    pub(crate) force: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A lock by name, a group as election/GROUP, a message as claim/SET/ID
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// What can be done to nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// Let nodes vote at once that are new, flushed or restarted
    #[command(after_long_help = "\
A node without memory waits max_ttl (and four times max_clock_offset at least)
before it votes, since it may have granted
what another still holds. On a cluster that no worker has used yet that wait
serves nothing: admit ends it, in the nodes' markers and so for every worker.
On a cluster in use, admit can make two holders.

Exit status: 0 if every node votes; 69 if not; 78 configuration.")]
    Admit(AdmitArgs),
    /// Show each node: whether it votes, since when it remembers, its clock and its marker
    #[command(after_long_help = "\
It only looks. The clock is the node's against this machine's, give or take the
round trip. Exit status: 0 if a majority of nodes votes; 69 if not; 78
configuration.")]
    List(ListArgs),
    /// Replace the node set by another, while workers run
    #[command(after_long_help = "\
Examples:
  # what would be done
  quorate nodes replace --nodes redis://a,redis://b,redis://c --to redis://b,redis://c,redis://d --dry-run
  # one server for another, under load
  quorate nodes replace --config quorate.toml --to redis://b,redis://c,redis://d

Run it before any worker is given the new list. It closes the new nodes and a
majority of the old set, waits until every lease of the old set has ended
(max_ttl, and four times max_clock_offset at least), then opens the new set.
Meanwhile nobody leads and nothing is held. Then give every worker the new list:
workers with the old one are refused from the first step on, and told both.

If it is interrupted or fails, run the same again: it goes on where it was. A
node that was away is taken in, or closed, by running it again too. A node that
stays keeps its password and password_file from the old list.

A node that leaves may come back in the very next change. To use it in a later
one, delete its key PREFIXnode first, with no worker of its old set left.

Exit status: 0 if the new set is open; 69 if a node is away or unfit, or too few
could be closed or opened: run it again; 78 configuration.")]
    Replace(ReplaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    /// The old set
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The whole new set, with commas between
    #[arg(long, value_name = "URL,…", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// Only look, and say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl ReplaceArgs {
    pub(crate) fn to(&self) -> Secret<Vec<String>> {
        Secret(self.to.clone())
    }
}

#[derive(Debug, Args)]
pub(crate) struct AdmitArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed =
        humantime::parse_duration(text).map_err(|e| format!("{e}; write it like 500ms, 10s or 2m"))?;
    if parsed.is_zero() {
        return Err("it is zero; write it like 500ms, 10s or 2m".to_owned());
    }
    Ok(parsed)
}
