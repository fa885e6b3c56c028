//! A job of the configuration file. Each tick runs the job's command under a supervisor process.

use super::{lines::RunLabel, notify, output::Output, request};
use crate::{
    config::{Background, JobConfig, PingEvent},
    guard::{Guard, Unconfirmed},
    notices::{Client, Pings},
    outputs::OutputFiles,
    supervisor::{CommandSpec, EndedBy, Exit, StartError, Status, Stream, Supervisor},
    time::rfc3339,
};
use futures_util::future::BoxFuture;
use quorate::{
    env::Env,
    scheduler::{Job, RunContext},
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::fd::OwnedFd,
    sync::Arc,
};

/// The parts of the daemon that every job uses. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct DaemonParts {
    pub(super) pings: Pings,
    /// Sends the requests of jobs.
    pub(super) client: Client,
    pub(super) group: Arc<str>,
    /// The files that keep the output of runs; `None` if there are none.
    pub(super) outputs: Option<OutputFiles>,
}

/// Returns the job that runs the command of `config`.
pub(super) fn job(config: &JobConfig, env: &Env, guard: Guard, around: &DaemonParts) -> Job {
    let shared = Arc::new(config.clone());
    let (env, around) = (env.clone(), around.clone());
    let job = Job::new(&config.name, config.schedule.clone(), move |tick: RunContext| {
        let (job, env, around) = (Arc::clone(&shared), env.clone(), around.clone());
        async move {
            around.pings.ping(&job, PingEvent::Start);
            let ended = match &job.http {
                Some(http) => request::send(&around.client, &around.group, &job, http, &tick).await,
                None => run(&job, &env, guard, &around, &tick).await,
            };
            ping_end(&job, &around.pings, &tick, ended.is_ok());
            ended
        }
    });
    job.with_rules(config.rules.clone())
}

/// Returns the handler that runs a command of the configuration for a job on the nodes. The job gives the payload, which
/// the command reads from its standard input, and never a part of the command itself.
pub(super) fn handler(
    command: &[String],
    env: &Env,
    guard: Guard,
    around: &DaemonParts,
) -> impl Fn(RunContext) -> BoxFuture<'static, Result<(), String>> + Send + Sync + use<> {
    let (command, env, around) = (command.to_vec(), env.clone(), around.clone());
    move |tick: RunContext| {
        let job = JobConfig::of_command(tick.job(), command.clone());
        let (env, around) = (env.clone(), around.clone());
        Box::pin(async move { run(&job, &env, guard, &around, &tick).await })
    }
}

/// Returns a file in memory with the payload, from which a command reads its standard input. A pipe may have less room than
/// a payload.
fn payload_file(payload: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("payload", MemfdFlags::CLOEXEC)?);
    file.write_all(payload)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Pings the end of a run. An attempt that fails is the end only if it is the last one, and a run that was
/// cancelled has neither succeeded nor failed.
fn ping_end(job: &JobConfig, pings: &Pings, tick: &RunContext, succeeded: bool) {
    let is_last = tick.attempt() >= job.rules.retries.attempts();
    if succeeded {
        pings.ping(job, PingEvent::Success);
    } else if is_last && !tick.cancellation_token().is_cancelled() {
        pings.ping(job, PingEvent::Fail);
    }
}

/// Runs one attempt. At a step-down, at the attempt's timeout and when the run is cancelled, the command gets
/// SIGTERM. It then has the grace period in which to end. The scheduler records the reason.
async fn run(
    job: &JobConfig,
    env: &Env,
    guard: Guard,
    around: &DaemonParts,
    tick: &RunContext,
) -> Result<(), String> {
    let mut spec = spec(job, env, tick)?;
    let label = RunLabel { job: Arc::clone(&job.name), tick: tick.scheduled_at(), attempt: tick.attempt() };
    let file = match &around.outputs {
        Some(outputs) => outputs.open(env, &job.name, tick.scheduled_at()).await,
        None => None,
    };
    let most = job.rules.keep_output;
    let (output, stdout, stderr) =
        Output::piped(env, most, &label, file).map_err(|error| error.to_string())?;
    spec = spec.leave_background(job.background == Background::Leave);
    spec = spec.stdout(Stream::Fd(stdout)).stderr(Stream::Fd(stderr));
    let look = || tick.held_until();
    let deadline = guard.deadline(look().unwrap_or_default());
    // The command may run from now on, even if the future of `start` is dropped.
    let unconfirmed = Unconfirmed(|| tick.end_without_release());
    let mut supervisor = match Supervisor::start(env, spec, deadline).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            unconfirmed.confirm();
            output.tail().await;
            return Err(not_started(&error));
        }
    };
    let exit = guard.watch(env, &mut supervisor, look, tick.cancellation_token(), None).await;
    if exit.is_complete() {
        unconfirmed.confirm();
    }
    let tail = output.tail().await;
    if job.rules.keep_output > 0 {
        tick.set_output(&tail);
    }
    let cancelled = tick.cancellation_token().is_cancelled();
    if exit.ended_by.is_some() && !cancelled {
        // The supervisor ended the command although the scheduler had not asked it to stop. The work is not
        // done, so the tick of an at-least-once job runs again.
        tick.mark_interrupted();
    }
    let outcome = outcome(&exit, cancelled, &job.ok_exit_codes);
    let Some(ended) = exit.background_text() else { return outcome };
    tracing::warn!(
        job = &*job.name,
        run = rfc3339(tick.scheduled_at()),
        "the command has ended, and {ended}; start them in the foreground, or set background = \"leave\""
    );
    tick.set_note(&ended);
    outcome.map_err(|error| format!("{error}; {ended}"))
}

/// Returns the command with its environment: the variables from the file, and those that describe the tick.
fn spec(job: &JobConfig, env: &Env, tick: &RunContext) -> Result<CommandSpec, String> {
    let token = tick.fencing_token().map_err(|error| error.to_string())?;
    let (program, args) = job.command.split_first().ok_or("the command is empty")?;
    let stdin = match tick.payload() {
        [] => Stream::Null,
        payload => {
            let file =
                payload_file(payload).map_err(|error| format!("cannot give it its payload: {error}"))?;
            Stream::Fd(file)
        }
    };
    let mut spec = CommandSpec::new(program).args(args).stdin(stdin);
    for name in notify::VARIABLES {
        // Messages to systemd must come from this process, and not from its commands.
        spec = spec.env_remove(name);
    }
    for (name, value) in &job.env {
        spec = spec.env(name, &value.0);
    }
    spec = spec
        .env("QUORATE_JOB", &*job.name)
        .env("QUORATE_TICK", rfc3339(tick.scheduled_at()))
        .env("QUORATE_CAUSE", tick.cause().to_string())
        .env("QUORATE_ATTEMPT", tick.attempt().to_string())
        .env("QUORATE_FENCING_TOKEN", token.to_string());
    // A process that was itself started as a command of a job must not pass the request of that outer run on.
    spec = match tick.request() {
        Some(id) => spec.env("QUORATE_REQUEST", id.to_string()),
        None => spec.env_remove("QUORATE_REQUEST"),
    };
    // A run on any worker executes under a claim, and has no term.
    spec = match tick.term() {
        Some(term) => spec.env("QUORATE_RESOURCE", format!("election/{}", term.group())),
        None => spec.env_remove("QUORATE_RESOURCE"),
    };
    spec = match job.rules.timeout {
        Some(timeout) => spec.env("QUORATE_DEADLINE", rfc3339(env.wall() + timeout)),
        // This process may itself have been started as a command of a job. Its commands must not inherit the
        // deadline of that outer run.
        None => spec.env_remove("QUORATE_DEADLINE"),
    };
    if let Some(dir) = &job.cwd {
        spec = spec.dir(dir);
    }
    Ok(spec)
}

/// Returns the reason why the command was not started, with the field of the job that has to change.
fn not_started(error: &StartError) -> String {
    match error {
        StartError::Directory { dir, why } => {
            format!(
                "cannot enter cwd = {dir:?}: {why}; create the directory, give the daemon's user access, or correct cwd"
            )
        }
        error => error.to_string(),
    }
}

fn outcome(exit: &Exit, cancelled: bool, ok: &[u8]) -> Result<(), String> {
    if !exit.survivors.is_empty() {
        let survivors: Vec<String> = exit.survivors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "processes that it started could not be ended, and still run: {}",
            survivors.join("; ")
        ));
    }
    match (exit.ended_by, exit.status) {
        (None, Status::Code(code)) if ok.iter().any(|ok| i32::from(*ok) == code) => Ok(()),
        (None, Status::Code(code)) => Err(format!("exit status {code}")),
        (None, Status::Signal(number)) => Err(format!("ended by signal {number}")),
        (None, Status::Unknown) => Err("its exit status is unknown: another process reaped it".to_owned()),
        (Some(_), _) if cancelled => Err("cancelled".to_owned()),
        (Some(EndedBy::SupervisorGone), _) => {
            Err("it was ended because its supervisor was killed".to_owned())
        }
        (Some(EndedBy::SupervisorSilent), _) => {
            Err("it was ended because its supervisor did not answer".to_owned())
        }
        (Some(_), _) => Err("it was ended because its lease expired".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_decides_which_exit_codes_are_success() {
        let ended = |status, ok: &[u8]| {
            outcome(
                &Exit {
                    status,
                    ended_by: None,
                    killed: false,
                    survivors: Vec::new(),
                    background: 0,
                    escaped: 0,
                },
                false,
                ok,
            )
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
            background: 0,
            escaped: 0,
        };
        assert!(
            outcome(&lost, true, &[0]).is_err(),
            "a command that was ended may have left its work half done"
        );
    }
}
