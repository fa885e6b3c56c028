//! A program that holds a command under a supervisor process. Tests kill it, stop it and make it stuck.
//!
//! The arguments are `supervisor-probe STEP_DOWN_MS KILL_MS HOW [job] -- COMMAND…`. HOW is `once` (one
//! deadline, counted from the start), `extend` (a new deadline every 50 ms), `stuck` (like `once`, but the
//! process then does nothing more), `leave` (like `extend`, and processes in the background run on), `step-down` (like `extend`, with a step-down after 300 ms) or `drop` (the
//! handle is dropped after a second, and the process continues). The program creates the file `held` once the supervisor
//! process has reported the command, and writes the command's exit as one JSON object to standard error.
//!
//! `supervisor-probe as-root COMMAND…` runs the command with the real user id 0. Tests install a copy with the
//! setuid bit.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a program for tests")]

use quorate::env::Env;
use quorate_cli::supervisor::{self, CommandSpec, Deadline, Exit, ForwardedSignals, StartError, Supervisor};
use std::{
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next().expect("arguments");
    if first == supervisor::ARGUMENT {
        return supervisor::main(args);
    }
    if first == "as-root" {
        let error = Command::new(args.next().expect("COMMAND")).args(args).uid(0).gid(0).exec();
        eprintln!("supervisor-probe: {error}");
        return ExitCode::from(125);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ms = |arg: std::ffi::OsString| Duration::from_millis(arg.to_str().unwrap().parse().unwrap());
    let times = (ms(first), ms(args.next().expect("KILL_MS")));
    let how = args.next().expect("HOW");
    let job = args.next().expect("job or --") == "job" && args.next().is_some();
    let command = CommandSpec::new(args.next().expect("COMMAND"))
        .args(args)
        .env("UNDER", "supervisor-probe")
        .leave_background(how == "leave")
        .job_control(job);
    match runtime.block_on(run(command, times, how.to_str().unwrap())) {
        Ok(exit) => {
            eprintln!("{}", serde_json::to_string(&exit).unwrap());
            ExitCode::from(exit.code())
        }
        Err(e) => {
            eprintln!("supervisor-probe: {e}");
            ExitCode::from(e.code())
        }
    }
}

async fn run(
    command: CommandSpec,
    (step_down, kill): (Duration, Duration),
    how: &str,
) -> Result<Exit, StartError> {
    let env = Env::system();
    let mut signals = ForwardedSignals::catch()?;
    let from_now = |env: &Env| Deadline { step_down: env.now() + step_down, kill: env.now() + kill };
    let mut supervisor = Supervisor::start(&env, command, from_now(&env)).await?;
    std::fs::write("held", "").expect("a file in the working directory");
    if how == "stuck" {
        loop {
            std::thread::park();
        }
    }
    if how == "drop" {
        env.sleep(Duration::from_secs(1)).await;
        drop(supervisor);
        return std::future::pending().await;
    }
    let mut told = how != "step-down";
    let tell_at = env.now() + Duration::from_millis(300);
    loop {
        tokio::select! { biased;
            exit = supervisor.wait() => return Ok(exit),
            signal = signals.next() => supervisor.signal(signal),
            () = env.sleep(Duration::from_millis(50)), if how != "once" => supervisor.extend(from_now(&env)),
            () = env.sleep_until(tell_at), if !told => {
                supervisor.step_down();
                told = true;
            }
        }
    }
}
