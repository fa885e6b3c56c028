//! Starts the supervisor process.

use super::passing::this_binary;
use super::process::{Invocation, JobControl};
use super::wire::{self, Order};
use super::{ARGUMENT, CommandSpec, Deadline, StartError, own_group};
use crate::config;
use rustix::process::getpid;
use std::os::{
    fd::OwnedFd,
    unix::{net::UnixStream as StdStream, process::CommandExt},
};
use tokio::{
    net::UnixStream,
    process::{Child, Command},
};

/// A supervisor process that has not yet been sent the command's streams. Dropping this value sends a deadline that has
/// already passed, so that the supervisor process does not wait for the streams.
pub(super) struct Unstarted(pub(super) Option<UnixStream>);

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            // If this message cannot be sent, the supervisor process ends when the connection closes.
            let _ = socket.try_write(&wire::line(&NOW));
        }
    }
}

/// A deadline that has already passed.
pub(super) const NOW: Order = Order::Deadline { step_down: 0, kill: 0 };

/// Starts this same binary as the supervisor process. Its standard input is the socket. Of the file system, the call
/// reads only this binary.
pub(super) fn spawn_supervisor(
    command: &CommandSpec,
    deadline: Deadline,
    socket: StdStream,
) -> Result<Child, StartError> {
    // Without a process group in this namespace there is no terminal to lend either.
    let group = own_group().filter(|_| command.job_control);
    let job_control = group.map(|group| JobControl { group, leads: getpid() == group });
    let invocation = Invocation {
        deadline,
        job_control,
        leave_background: command.leave_background,
        // The supervisor process enters the directory itself. Its file system may not answer, and this process
        // must not wait for it.
        dir: command.dir.clone(),
        program: command.program.clone(),
        args: command.args.clone(),
    };
    let mut supervisor = std::process::Command::new(this_binary()?);
    supervisor.arg0("quorate").arg(ARGUMENT).args(invocation.to_args());
    // The variable `QUORATE_NODES` may contain the passwords of the nodes. So the command gets it only if the
    // job's `env` sets it.
    supervisor.env_remove(config::NODES_VARIABLE);
    for name in &command.without {
        supervisor.env_remove(name);
    }
    supervisor
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .stdin(OwnedFd::from(socket))
        .stdout(std::process::Stdio::null())
        .process_group(0);
    Ok(Command::from(supervisor).spawn()?)
}
