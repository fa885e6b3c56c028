//! A job of the file: its command, run for one tick under a warden.

use super::{notify, output::Output};
use crate::{
    config::JobConfig,
    guard::Guard,
    supervisor::{CommandSpec, EndedBy, Exit, StartError, Status, Stream, Supervisor},
    time::rfc3339,
};
use quorate::{
    env::Env,
    schedule::{Job, Tick},
};
use std::sync::Arc;

/// The job that runs the command of `config`.
pub(super) fn job(config: &JobConfig, env: &Env, guard: Guard) -> Job {
    let shared = Arc::new(config.clone());
    let env = env.clone();
    let job = Job::new(&config.name, config.schedule.clone(), move |tick: Tick| {
        let (job, env) = (Arc::clone(&shared), env.clone());
        async move { run(&job, &env, guard, &tick).await }
    });
    config.rules_of(job)
}

/// One attempt. It is told to stop at a step-down, at its timeout and where it is cancelled; the command has the grace
/// then, and why it was told is the scheduler's to say.
async fn run(job: &JobConfig, env: &Env, guard: Guard, tick: &Tick) -> Result<(), String> {
    let mut spec = spec(job, env, tick)?;
    let mut output = None;
    if let Some(most) = job.keep_output {
        let (pumps, stdout, stderr) = Output::piped(env, most).map_err(|error| error.to_string())?;
        spec = spec.stdout(Stream::Fd(stdout)).stderr(Stream::Fd(stderr));
        output = Some(pumps);
    }
    let look = || tick.held_until();
    let deadline = guard.deadline(look().unwrap_or_default());
    // From here on the command may run, even where its start is dropped or gives no word in time.
    let unconfirmed = Unconfirmed(tick);
    let mut supervisor = match Supervisor::start(env, spec, deadline).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            if !matches!(error, StartError::Supervisor(_)) {
                unconfirmed.confirm();
            }
            return Err(error.to_string());
        }
    };
    let exit = guard.tend(env, &mut supervisor, look, tick.cancellation_token(), None).await;
    if exit.is_complete() {
        unconfirmed.confirm();
    }
    if let Some(output) = output {
        tick.set_output(&output.tail().await);
    }
    let told = tick.cancellation_token().is_cancelled();
    if exit.ended_by.is_some() && !told {
        // Ended by its guard, and by nobody's wish: at least once, it runs again.
        tick.mark_interrupted();
    }
    outcome(&exit, told, &job.ok_exit_codes)
}

/// A command of which it is not known that everything it started has ended. Dropped, by a daemon that resigns say, it
/// keeps the term's lease from being released early.
struct Unconfirmed<'a>(&'a Tick);

impl Unconfirmed<'_> {
    fn confirm(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        if let Some(term) = self.0.term() {
            term.end_without_release();
        }
    }
}

/// What is started: the command, what the file adds to its environment, and what it is to know of its tick.
fn spec(job: &JobConfig, env: &Env, tick: &Tick) -> Result<CommandSpec, String> {
    let token = tick.fencing_token().map_err(|error| error.to_string())?;
    let (program, args) = job.command.split_first().ok_or("the command is empty")?;
    let mut spec = CommandSpec::new(program).args(args).stdin(Stream::Null);
    for name in notify::VARIABLES {
        // What a command tells systemd is not for this process's unit.
        spec = spec.env_remove(name);
    }
    for (name, value) in &job.env {
        spec = spec.env(name, value);
    }
    spec = spec
        .env("QUORATE_JOB", &*job.name)
        .env("QUORATE_TICK", rfc3339(tick.at()))
        .env("QUORATE_CAUSE", tick.cause().to_string())
        .env("QUORATE_ATTEMPT", tick.attempt().to_string())
        .env("QUORATE_FENCING_TOKEN", token.to_string());
    // A tick that is spread over workers is held by a claim, and by no leadership.
    spec = match tick.term() {
        Some(term) => spec.env("QUORATE_RESOURCE", format!("election/{}", term.group())),
        None => spec.env_remove("QUORATE_RESOURCE"),
    };
    spec = match job.timeout {
        Some(timeout) => spec.env("QUORATE_DEADLINE", rfc3339(env.wall() + timeout)),
        // Nor that of a run which we may be part of.
        None => spec.env_remove("QUORATE_DEADLINE"),
    };
    if let Some(dir) = &job.cwd {
        spec = spec.dir(dir);
    }
    Ok(spec)
}

fn outcome(exit: &Exit, told: bool, ok: &[u8]) -> Result<(), String> {
    if !exit.survivors.is_empty() {
        let survivors: Vec<String> = exit.survivors.iter().map(ToString::to_string).collect();
        return Err(format!("what it started could not be ended, and runs on: {}", survivors.join("; ")));
    }
    match (exit.ended_by, exit.status) {
        (None, Status::Code(code)) if ok.iter().any(|ok| i32::from(*ok) == code) => Ok(()),
        (None, Status::Code(code)) => Err(format!("exit status {code}")),
        (None, Status::Signal(number)) => Err(format!("ended by signal {number}")),
        (None, Status::Unknown) => Err("its exit status is unknown: another process took it".to_owned()),
        (Some(_), _) if told => Err("told to stop".to_owned()),
        (Some(EndedBy::SupervisorGone), _) => {
            Err("its supervisor was killed, and so it was ended".to_owned())
        }
        (Some(EndedBy::WardenSilent), _) => {
            Err("its supervisor did not answer, and so both were ended".to_owned())
        }
        (Some(_), _) => Err("ended because its lease ran out".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_exit_codes_are_no_failures_is_the_file_s_to_say() {
        let ended = |status, ok: &[u8]| {
            outcome(&Exit { status, ended_by: None, killed: false, survivors: Vec::new() }, false, ok)
        };
        assert_eq!(ended(Status::Code(0), &[0]), Ok(()));
        assert_eq!(ended(Status::Code(3), &[0, 3]), Ok(()));
        assert_eq!(ended(Status::Code(3), &[0]), Err("exit status 3".to_owned()));
        assert_eq!(ended(Status::Code(0), &[3]), Err("exit status 0".to_owned()));
        assert_eq!(ended(Status::Signal(9), &[0, 9]), Err("ended by signal 9".to_owned()));
        let lost = Exit {
            status: Status::Code(0),
            ended_by: Some(EndedBy::StepDown),
            killed: false,
            survivors: Vec::new(),
        };
        assert!(outcome(&lost, true, &[0]).is_err(), "told to end, it may have left its work half done");
    }
}
