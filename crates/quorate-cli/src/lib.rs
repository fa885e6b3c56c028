//! The `quorate` program, as a library.
//!
//! # What is not guaranteed
//!
//! See [`supervisor`] for the limits of ending a command in time, and the library for the limits of a lease.
//! The state that `quorate status` shows may have changed since it was read.

// A function fits on a screen. The tables of tests do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod args;
mod audit;
mod claims;
mod clean;
pub mod config;
mod connect;
mod demo;
mod doctor;
mod exec;
mod exit;
mod failures;
mod files;
mod generate;
mod guard;
mod http;
mod import;
mod init;
mod jobs;
mod lead;
mod leader;
mod leases;
mod lock;
mod locks;
mod log;
mod node_memory;
mod nodes;
mod notices;
mod operate;
mod operator;
mod otlp;
mod outputs;
#[doc(hidden)]
pub mod probe;
mod process_one;
mod progress;
mod recorder;
mod run;
mod schedule_text;
mod serve;
mod shards;
mod show;
mod status;
mod stored_names;
pub mod supervisor;
mod table;
mod terminal;
mod top;
mod web;
mod when;

use args::{
    Cli, Command, LeaderCommand, LockCommand, LogFormat, LogLevel, NoCommand, NodesCommand, ShardsCommand,
};
use config::{Config, Environment, Flags, OtlpConfig};
use exit::{FAILURE, Failure};
use log::SubscriberLayer;
use otlp::Otlp;
use quorate::internals::JobAction;
pub(crate) use quorate_operator::time;
use std::{ffi::OsString, process::ExitCode};

/// Runs the program with the arguments and the environment of this process, and returns its exit status.
pub fn main() -> ExitCode {
    // The signals are reset before anything else. The parent process may have left SIGCHLD ignored, and then
    // this process could not observe the end of a child. It may also have left signals blocked.
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
        Err(NoCommand { text, requested: true }) => {
            return match show::print(&text) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => report(&failure),
            };
        }
        Err(NoCommand { text, requested: false }) => {
            eprint!("{text}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let code = match dispatch(&cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => report(&failure),
    };
    log::finish();
    code
}

fn report(failure: &Failure) -> ExitCode {
    log::say(&format!("quorate: {failure}"));
    ExitCode::from(failure.code)
}

fn dispatch(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Demo(args) => block_on(demo::demo(args)),
        // With `--check`, no command of a job is started, so there are no orphaned processes that process 1
        // would have to reap.
        Command::Run(args) if process_one::is_process_one() && !args.check => {
            block_on(process_one::supervise())
        }
        Command::Run(args) => {
            let config = Config::load(&args.flags(), &Environment::process())?;
            let wanted = config.otlp.as_ref().filter(|_| !args.check);
            let (otlp, traces) = start_otlp(wanted, &config, config.group.as_deref());
            log::start(args.log.format, args.log.level, traces);
            block_on(run::run(args, &config, otlp))
        }
        Command::Lead(args) => {
            daemon((&args.flags(), args.group.as_deref()), &args.log, async |config, otlp| {
                lead::lead(args, config, otlp).await
            })
        }
        Command::Web(args) => {
            daemon((&args.flags(), args.group.as_deref()), &args.log, async |config, otlp| {
                web::web(args, config, otlp).await
            })
        }
        Command::Serve(args) => {
            daemon((&args.flags(), args.group.as_deref()), &args.log, async |config, otlp| {
                serve::serve(args, config, otlp).await
            })
        }
        Command::Exec(args) => {
            log::start(LogFormat::Text, LogLevel::Warn, None);
            on(&args.nodes, async |config| exec::exec(args, config).await)
        }
        Command::Status(args) => on(&args.nodes, async |config| status::status(args, config).await),
        Command::Doctor(args) => on(&args.nodes, async |config| doctor::doctor(args, config).await),
        Command::Freeze(args) => {
            on(&args.wait.group.nodes, async |config| operate::freeze(args, config).await)
        }
        Command::Unfreeze(args) => on(&args.wait.group.nodes, async |config| {
            operate::request(JobAction::Unfreeze, &args.wait, config).await
        }),
        Command::Leader(command) => on(command.nodes(), async |config| match command {
            LeaderCommand::Show(args) => leader::show(args, config).await,
            LeaderCommand::History(args) => leader::history(args, config).await,
            LeaderCommand::Resign(args) => operate::resign(args, config).await,
        }),
        Command::Audit(args) => on(&args.group.nodes, async |config| audit::audit(args, config).await),
        Command::Jobs(command) => block_on(jobs::jobs(command)),
        Command::When(args) => when::when(args),
        Command::Import(command) => import::import(command),
        Command::Init(args) => init::init(args),
        Command::Completions(args) => generate::completions(args),
        Command::Man(args) => generate::man(args),
        Command::Top(args) => {
            top::check_terminal()?;
            on(&args.nodes, async |config| top::top(args, config).await)
        }
        Command::Claims(command) => on(command.nodes(), async |config| claims::claims(command, config).await),
        Command::Lock(command) => dispatch_lock(command),
        Command::Shards(command) => dispatch_shards(command),
        Command::Nodes(command) => dispatch_nodes(command),
    }
}

fn dispatch_lock(command: &LockCommand) -> Result<u8, Failure> {
    match command {
        LockCommand::Show(args) => on(&args.nodes, async |config| lock::show(args, config).await),
        LockCommand::List(args) => on(&args.nodes, async |config| locks::list(args, config).await),
        LockCommand::Release(args) => on(&args.lock.nodes, async |config| lock::release(args, config).await),
    }
}

fn dispatch_shards(command: &ShardsCommand) -> Result<u8, Failure> {
    match command {
        ShardsCommand::Run(args) => daemon((&args.flags(), None), &args.log, async |config, otlp| {
            shards::run(args, config, otlp).await
        }),
        ShardsCommand::List(args) => on(&args.nodes, async |config| shards::list(args, config).await),
    }
}

fn dispatch_nodes(command: &NodesCommand) -> Result<u8, Failure> {
    match command {
        NodesCommand::Trust(args) => on(&args.nodes, async |config| nodes::trust(args, config).await),
        NodesCommand::List(args) => on(&args.nodes, async |config| nodes::list(args, config).await),
        NodesCommand::Replace(args) => on(&args.nodes, async |config| nodes::replace(args, config).await),
    }
}

/// Loads the configuration with these arguments, and runs a command on its nodes.
fn on(nodes: &args::NodeArgs, work: impl AsyncFnOnce(&Config) -> Result<u8, Failure>) -> Result<u8, Failure> {
    let config = Config::load(&nodes.flags(), &Environment::process())?;
    block_on(work(&config))
}

/// Loads the configuration with these flags, begins to log, and runs a daemon without jobs for this group.
fn daemon(
    (flags, group): (&Flags, Option<&str>),
    log_args: &args::LogArgs,
    work: impl AsyncFnOnce(&Config, Option<Otlp>) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let config = Config::load(flags, &Environment::process())?;
    let (otlp, traces) = start_otlp(config.otlp.as_ref(), &config, group.or(config.group.as_deref()));
    log::start(log_args.format, log_args.level, traces);
    block_on(work(&config, otlp))
}

/// Prepares the sender of traces and metrics, if there is a collector. The layer collects the spans.
fn start_otlp(
    collector: Option<&OtlpConfig>,
    config: &Config,
    group: Option<&str>,
) -> (Option<Otlp>, Option<SubscriberLayer>) {
    collector.and_then(|collector| Otlp::prepare(collector, &config.settings.worker, group)).unzip()
}

/// Runs `work` to its end. Threads that hang after that, such as in a DNS lookup, are not waited for.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(FAILURE, error))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}
