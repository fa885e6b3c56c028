//! The `quorate` program, as a library.
//!
//! # What is not guaranteed
//!
//! See [`supervisor`] for the limits of ending a command in time, and the library for those of a lease. What
//! `quorate status` shows was true a moment ago.

mod args;
pub mod config;
mod connect;
mod demo;
mod doctor;
mod exec;
mod exit;
mod files;
mod guard;
mod init;
mod jobs;
mod lead;
mod log;
mod nodes;
#[doc(hidden)]
pub mod probe;
mod run;
mod show;
mod status;
pub mod supervisor;
mod time;
mod unlock;

use args::{Cli, Command, LeadCommand, LogFormat, LogLevel, NodesCommand, Unread};
use config::{Config, Environment};
use exit::{FAILURE, Failure};
use std::{ffi::OsString, io::Write, process::ExitCode};

/// The program: reads the process's arguments and environment, and gives its exit status.
pub fn main() -> ExitCode {
    // First: from here on children can be waited for, and signals arrive, whatever the parent has done.
    if let Err(error) = supervisor::reset_signals() {
        eprintln!("quorate: cannot reset the signals that the parent ignores or blocks: {error}");
        return ExitCode::from(FAILURE);
    }
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == supervisor::ARGUMENT) {
        return supervisor::main(args.into_iter().skip(2));
    }
    if args.get(1).is_some_and(|first| first == demo::ARGUMENT) {
        return demo::worker_main(args.into_iter().skip(2));
    }
    let cli = match Cli::read(&args) {
        Ok(cli) => cli,
        Err(Unread { text, asked_for: true }) => {
            // Whoever asked for help may have closed the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Unread { text, asked_for: false }) => {
            eprint!("{text}");
            return ExitCode::from(exit::CONFIG);
        }
    };
    let code = dispatch(&cli.command).unwrap_or_else(|failure| {
        log::say(&format!("quorate: {failure}"));
        failure.code
    });
    log::finish();
    ExitCode::from(code)
}

fn dispatch(command: &Command) -> Result<u8, Failure> {
    let load = |nodes: &args::NodeArgs| Config::load(&nodes.flags(), &Environment::process());
    match command {
        Command::Demo(args) => block_on(demo::demo(args)),
        // `--check` starts nothing that could be left to process 1.
        Command::Run(args) if init::is_process_one() && !args.check => block_on(init::supervise()),
        Command::Run(args) => {
            log::start(args.log_format, args.log_level);
            let config = load(&args.nodes)?;
            block_on(run::run(args, &config))
        }
        Command::Exec(args) => {
            log::start(LogFormat::Text, LogLevel::Warn);
            let config = load(&args.nodes)?;
            block_on(exec::exec(args, &config))
        }
        Command::Status(args) => {
            let config = load(&args.nodes)?;
            block_on(status::status(args, &config))
        }
        Command::Doctor(args) => {
            let config = load(&args.nodes)?;
            block_on(doctor::doctor(args, &config))
        }
        Command::Jobs(command) => block_on(jobs::jobs(command, &Environment::process())),
        Command::Lead(LeadCommand::Resign(args)) => {
            let config = load(&args.nodes)?;
            block_on(lead::resign(args, &config))
        }
        Command::Unlock(args) => {
            let config = load(&args.nodes)?;
            block_on(unlock::unlock(args, &config))
        }
        Command::Nodes(NodesCommand::Admit(args)) => {
            let config = load(&args.nodes)?;
            block_on(status::admit(args, &config))
        }
        Command::Nodes(NodesCommand::List(args)) => {
            let config = load(&args.nodes)?;
            block_on(nodes::list(args, &config))
        }
        Command::Nodes(NodesCommand::Replace(args)) => {
            let config = load(&args.nodes)?;
            block_on(nodes::replace(args, &config))
        }
    }
}

/// Runs `work` to its end, and waits for nothing that hangs beside it (a resolver, say).
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(FAILURE, error))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}
