//! A job of the file: its command, run for one tick under a warden.

use super::{notify, output::Output};
use crate::{
    config::JobConfig,
    guard::Guard,
    warden::{CommandSpec, EndedBy, Exit, Status, Stream, Warden},
    when::rfc3339,
};
use quorate::{
    env::{BootTime, Env},
    schedule::{Job, Tick},
};
use std::{pin::pin, sync::Arc};

/// The job that runs the command of `config`.
pub(super) fn job(config: &JobConfig, env: &Env, guard: Guard) -> Job {
    let shared = Arc::new(config.clone());
    let env = env.clone();
    let job = Job::new(&config.name, config.schedule.clone(), move |tick: Tick| {
        let (job, env) = (Arc::clone(&shared), env.clone());
        async move { run(&job, &env, guard, &tick).await }
    });
    job.misfire(config.misfire).delivery(config.delivery)
}

async fn run(job: &JobConfig, env: &Env, guard: Guard, tick: &Tick) -> Result<(), String> {
    let mut spec = spec(job, tick)?;
    let output = match job.keep_output {
        Some(most) => {
            let (output, stdout, stderr) = Output::piped(env, most).map_err(|error| error.to_string())?;
            spec = spec.stdout(Stream::Fd(stdout)).stderr(Stream::Fd(stderr));
            Some(output)
        }
        None => None,
    };
    let look = || tick.term().work_until();
    let deadline = guard.deadline(look().unwrap_or_default());
    let mut warden = Warden::start(env, spec, deadline).await.map_err(|error| error.to_string())?;
    let stop = tick.stop().child_token();
    let mut exit = pin!(guard.tend(env, &mut warden, look, &stop, None));
    let deadline = job.timeout.map_or(BootTime::from_nanos(u64::MAX), |timeout| env.now() + timeout);
    let exit = match env.before(deadline, &mut exit).await {
        Some(exit) => Some(exit),
        None => {
            // Told to end like at a step-down: it has the grace.
            stop.cancel();
            exit.await;
            None
        }
    };
    if let Some(output) = output {
        let _ = output.tail().await;
    }
    match exit {
        Some(exit) => {
            if exit.ended_by.is_some() {
                // Ended by its guard, not by itself: at least once, it runs again.
                tick.mark_interrupted();
            }
            outcome(&exit, &job.ok_exit_codes)
        }
        None => Err(format!("timed out after {:.1?}", job.timeout.unwrap_or_default())),
    }
}

/// What is started: the command, what the file adds to its environment, and what it is to know of its tick.
fn spec(job: &JobConfig, tick: &Tick) -> Result<CommandSpec, String> {
    let token = tick.check().map_err(|error| error.to_string())?;
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
        .env("QUORATE_RESOURCE", format!("election/{}", tick.term().group()))
        .env("QUORATE_FENCING_TOKEN", token.to_string());
    if let Some(dir) = &job.cwd {
        spec = spec.dir(dir);
    }
    Ok(spec)
}

fn outcome(exit: &Exit, ok: &[u8]) -> Result<(), String> {
    match (exit.ended_by, exit.status) {
        (None, Status::Code(code)) if ok.iter().any(|ok| i32::from(*ok) == code) => Ok(()),
        (None, Status::Code(code)) => Err(format!("exit status {code}")),
        (None, Status::Signal(number)) => Err(format!("ended by signal {number}")),
        (Some(EndedBy::StepDown), _) => Err("ended at step-down".to_owned()),
        (Some(_), _) => Err("ended because its lease ran out".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_exit_codes_are_no_failures_is_the_file_s_to_say() {
        let ended = |status, ok: &[u8]| {
            outcome(&Exit { status, ended_by: None, killed: false, survivors: false }, ok)
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
            survivors: false,
        };
        assert!(outcome(&lost, &[0]).is_err(), "told to end, it may have left its work half done");
    }
}
