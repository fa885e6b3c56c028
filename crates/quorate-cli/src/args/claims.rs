use super::{NodeArgs, OperatorArgs};
use clap::{Args, Subcommand};

/// The commands on the messages of a set of claims.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A set is the name that a service gives to Claims::new. Its slots for the runs of
jobs are not shown: see `quorate jobs`. The commands look at every key of each
server's database (SCAN), in pieces; each server has 30 s for that.")]
pub(crate) enum ClaimsCommand {
    /// Show the messages of a set: free, claimed, done or given up
    Show(ClaimsShowArgs),
    /// Show the messages that were given up
    DeadLetters(ClaimsListArgs),
    /// Make a message that was given up count as new
    Reset(ClaimsResetArgs),
}

impl ClaimsCommand {
    pub(crate) fn nodes(&self) -> &NodeArgs {
        match self {
            Self::Show(args) => &args.list.nodes,
            Self::DeadLetters(args) => &args.nodes,
            Self::Reset(args) => &args.nodes,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate claims show orders
  quorate claims show orders order-17 --json
  quorate claims dead-letters orders --limit 100000

Only the messages that the nodes still remember are shown, in the order of their
ids; the result of a message is shown up to 1,000 bytes. A message that has reached
its attempt limit, and that no dead-letter hook has taken yet, is shown as free.

Exit status: 0; 1 the nodes store nothing of the message ID; 69 no quorum of nodes;
78 configuration.")]
pub(crate) struct ClaimsShowArgs {
    #[command(flatten)]
    pub(crate) list: ClaimsListArgs,
    /// Only the message with this id
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimsListArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The largest number of messages to read
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The set of claims
    #[arg(value_name = "SET")]
    pub(crate) set: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # a message whose handler has been corrected; its source must deliver it again
  quorate claims reset orders order-17

It removes the dead-letter record, the count of attempts and the fingerprint of the
payload, on every node. A message that is claimed or done is not reset.

Exit status: 0; 1 the nodes store nothing of the message; 69 not every node
confirmed: run it again; 75 a worker holds the message; 78 configuration; 125 the
message is done.")]
pub(crate) struct ClaimsResetArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The set of claims
    #[arg(value_name = "SET")]
    pub(crate) set: String,
    /// The id of the message
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
}
