//! What the project's own fuzz targets call. No part of the interface: it may change with any release.

use crate::{
    args::{Cli, Command, LeadCommand, NodeArgs, NodesCommand},
    config::{Config, Environment},
};
use std::ffi::OsString;

/// What the program would do with `args`, of which the first is its own name: all that it reads and checks before
/// it starts anything. `None` where it needs no configuration.
///
/// # Errors
/// What it would print, help included.
pub fn arguments(args: &[OsString], around: &Environment<'_>) -> Result<Option<Config>, String> {
    let cli = Cli::read(args).map_err(|unread| unread.text)?;
    let load = |nodes: &NodeArgs| Config::load(&nodes.flags(), around).map_err(|error| error.to_string());
    match &cli.command {
        Command::Demo(_) => Ok(None),
        Command::Run(args) => load(&args.nodes).map(Some),
        Command::Exec(args) => load(&args.nodes).map(Some),
        Command::Status(args) => load(&args.nodes).map(Some),
        Command::Doctor(args) => load(&args.nodes).map(Some),
        Command::Nodes(NodesCommand::Admit(args)) => load(&args.nodes).map(Some),
        Command::Lead(LeadCommand::Resign(args)) => load(&args.nodes).map(Some),
        Command::Jobs(command) => load(&command.group().nodes).map(Some),
        Command::Unlock(args) => load(&args.nodes).map(Some),
        Command::Nodes(NodesCommand::List(args)) => load(&args.nodes).map(Some),
        Command::Nodes(NodesCommand::Replace(args)) => {
            let config = load(&args.nodes)?;
            crate::nodes::new_set(args, &config).map_err(|failure| failure.to_string())?;
            Ok(Some(config))
        }
    }
}
