mod claims;
mod daemon;
mod generate;
mod import;
mod jobs;
mod lock;
mod operator;
mod serve;
mod shards;
mod top;
mod web;
mod when;

pub(crate) use claims::{ClaimsCommand, ClaimsListArgs, ClaimsResetArgs, ClaimsShowArgs};
pub(crate) use daemon::{LeadArgs, ListenArgs, LogArgs, LogFormat, LogLevel, RunArgs};
pub(crate) use generate::{CompletionsArgs, InitArgs, ManArgs, Shell};
pub(crate) use import::{CrontabArgs, ImportCommand};
pub(crate) use jobs::{
    AtArgs, AuditArgs, BackfillArgs, CancelArgs, GroupArgs, HistoryArgs, JobsCommand, ListJobsArgs, LogsArgs,
    NextArgs, PauseArgs, PutArgs, RequestArgs, ShowArgs, TriggerArgs, WaitArgs, WhyArgs,
};
pub(crate) use lock::{LockCommand, LockReleaseArgs, LockShowArgs, LocksListArgs};
pub(crate) use operator::{
    FreezeArgs, LeaderCommand, LeaderShowArgs, OperatorArgs, ResignArgs, TermsArgs, UnfreezeArgs,
};
pub(crate) use serve::ServeArgs;
pub(crate) use shards::{ShardsCommand, ShardsListArgs, ShardsRunArgs};
pub(crate) use top::TopArgs;
pub(crate) use web::WebArgs;
pub(crate) use when::WhenArgs;

use crate::config::{Flags, Secret, ServeFlags, TlsNames, redact};
use clap::{
    Args, CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};
use quorate::{plain::plain, scheduler::Zone};
use std::{ffi::OsString, path::PathBuf, sync::LazyLock, time::Duration};

/// The longest line of help or of an error, in bytes. An error repeats arguments, which may be of any length.
const LINE_MAX: usize = 1_000;

/// Returns the version of the program, with the version of the compiled-in time zone tables. Both affect when
/// a job runs.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        format!("{} (time zone tables {})", env!("CARGO_PKG_VERSION"), Zone::tables_version())
    });
    &VERSION
}

/// The command line, as clap reads it.
#[derive(Debug, Parser)]
#[command(
    name = "quorate",
    version = version(),
    about = "Locks, leader election and scheduled jobs on a majority of independent Redis servers",
    long_about = "Lets several copies of a service agree on which of them leads, runs a job or handles a message. They \
                  agree through a majority of independent Redis servers, or of directories on one host.",
    after_help = "\
Examples:
  # watch a failover: three workers, five nodes, two leaders ended
  quorate demo
  # run a command on one machine of several
  quorate exec --nodes redis://a,redis://b,redis://c --lock nightly -- ./report
  # run the jobs of the file on the machine that leads
  quorate run --config /etc/quorate/quorate.toml
  # show which nodes vote, which worker leads, and how long its lease lasts
  quorate status --config quorate.toml

The nodes come from the first of these that names any: --nodes, --local,
QUORATE_NODES, the file of --config or QUORATE_CONFIG, ./quorate.toml,
~/.config/quorate/quorate.toml, /etc/quorate/quorate.toml.

The TLS files of a node come from the first of these that names one: the node
itself (rediss://HOST?ca_file=FILE&cert_file=FILE&key_file=FILE, or its table in
the file), --ca-file and its siblings, QUORATE_CA_FILE and its siblings, tls in
the file. They are read at every connection: a renewed certificate needs no
restart.

On a terminal, tables have its width, colours mark trouble (not with NO_COLOR), and
waits of more than a second show their progress on standard error.

A lock alone does not make effects happen exactly once: a command may be paused
between its last check and its write. Have the target of the write compare
QUORATE_FENCING_TOKEN."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The text to print in place of a command: an error in the arguments, or the help or version that they request.
#[derive(Debug)]
pub(crate) struct NoCommand {
    /// The text, without passwords of nodes.
    pub(crate) text: String,
    /// True if the arguments requested help or the version. The text is then not an error.
    pub(crate) requested: bool,
}

impl Cli {
    /// Reads the arguments, of which the first is the program's name.
    ///
    /// # Errors
    /// [`NoCommand`] for invalid arguments, and for a request of help or version.
    pub(crate) fn read(args: &[OsString]) -> Result<Self, NoCommand> {
        Self::try_parse_from(args).map_err(|mut error| {
            suggest(&mut error);
            let mut text = error.render().to_string();
            // clap repeats an argument that it refuses. That argument may be a node's URL in the wrong place,
            // and contain the node's password.
            for arg in args.iter().skip(1) {
                let arg = arg.to_string_lossy();
                let value = arg.split_once('=').map(|(_, value)| value);
                for part in [Some(&*arg), value].into_iter().flatten() {
                    if may_be_url(part) {
                        text = text.replace(part, &redact(part));
                    }
                }
            }
            let text: String = text.split_inclusive('\n').map(line_of).collect();
            NoCommand { text, requested: !error.use_stderr() }
        })
    }
}

/// Names the command that a person meant who typed an unknown one: the part of a command without its first word, as `why`
/// of `jobs why`, or the beginning of a command.
fn suggest(error: &mut clap::Error) {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let program = Cli::command();
    let named = |command: &clap::Command, word: &str| command.get_name_and_visible_aliases().contains(&word);
    let parts =
        program.get_subcommands().flat_map(|outer| outer.get_subcommands().map(move |part| (outer, part)));
    let part = parts
        .filter(|(_, part)| named(part, typed))
        .map(|(outer, part)| format!("{} {}", outer.get_name(), part.get_name()));
    let mut meant: Vec<String> = part.collect();
    if meant.is_empty() && typed.len() > 2 {
        let begins = |command: &&clap::Command| {
            command.get_name_and_visible_aliases().iter().any(|name| name.starts_with(&**typed))
        };
        meant =
            program.get_subcommands().filter(begins).map(|command| command.get_name().to_owned()).collect();
    }
    if !meant.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
}

/// Returns whether an argument may be a URL with a password, or the end of one. Words like `@reboot` are not, because
/// nothing precedes their `@`.
fn may_be_url(part: &str) -> bool {
    part.contains("://") || part.split_whitespace().any(|word| word.rfind('@').is_some_and(|at| at > 0))
}

/// Removes the control characters from a line of help or of an error. The line may repeat an argument that
/// contains control characters.
fn line_of(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => plain(line, LINE_MAX) + "\n",
        None => plain(line, LINE_MAX),
    }
}

/// The verbs of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a failover: real workers, five nodes, a leader killed, then one asked to end
    Demo(DemoArgs),
    /// Run the jobs of a configuration file while this worker leads
    Run(RunArgs),
    /// Lead a group without jobs, and answer over HTTP whether this process leads
    Lead(LeadArgs),
    /// Serve the operator's page of a group from any machine, without jobs
    Web(WebArgs),
    /// Hold leases for programs in any language, which speak HTTP on a socket of this machine
    Serve(ServeArgs),
    /// Run a command while holding a lock
    Exec(ExecArgs),
    /// Show which nodes vote, and the holders of locks, groups and messages
    Status(StatusArgs),
    /// Show nodes, leader, jobs and events in the terminal, and control jobs
    Top(TopArgs),
    /// Examine the nodes, and report problems with their fixes
    Doctor(DoctorArgs),
    /// Show and control jobs, from any machine
    #[command(subcommand, visible_alias = "job")]
    Jobs(JobsCommand),
    /// Stop all jobs of a group until a time: no tick starts, active runs continue
    Freeze(FreezeArgs),
    /// End the freeze of a group now
    Unfreeze(UnfreezeArgs),
    /// Show who has changed what, when, from where and why: requests to jobs, and operations on nodes
    Audit(AuditArgs),
    /// Show the meaning of a schedule and its next times; needs no nodes
    When(WhenArgs),
    /// Translate the files of other schedulers; needs no nodes
    #[command(subcommand)]
    Import(ImportCommand),
    /// Show who leads and who has led, and ask the leader to resign
    #[command(subcommand, visible_alias = "election")]
    Leader(LeaderCommand),
    /// Show locks, and force-release them
    #[command(subcommand, visible_alias = "locks")]
    Lock(LockCommand),
    /// Run a command for each shard of a set, and show who owns which
    #[command(subcommand)]
    Shards(ShardsCommand),
    /// Show the messages of a set of claims, and reset messages that were given up
    #[command(subcommand)]
    Claims(ClaimsCommand),
    /// Show the nodes, trust them, and replace the node set
    #[command(subcommand)]
    Nodes(NodesCommand),
    /// Write a configuration file to start from; needs no nodes
    Init(InitArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
}

/// The heading of the flags that most commands share. It comes after a command's own flags.
const CONNECTION: &str = "Connection";

/// The nodes, and the TLS files and prefix to reach them with.
#[derive(Debug, Args, Clone)]
pub(crate) struct NodeArgs {
    /// redis://HOST[:PORT][/DB], rediss://…, unix:///…, file:///DIR
    #[arg(long, value_name = "URL,…", value_delimiter = ',', help_heading = CONNECTION)]
    nodes: Vec<String>,
    /// One node: a directory of this user on this host
    #[arg(long, conflicts_with = "nodes", help_heading = CONNECTION)]
    local: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    config: Option<PathBuf>,
    /// The beginning of all keys [default: quorate:]
    #[arg(long, value_name = "TEXT", help_heading = CONNECTION)]
    prefix: Option<String>,
    /// The authorities to trust, in PEM [env: QUORATE_CA_FILE]
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    ca_file: Option<PathBuf>,
    /// The client's certificate, in PEM [env: QUORATE_CERT_FILE]
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    cert_file: Option<PathBuf>,
    /// The certificate's key, in PEM [env: QUORATE_KEY_FILE]
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    key_file: Option<PathBuf>,
}

impl NodeArgs {
    pub(crate) fn flags(&self) -> Flags {
        Flags {
            listen: None,
            serve: ServeFlags::default(),
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

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # on five directories: requires nothing but this program
  quorate demo
  # on five redis-server processes, which the demo starts and stops
  quorate demo --redis
  # print one JSON object on the last line
  quorate demo --json

Exit status: 0 if no tick started twice or was missed, and no message was
processed twice or lost; else 1; 125 quorate failed.")]
pub(crate) struct DemoArgs {
    /// Use five redis-server processes, started on free loopback ports and stopped at the end
    #[arg(long)]
    pub(crate) redis: bool,
    /// Print one JSON object on the last line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # wait for the lock without a limit
  quorate exec --lock backup -- ./backup.sh
  # try once: another machine may have the lock
  quorate exec --lock nightly --no-wait -- ./report.sh
  # wait for half a minute
  quorate exec --lock migrate --wait 30s --ttl 5s -- ./migrate
  # at most three at once on all machines; many readers, or one that writes
  quorate exec --lock encode --slots 3 -- ./encode
  quorate exec --lock catalogue --shared -- ./read

The command has QUORATE_RESOURCE and QUORATE_FENCING_TOKEN in its environment, and
with --slots QUORATE_SLOT (from 0; each slot has tokens of its own). With --shared
it has no token. It runs under a supervisor process. At step-down, a fifth of the
TTL before the lease ends, its process group gets SIGTERM, and before the lease
ends SIGKILL, even if quorate itself is killed, stopped or stuck. With --local the
node is a directory of this user, which is trusted at once: do not delete it while
a lock is held. The command does not inherit QUORATE_NODES, which may contain
passwords; a command that calls quorate itself gets the nodes by --config or
QUORATE_CONFIG.

Commands that daemonise: when the command ends, the processes that it leaves in
its process group are ended too (SIGTERM, SIGKILL two seconds later), which a
message says, and then the lock is released. Processes that left the group
(setsid, a daemon) keep running without the lock if the command ended by itself.
They are ended (on Linux) if the lease was lost, or if HUP, INT, QUIT or TERM
asked the command to end. To hold the lock while a daemon runs, start the daemon in the foreground.

Commands that change their user (sudo, setuid programs): an unprivileged quorate
may not signal them, and reports that. Processes that it cannot end keep the
lock: the lease is not released, ends by itself within its TTL, and the exit
status is 70. In a cgroup that is delegated to quorate's user (Delegate=yes under
systemd, Linux 5.14) quorate can end them.

Exit status: the command's own; 128+n if signal n ended it; 126 not executable;
127 not found; 125 quorate failed; 75 timed out waiting for the lock
(--conflict-exit-code); 69 no quorum of nodes (without --wait after 10 s; at once
if a majority of the nodes refuses this user, node list or setting); 70 the lease
was lost while the command ran, or may have been, or processes of the command
could not be ended; 78 configuration.")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The name of the lock
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: String,
    /// Hold the lock together with others that name --shared, and with no other
    #[arg(long)]
    pub(crate) shared: bool,
    /// Hold one of the N locks NAME/slot-0…: at most N commands run at once. Give the same N everywhere
    #[arg(long, value_name = "N", conflicts_with = "shared")]
    pub(crate) slots: Option<usize>,
    /// The longest time for which a crashed holder blocks the others [default: lease.ttl of the file, or 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// The longest wait for the lock [default: no limit; ten seconds without a quorum]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Try once, and do not wait
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The exit status after timing out waiting for the lock
    #[arg(long, value_name = "N", default_value_t = crate::exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
    /// The command and its arguments: all words from the first that is no option
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # the nodes, and the leader of the file's group
  quorate status
  quorate status backup election/billing claim/orders/17
  quorate status --json backup

It only reads: it writes no marker, creates no directory and acquires nothing.
Exit status: 0 if a majority of the nodes votes; 69 if not; 78 configuration.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Locks by name, groups as election/GROUP, messages as claim/SET/ID
    #[arg(value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate doctor --config /etc/quorate/quorate.toml
  quorate doctor --nodes redis://a,redis://b,redis://c --json

Checks roles, run ids, eviction, memory, persistence against `durable`, clocks,
round trips against node_timeout and ttl, versions, and the rights of the user.
Prints the versions of quorate and of its time zone tables: workers with
different tables may disagree on ticks. It writes nothing. Exit status: 2 if a
finding is critical, 1 if one is a warning, else 0; 78 configuration.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The commands on nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// Let new, flushed or restarted nodes vote at once
    #[command(after_help = "\
A node without memory is quarantined for max_ttl (at least four times
max_clock_offset) before it votes: it may have granted a lease that another worker
still holds. On a cluster that no worker has used, the quarantine serves no
purpose. This command ends it, in the markers of the nodes and so for every
worker.

On a cluster in use, it can make two holders and two leaders. So the command
changes nothing if a node waits and another one votes; if a node restarted with
its data, or stores terms, held locks or operations; or if a node cannot be asked.
Wait until the nodes vote. Use --force only if no worker runs and every lease has
ended.

Exit status: 0 if every node votes; 1 refused, because the cluster is or was in
use; 69 a node does not vote or cannot be asked; 78 configuration.")]
    Trust(TrustArgs),
    /// Show each node: whether it votes, the age of its memory, its clock and its marker
    #[command(after_help = "\
It only reads. The clock is the difference between the node's clock and this
machine's, with an error of up to the round trip. Exit status: 0 if a majority of
the nodes votes; 69 if not; 78 configuration.")]
    List(ListArgs),
    /// Replace the node set by another, while workers run
    #[command(after_help = "\
Examples:
  # show the steps, and change nothing
  quorate nodes replace --nodes redis://a,redis://b,redis://c --to redis://b,redis://c,redis://d --dry-run
  # replace one server while workers run
  quorate nodes replace --config quorate.toml --to redis://b,redis://c,redis://d

Run it before any worker gets the new list. It closes the new nodes and a
majority of the old set, waits until every lease of the old set has ended
(max_ttl, at least four times max_clock_offset), then opens the new set. Until
then there is no leader and no lease. Then give every worker the new list. From
the first step on, workers with the old list are refused with an error that names
both lists.

If it is interrupted or fails, run the same command again: it continues where it
stopped. Run it again also to add, or close, a node that was away. A node that is
in both sets keeps its password and password_file from the old list.

A node that leaves may join again in the very next replacement. To use it in a
later one, first delete its key PREFIXnode, when no worker of its old set is
left.

Exit status: 0 if the new set is open; 69 if a node is away or invalid, or too few
nodes could be closed or opened: run it again; 78 configuration.")]
    Replace(ReplaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    /// The old set
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The whole new set, separated by commas
    #[arg(long, value_name = "URL,…", value_delimiter = ',', required = true)]
    to: Vec<String>,
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
    /// Show the steps, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl ReplaceArgs {
    pub(crate) fn to(&self) -> Secret<Vec<String>> {
        Secret(self.to.clone())
    }
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Trust the nodes although the cluster is or was in use: only if no worker runs
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed =
        humantime::parse_duration(text).map_err(|e| format!("{e}; write it like 500ms, 10s or 2m"))?;
    if parsed.is_zero() {
        return Err("it is zero; write it like 500ms, 10s or 2m".to_owned());
    }
    Ok(parsed)
}
