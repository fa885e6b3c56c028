use super::{
    NodeArgs,
    daemon::{ListenArgs, LogArgs},
};
use crate::config::Flags;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # the page of the group billing on http://127.0.0.1:9640
  quorate web --nodes redis://a,redis://b,redis://c --group billing --listen 127.0.0.1:9640
  # the nodes, the group and the tokens of a file
  quorate web --config /etc/quorate/quorate.toml

It runs no jobs and never leads. It has the same endpoints as `quorate run
--listen`; /leader always answers 503. The page asks the nodes only while
a viewer looks at it. Without http.operate_token_file it writes nothing to the
nodes, and no viewer can operate.

Exit status: 0 after SIGTERM or SIGINT; 78 configuration; 125 quorate failed.")]
pub(crate) struct WebArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// The group that is shown [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl WebArgs {
    pub(crate) fn flags(&self) -> Flags {
        self.listen.add_to(self.nodes.flags())
    }
}
