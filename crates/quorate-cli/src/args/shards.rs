use super::{ListenArgs, LogArgs, NodeArgs, duration};
use crate::config::Flags;
use clap::{Args, Subcommand};
use std::{ffi::OsString, time::Duration};

/// The commands on balanced shards.
#[derive(Debug, Subcommand)]
pub(crate) enum ShardsCommand {
    /// Run a command for each shard of a set that this worker owns
    Run(ShardsRunArgs),
    /// Show the sets, or the workers and the shards of a set
    List(ShardsListArgs),
}

impl ShardsCommand {
    pub(crate) fn nodes(&self) -> &NodeArgs {
        match self {
            Self::Run(args) => &args.nodes,
            Self::List(args) => &args.nodes,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # on each machine: the shards are divided among the machines
  quorate shards run --set orders --count 64 -- ./consumer
  # a larger machine gets twice as many
  quorate shards run --set orders --count 64 --weight 2 -- ./consumer

Each of the shards 0 to N-1 has one owner among the workers that run the set, and
the owner runs the command for it. Shares differ by at most one. If a worker joins
or leaves, at most its own share moves: the command of a shard gets SIGTERM, and
SIGKILL at the end of the step-down grace (a fifth of the TTL), and only then the next owner starts
its own. If a worker dies, others start its commands once the TTL is over.

The command has QUORATE_SHARD, QUORATE_SHARDS (their number), QUORATE_SET,
QUORATE_RESOURCE and QUORATE_FENCING_TOKEN in its environment. The token grows from
owner to owner. It runs under a supervisor process, which ends it in time even if
quorate is killed, stopped or stuck. It does not inherit QUORATE_NODES, which may
contain passwords. A command that ends, whatever its status, is started
again by the same worker: after 1 s, and after failures in a row up to 30 s.

All workers of a set must be given the same --count. A worker with another one
waits, and warns, until those with the number of the set have ended: to change it, start the new
workers, and end the old ones.

With --listen it serves metrics, health checks and the operator's page as `quorate
web` does, for the group of the file.

Exit status: 0 after SIGTERM or SIGINT; 78 configuration, or a majority of the
nodes refuses this user, node list or setting; 125 quorate failed.")]
pub(crate) struct ShardsRunArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The name of the set
    #[arg(long, value_name = "NAME")]
    pub(crate) set: String,
    /// The number of shards: the same for all workers of the set
    #[arg(long, value_name = "N")]
    pub(crate) count: usize,
    /// The weight of this worker: twice the weight, twice the shards
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) weight: u32,
    /// The longest time for which a crashed owner blocks the others [default: lease.ttl of the file, or 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// The command and its arguments: all words from the first that is no option
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl ShardsRunArgs {
    pub(crate) fn flags(&self) -> Flags {
        self.listen.add_to(self.nodes.flags())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # all sets
  quorate shards list
  # the workers of a set, and who owns which shard
  quorate shards list --set orders
  quorate shards list --set orders --json

ENDS IN is the time after which the shard has no owner if its owner does not
extend the lease. NEXT is the worker that is to own the shard, if it is another
one. It only reads. Exit status: 0; 1 if there is no such set; 69 no quorum of
nodes; 78 configuration.")]
pub(crate) struct ShardsListArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The set [default: all sets, without their shards]
    #[arg(long, value_name = "NAME")]
    pub(crate) set: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
