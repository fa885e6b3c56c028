use super::{NodeArgs, duration};
use crate::time;
use clap::{Args, Subcommand};
use quorate::env::WallTime;
use quorate_operator::Moment;
use std::{path::PathBuf, time::Duration};

/// The commands on jobs.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
The commands that show jobs need no leader and write nothing. The commands that
control a job or store one send a request through the nodes to the leader of the group, which
answers within half a second.")]
pub(crate) enum JobsCommand {
    /// Show the jobs of a group: active runs, the next tick, the last outcome
    List(ListJobsArgs),
    /// Show when a job is next due
    Next(NextArgs),
    /// Show one job
    Show(ShowArgs),
    /// Show the outcomes of a job's runs
    History(HistoryArgs),
    /// Show the output of a job's run
    Logs(LogsArgs),
    /// Show why a job did or did not run: one reason, the evidence, and what to do
    Why(WhyArgs),
    /// Run a job once now, in addition to its schedule
    Trigger(TriggerArgs),
    /// Store jobs on the nodes, from a file
    Put(PutArgs),
    /// Change a job that is stored on the nodes, in an editor
    Edit(RequestArgs),
    /// Remove a job from the nodes
    Remove(RequestArgs),
    /// Store a job on the nodes for a single run at a time
    At(AtArgs),
    /// Skip a job's ticks until it is resumed, or until a time
    Pause(PauseArgs),
    /// Run a job's ticks again from now on
    Resume(RequestArgs),
    /// Run a job for each tick of a time span, including ticks that have run
    Backfill(BackfillArgs),
    /// Cancel a job's active runs
    Cancel(CancelArgs),
}

/// The group of the jobs, and the format of the output.
#[derive(Debug, Args, Clone)]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs list --config /etc/quorate/quorate.toml
  quorate jobs list --group billing --json

Exit status: 0; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct ListJobsArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// Show times in UTC, in place of the job's zone
    #[arg(long)]
    pub(crate) utc: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # a job of the file: no node is needed
  quorate jobs next nightly-report --count 10
  quorate jobs next nightly-report --from 2026-10-24T00:00:00Z --json

A job that is not in the file is looked up in the ledger of its group. Exit
status: 0; 1 no such job, or its ticks cannot be computed here; 69 no quorum of
nodes; 78 configuration.")]
pub(crate) struct NextArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// The number of ticks to show
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Show ticks later than this time (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) from: Option<WallTime>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs show nightly-report

Exit status: 0; 1 no such job; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// Show times in UTC, in place of the job's zone
    #[arg(long)]
    pub(crate) utc: bool,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs history nightly-report --limit 5
  quorate jobs history nightly-report --json

The newest runs come first. Exit status: 0; 1 no such job; 69 no quorum of nodes;
78 configuration.")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// Show times in UTC, in place of the job's zone
    #[arg(long)]
    pub(crate) utc: bool,
    /// The number of entries to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # its latest tick, or what keeps it from running now
  quorate jobs why nightly-report
  # the last 03:00 in the job's zone; the last tick of a day; an exact tick
  quorate jobs why nightly-report --at 03:00
  quorate jobs why nightly-report --at 2026-11-23
  quorate jobs why nightly-report --at 2026-11-23T03:00:00Z --json

It only reads, and gives one reason: ran (with the outcome), running, waiting,
no-worker (no live worker has its handler, or the leader does not have it), paused, frozen, no-leader, no-quorum, incomplete (too few nodes have all records of the
jobs), clock, misfire, overlap, cancelled, schedule (not due then), not-registered, or
no-record (the nodes keep no outcome of it). Without --at, a pause, a missing leader and
an active run come before the outcome of the latest tick.

Exit status: 0; 1 the reason is not-registered; 69 the reason is no-quorum; 78
configuration.")]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// Show times in UTC, in place of the job's zone
    #[arg(long)]
    pub(crate) utc: bool,
    /// The time at which the job should have run [default: its latest tick]
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) at: Option<Moment>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # who paused or triggered a job, froze the group, or released a lock by force?
  quorate audit --group billing
  quorate audit --config /etc/quorate/quorate.toml --limit 5 --json

The list has the requests that a leader of the group has answered, also those that
it refused: pauses, resumptions, triggers, back-fills, cancellations, freezes. It
also has the operations on the nodes, of all groups: forced releases, `nodes trust`,
`nodes replace`, `claims reset`; and the resign requests to this group. The newest
comes first. The nodes keep the newest 1,000 requests of a group, and the newest
1,000 operations. An operation whose command was killed may be missing. Without a
group, the list has the operations only. Exit status: 0; 69 no quorum of nodes; 78
configuration.")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// The number of requests to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// The arguments of every request to the leader.
#[derive(Debug, Args, Clone)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// The longest wait for the leader's answer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) wait: Duration,
    /// The name of the requester, for the audit list [default: USER@HOST]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs resume nightly-report --group billing --json
  quorate jobs edit digest-42
  quorate jobs remove digest-42

`edit` and `remove` are for jobs that are stored on the nodes. `edit` opens $VISUAL or
$EDITOR, and stores nothing if another has changed the job meanwhile.

Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs trigger nightly-report
  quorate jobs trigger digest-42 --payload '{\"to\": \"me@example.org\"}'

Every client of the nodes can read a payload, so it must not contain secrets.

Exit status: 0 if the leader accepted the request; 1 no such job, or the leader
refused; 75 timed out waiting for an answer: a leader may still handle the request
within a minute of its posting; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct TriggerArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The payload of the run, up to 8 KiB, in place of the job's; @FILE reads a file, @- standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) payload: Option<String>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs put digest.toml
  echo '{\"name\": \"beat\", \"every\": \"10s\", \"handler\": \"report\"}' | quorate jobs put -

  # digest.toml; several jobs are [[job]] tables
  name = \"digest-42\"
  schedule = \"0 7 * * *\"
  zone = \"Europe/Kyiv\"
  handler = \"send-mail\"
  payload = { to = \"me@example.org\" }

The keys of the schedule and the rules are those of a job in the configuration file. A
file of one job replaces the stored job of its name. Workers that have the handler run
it: a function of a program, or a command that their configuration allows ([commands]).
All jobs of a file are stored, or none. At most 1,000.

Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Refuse a job whose name is stored already
    #[arg(long)]
    pub(crate) new: bool,
    /// The file: TOML or JSON; - reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs at 2027-01-01T00:00:00Z new-year --handler send-mail --payload '{\"to\": 42}'

The job is removed once its run is over; its history is kept. If there is no worker with
the handler at that time, the run waits for one, for an hour at most.

Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct AtArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The name of the function or command that runs
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: String,
    /// The payload, up to 8 KiB; @FILE reads a file, @- standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) payload: Option<String>,
    /// The time of the run (RFC 3339)
    #[arg(value_name = "TIME", value_parser = time::parse)]
    pub(crate) at: WallTime,
    /// The name of the job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs pause nightly-report --reason 'the database is being moved' --for 2h
  # until the next 06:00 in the job's zone; until a day begins
  quorate jobs pause nightly-report --until 06:00
  quorate jobs pause nightly-report --reason holidays --until 2027-01-07

The leader ends the pause at --until; a tick at that time runs. If there is no
leader then, the next leader ends it, and the misfire rule decides on the ticks
since. Active runs and requested runs continue during a pause. If the job is paused
already, a new --reason or --until replaces those of the pause. `quorate jobs list`
shows the pause.

Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The reason, for the people who will find the job paused
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The length of the pause, such as 30m or 2h [default: until the job is resumed]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) length: Option<Duration>,
    /// The end of the pause, in place of --for: a time of day, a day, or an exact time
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, conflicts_with = "length")]
    pub(crate) until: Option<Moment>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # the ticks of three days, oldest first
  quorate jobs backfill nightly-report --from 2026-11-18 --until 2026-11-21
  quorate jobs backfill nightly-report --from 2026-11-18T22:00:00Z --until 2026-11-19T04:00:00Z

A time without an offset is in the job's zone; a time of day is the last one. The
runs start from the oldest tick on. Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The start of the span, inclusive: a day, a time of day, or an exact time
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) from: Moment,
    /// The end of the span, exclusive: a day, a time of day, or an exact time
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) until: Moment,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate jobs cancel nightly-report
  quorate jobs cancel nightly-report --at 2026-11-21T03:00:00Z

Each active run gets SIGTERM, and SIGKILL after the step-down grace. A run whose tick is
not due yet is cancelled only with an exact --at. Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Cancel only the run of this tick
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) at: Option<Moment>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # the newest run, until it ends
  quorate jobs logs nightly-report -f
  quorate jobs logs nightly-report --at 03:00
  quorate jobs logs nightly-report --at 2026-11-21T03:00:00Z --json

On a machine with the file of the run (output.dir in the configuration), the output
is read from the file. The nodes are asked only for the newest run (without --at), and
for the end of the run (-f). Elsewhere it is the end of the output that the job's
history keeps (keep_output), once the run has ended.

Exit status: 0; 1 no such job or run, or no output is kept; 69 no quorum of nodes;
78 configuration.")]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// Show times in UTC, in place of the job's zone
    #[arg(long)]
    pub(crate) utc: bool,
    /// The run: the time of its tick [default: the newest]
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) at: Option<Moment>,
    /// Show further output until the attempt ends
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) follow: bool,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

impl JobsCommand {
    pub(crate) fn group(&self) -> &GroupArgs {
        match self {
            Self::List(args) => &args.group,
            Self::Next(args) => &args.group,
            Self::Show(args) => &args.group,
            Self::History(args) => &args.group,
            Self::Logs(args) => &args.group,
            Self::Why(args) => &args.group,
            Self::Resume(args) | Self::Edit(args) | Self::Remove(args) => &args.wait.group,
            Self::Trigger(args) => &args.wait.group,
            Self::Put(args) => &args.wait.group,
            Self::At(args) => &args.wait.group,
            Self::Pause(args) => &args.wait.group,
            Self::Backfill(args) => &args.wait.group,
            Self::Cancel(args) => &args.wait.group,
        }
    }
}
