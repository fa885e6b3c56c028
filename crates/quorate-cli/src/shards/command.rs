//! The command of one shard, under a supervisor process.

use crate::{
    args::ShardsRunArgs,
    guard::{Guard, Unconfirmed},
    run::notify,
    supervisor::{CommandSpec, Exit, Status, Stream, Supervisor},
};
use quorate::{env::Env, shards::Shard};
use std::ffi::OsString;

/// The command of a set.
#[derive(Clone, Debug)]
pub(super) struct ShardCommand {
    program: OsString,
    args: Vec<OsString>,
    guard: Guard,
    env: Env,
}

impl ShardCommand {
    /// Returns the command of `args`, or `None` if there is none.
    pub(super) fn new(args: &ShardsRunArgs, guard: Guard, env: &Env) -> Option<Self> {
        let (program, rest) = args.command.split_first()?;
        Some(Self { program: program.clone(), args: rest.to_vec(), guard, env: env.clone() })
    }

    /// Runs the command for `shard` until it ends. When the shard is to be handed over, or its lease ends soon, the command gets
    /// SIGTERM, and SIGKILL in time.
    pub(super) async fn run(&self, shard: &Shard) -> Result<(), String> {
        let token = shard.fencing_token().map_err(|error| error.to_string())?;
        // Messages to systemd must come from this process, and not from its commands.
        let spec =
            notify::VARIABLES.into_iter().fold(CommandSpec::new(&self.program), CommandSpec::env_remove);
        let spec = spec
            .args(&self.args)
            .stdin(Stream::Null)
            .env("QUORATE_SET", &**shard.set())
            .env("QUORATE_SHARD", shard.number().to_string())
            .env("QUORATE_SHARDS", shard.count().to_string())
            .env("QUORATE_RESOURCE", shard.resource().key())
            .env("QUORATE_FENCING_TOKEN", token.to_string());
        let look = || shard.work_until();
        let deadline = self.guard.deadline(look().unwrap_or_default());
        // The command may run from now on, even if the future of `start` is dropped.
        let unconfirmed = Unconfirmed(|| shard.end_without_release());
        let mut supervisor = match Supervisor::start(&self.env, spec, deadline).await {
            Ok(supervisor) => supervisor,
            Err(error) => {
                unconfirmed.confirm();
                return Err(error.to_string());
            }
        };
        let exit = self.guard.watch(&self.env, &mut supervisor, look, shard.step_down_token(), None).await;
        if exit.is_complete() {
            unconfirmed.confirm();
        }
        if let Some(ended) = exit.background_text() {
            let (set, number) = (&**shard.set(), shard.number());
            tracing::warn!(
                set,
                shard = number,
                "the command has ended, and {ended}; start them in the foreground"
            );
        }
        outcome(&exit)
    }
}

fn outcome(exit: &Exit) -> Result<(), String> {
    if !exit.survivors.is_empty() {
        let survivors: Vec<String> = exit.survivors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "processes that it started could not be ended, and still run: {}",
            survivors.join("; ")
        ));
    }
    match (exit.ended_by, exit.status) {
        (Some(_), _) => Err("it was ended because its lease expired, or its supervisor was gone".to_owned()),
        (None, Status::Code(0)) => Ok(()),
        (None, Status::Code(code)) => Err(format!("exit status {code}")),
        (None, Status::Signal(number)) => Err(format!("ended by signal {number}")),
        (None, Status::Unknown) => Err("its exit status is unknown: another process reaped it".to_owned()),
    }
}
