use super::{NodeArgs, duration};
use crate::time;
use clap::{Args, Subcommand};
use quorate::env::WallTime;
use std::time::Duration;

/// What can be done about jobs.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Looking needs no leader and writes nothing. What is asked of a job goes through
the nodes to whoever leads the group, who answers within half a second.")]
pub(crate) enum JobsCommand {
    /// Show the jobs of a group: what runs, what is next, how it went last
    List(ListJobsArgs),
    /// Show when a job is next due
    Next(NextArgs),
    /// Show one job
    Show(ShowArgs),
    /// Show how a job's runs ended
    History(HistoryArgs),
    /// Run a job once now, beside its schedule
    Trigger(AskArgs),
    /// Skip a job's ticks until it is resumed
    Pause(AskArgs),
    /// Run a job's ticks again from now on
    Resume(AskArgs),
    /// Run a job for each tick of a span, whether or not it has run then
    Backfill(BackfillArgs),
    /// Tell what runs of a job to stop
    Cancel(CancelArgs),
}

/// Whose jobs, and how they are shown.
#[derive(Debug, Args, Clone)]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// One JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate jobs list --config /etc/quorate/quorate.toml
  quorate jobs list --group billing --json

Exit status: 0; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct ListJobsArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # a job of the file needs no node
  quorate jobs next nightly-report --count 10
  quorate jobs next nightly-report --from 2026-10-24T00:00:00Z --json

A job that is not in the file is looked up where its leader has registered it.
Exit status: 0; 1 no such job, or its ticks cannot be told; 69 no quorum of
nodes; 78 configuration.")]
pub(crate) struct NextArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// How many ticks
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Ticks later than this (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) from: Option<WallTime>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate jobs show nightly-report

Exit status: 0; 1 no such job; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate jobs history nightly-report --limit 5
  quorate jobs history nightly-report --json

The newest come first. Exit status: 0; 1 no such job; 69 no quorum of nodes;
78 configuration.")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// How many entries
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

/// What all requests are told by.
#[derive(Debug, Args, Clone)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// How long to wait for the leader's answer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) wait: Duration,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate jobs trigger nightly-report
  quorate jobs pause nightly-report --group billing --json

Exit status: 0 if the leader has accepted; 1 no such job, or the leader
refuses; 75 posted and not answered: a leader may take it up within a minute of
the asking; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # the ticks of three days, oldest first
  quorate jobs backfill nightly-report --from 2026-11-18T00:00:00Z --until 2026-11-21T00:00:00Z

Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The beginning of the span, itself included (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) from: WallTime,
    /// The end of the span, itself excluded (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) until: WallTime,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  quorate jobs cancel nightly-report
  quorate jobs cancel nightly-report --tick 2026-11-21T03:00:00Z

What runs is told to stop (SIGTERM), has the step-down grace, then is killed.
Exit status: as for `quorate jobs trigger`.")]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Only the run of this tick (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) tick: Option<WallTime>,
    /// The job
    #[arg(value_name = "NAME")]
    pub(crate) job: String,
}

impl JobsCommand {
    /// Whose jobs.
    pub(crate) fn group(&self) -> &GroupArgs {
        match self {
            Self::List(args) => &args.group,
            Self::Next(args) => &args.group,
            Self::Show(args) => &args.group,
            Self::History(args) => &args.group,
            Self::Trigger(args) | Self::Pause(args) | Self::Resume(args) => &args.wait.group,
            Self::Backfill(args) => &args.wait.group,
            Self::Cancel(args) => &args.wait.group,
        }
    }
}
