//! Entry points for the fuzz targets of this project. They are not part of the public interface, and may change
//! in any release.

use crate::{
    args::{Cli, Command, LockCommand, NodeArgs, NodesCommand},
    config::{Config, Environment, Flags},
};
use std::ffi::OsString;

/// Reads and checks `args`, as the program does before it starts any work. The first argument is the
/// program's name. Returns the configuration, or `None` for a command that needs none.
///
/// # Errors
/// The text that the program would print, including help.
pub fn arguments(args: &[OsString], environment: &Environment<'_>) -> Result<Option<Config>, String> {
    let cli = Cli::read(args).map_err(|none| none.text)?;
    let load_with = |flags: &Flags| Config::load(flags, environment).map_err(|error| error.to_string());
    let load = |nodes: &NodeArgs| load_with(&nodes.flags());
    match &cli.command {
        Command::Demo(_)
        | Command::When(_)
        | Command::Import(_)
        | Command::Init(_)
        | Command::Completions(_)
        | Command::Man(_) => Ok(None),
        Command::Run(args) => load_with(&args.flags()).map(Some),
        Command::Lead(args) => load_with(&args.flags()).map(Some),
        Command::Web(args) => load_with(&args.flags()).map(Some),
        Command::Serve(args) => load_with(&args.flags()).map(Some),
        Command::Exec(args) => load(&args.nodes).map(Some),
        Command::Status(args) => load(&args.nodes).map(Some),
        Command::Top(args) => load(&args.nodes).map(Some),
        Command::Doctor(args) => load(&args.nodes).map(Some),
        Command::Freeze(args) => load(&args.wait.group.nodes).map(Some),
        Command::Unfreeze(args) => load(&args.wait.group.nodes).map(Some),
        Command::Leader(command) => load(command.nodes()).map(Some),
        Command::Audit(args) => load(&args.group.nodes).map(Some),
        Command::Jobs(command) => load(&command.group().nodes).map(Some),
        Command::Lock(LockCommand::Show(args)) => load(&args.nodes).map(Some),
        Command::Lock(LockCommand::List(args)) => load(&args.nodes).map(Some),
        Command::Claims(command) => load(command.nodes()).map(Some),
        Command::Shards(command) => load(command.nodes()).map(Some),
        Command::Lock(LockCommand::Release(args)) => load(&args.lock.nodes).map(Some),
        Command::Nodes(NodesCommand::Trust(args)) => load(&args.nodes).map(Some),
        Command::Nodes(NodesCommand::List(args)) => load(&args.nodes).map(Some),
        Command::Nodes(NodesCommand::Replace(args)) => {
            let config = load(&args.nodes)?;
            crate::nodes::new_set(args, &config).map_err(|failure| failure.to_string())?;
            Ok(Some(config))
        }
    }
}
