use super::{GroupArgs, NodeArgs, WaitArgs, duration};
use clap::{Args, Subcommand};
use quorate_operator::Moment;
use std::time::Duration;

/// The name of the operator and the reason, for the audit list.
#[derive(Debug, Args, Clone)]
pub(crate) struct OperatorArgs {
    /// The reason, for the audit list
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The name of the operator, for the audit list [default: USER@HOST]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # no job of the group starts for half an hour
  quorate freeze --reason 'the database is being moved' --for 30m
  # until the next 06:00 of this machine's clock
  quorate freeze --group billing --reason 'incident 4711' --until 06:00 --json
  # earlier than planned
  quorate unfreeze

From the leader's answer on, no tick of any job of the group starts, under any
leader, and also not of jobs that are added meanwhile. Active runs continue:
`quorate jobs cancel` ends them. Runs that are requested (trigger, backfill) start.
The freeze ends at its time by itself; a tick at that time runs. If there is no
leader then, the next leader ends it, and the misfire rule decides on the ticks
since. A job that is paused itself stays paused afterwards. If the group is frozen
already, the reason and the end are replaced. `quorate jobs list` shows the freeze.

Exit status: 0 if the leader accepted the request; 1 the leader refused; 75 timed
out waiting for an answer: a leader may still handle the request within a minute of
its posting; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct FreezeArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// The reason, for the people who will find the jobs frozen
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The length of the freeze, such as 30m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = duration, required_unless_present = "until")]
    pub(crate) length: Option<Duration>,
    /// The end of the freeze: a time of day, a day, or an exact time. This or --for is required
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, conflicts_with = "length")]
    pub(crate) until: Option<Moment>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate unfreeze --group billing

The jobs of the group run again from now on. The ticks of the freeze are skipped;
`quorate jobs backfill` runs them. Exit status: as for `quorate freeze`.")]
pub(crate) struct UnfreezeArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

/// The commands on the leaders of a group.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaderCommand {
    /// Show who leads a group now, and how long its lease lasts
    Show(LeaderShowArgs),
    /// Show the terms of a group: who led, from when until when, and why each term ended
    History(TermsArgs),
    /// Ask the leader of a group to resign, and wait until it has resigned
    Resign(ResignArgs),
}

impl LeaderCommand {
    pub(crate) fn nodes(&self) -> &NodeArgs {
        match self {
            Self::Show(args) => &args.group.nodes,
            Self::History(args) => &args.group.nodes,
            Self::Resign(args) => &args.nodes,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # who has led, and why did each term end?
  quorate leader history --config /etc/quorate/quorate.toml
  quorate leader history --group billing --limit 5 --json

The newest term comes first. The causes: resigned, shut-down, work-ended,
work-failed, lease-lost (too few nodes extended the lease in time), max-hold,
unhealthy, forced-release, and unknown: the leader recorded no end, and another
worker leads now, so its process died or it could not reach a majority. Such a term
ends, in this list, when the next one begins. The nodes keep about the newest 200 terms
of a group. Times are of the quorum's clock.

Exit status: 0; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct TermsArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
    /// The number of terms to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate leader show --config /etc/quorate/quorate.toml
  quorate leader show --group billing --json

It only reads. Exit status: 0 if a worker leads; 1 if none does; 69 no quorum of
nodes; 78 configuration.")]
pub(crate) struct LeaderShowArgs {
    #[command(flatten)]
    pub(crate) group: GroupArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # the leader of the file's group, before its machine is shut down
  quorate leader resign --config /etc/quorate/quorate.toml
  quorate leader resign --group billing --wait 1m
  # only if this term has not ended
  quorate leader resign --group billing --term 1763720135000417 --json

The leader hears of the request at once, or within five seconds, cancels its work, waits for
the grace period and releases its lease. The request applies to the current term
only, and expires one second after --wait. Without another candidate the same
worker leads again after its back-off. `quorate leader show` shows the leader.

Exit status: 0 if the leader has resigned; 1 if there is no leader, or a term
other than --term has begun; 75 if the leader still leads after the wait (it is
cut off or stuck, or does not allow remote resignation); 69 no quorum of nodes; 78
configuration.")]
pub(crate) struct ResignArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Resign only if this is the current term
    #[arg(long, value_name = "N")]
    pub(crate) term: Option<u64>,
    /// The longest wait until the leader has resigned
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
