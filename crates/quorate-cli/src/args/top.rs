use super::{NodeArgs, duration};
use clap::Args;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate top --config /etc/quorate/quorate.toml
  quorate top --nodes redis://a,redis://b,redis://c --group billing --every 5s

Keys: Up and Down (or k and j) choose a job; Enter shows its runs and why it did or
did not run, and Esc returns; / filters the jobs, s changes their order and S
reverses it; Tab shows only the nodes, the runs, the events, with --sidecar the
leases of clients, or all; q or Ctrl-C ends
it, and ? lists all keys.
t triggers the chosen job, p pauses it (with a reason, and until a time), r resumes it,
c cancels its active runs, and b runs it for each tick of a span. Each of these asks
first, and is in the list of `quorate audit`.

Without an action it only reads. Data that could not be updated is marked with its
time and the reason. Colours are not used if NO_COLOR is set. Exit status: 0; 128+n
if signal n ended it; 78 configuration, or standard input or output is not a
terminal: use `quorate status` and `quorate jobs list` there.")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// A `quorate serve` whose clients' leases are shown: its http.listen, or unix:PATH with --token-file
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) sidecar: Option<String>,
    /// The file with the token for reading of the sidecar
    #[arg(long, value_name = "FILE", requires = "sidecar")]
    pub(crate) token_file: Option<PathBuf>,
    /// The time between two updates
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) every: Duration,
    /// The longest wait for the leader's answer to an action
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) wait: Duration,
}
