//! The command of a `[[notify]]`.

use super::message::Message;
use crate::supervisor::{CommandSpec, Deadline, Status, Stream, Supervisor};
use quorate::env::Env;
use std::{
    io::{self, Write},
    os::fd::OwnedFd,
    time::Duration,
};

/// The time between SIGTERM and SIGKILL for a command that takes too long.
const KILL_AFTER: Duration = Duration::from_secs(1);

/// Runs the command with the message in its environment, and as JSON on its standard input.
///
/// # Cancel safety
/// Dropping the future ends the command.
pub(super) async fn run(
    env: &Env,
    words: &[String],
    message: &Message,
    timeout: Duration,
) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("the command is empty")?;
    let mut spec = CommandSpec::new(program)
        .args(args)
        .stdin(Stream::Fd(input(&message.to_json()).map_err(|error| error.to_string())?))
        .stdout(Stream::Null)
        .stderr(Stream::Null)
        .env("QUORATE_EVENT", message.event)
        .env("QUORATE_GROUP", &*message.group)
        .env("QUORATE_TIME", &*message.time)
        .env("QUORATE_REASON", &*message.reason)
        .env("QUORATE_TEXT", &*message.text);
    spec = match &message.job {
        Some(job) => spec.env("QUORATE_JOB", &**job),
        None => spec.env_remove("QUORATE_JOB"),
    };
    for name in crate::run::notify::VARIABLES {
        spec = spec.env_remove(name);
    }
    let until = env.now() + timeout;
    let deadline = Deadline { step_down: until, kill: until + KILL_AFTER };
    let mut supervisor = Supervisor::start(env, spec, deadline).await.map_err(|error| error.to_string())?;
    let exit = supervisor.wait().await;
    match (exit.ended_by, exit.status) {
        (Some(_), _) => Err(format!("it was ended after {timeout:?}")),
        (None, Status::Code(0)) => Ok(()),
        (None, Status::Code(code)) => Err(format!("exit status {code}")),
        (None, Status::Signal(number)) => Err(format!("ended by signal {number}")),
        (None, Status::Unknown) => Err("its exit status is unknown".to_owned()),
    }
}

/// Returns a pipe that holds `text` and then ends. The text is much shorter than the buffer of a pipe, so the
/// write does not wait for a reader.
fn input(text: &str) -> io::Result<OwnedFd> {
    let (ours, mut theirs) = io::pipe()?;
    theirs.write_all(text.as_bytes())?;
    Ok(ours.into())
}
