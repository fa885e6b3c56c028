//! `quorate run`: the daemon. The jobs of the file, on whichever machine leads.

use crate::{
    args::RunArgs,
    config::{Config, JobConfig},
    exit::{CONFIG, FAILURE, Failure},
    guard::Guard,
    open,
    warden::{CommandSpec, EndedBy, Exit, Status, Stream, Warden},
};
use quorate::{
    election::{Election, ElectionError},
    env::{BootTime, Env, WallTime},
    round::{NodeState, Setup},
    schedule::{Job, Scheduler, Tick},
};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use tokio::signal::unix::{SignalKind, signal};

/// How long the first handshakes may take before the daemon goes on without them.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT.
pub(crate) async fn run(args: &RunArgs, config: &Config) -> Result<u8, Failure> {
    let (group, jobs) = config.group_with_jobs()?;
    if args.check {
        return Ok(check(config, group, jobs));
    }
    let fail = |error: std::io::Error| Failure::new(FAILURE, error);
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let quorum = open::quorum(config, config.setup.clone())?;
    let shutdown = async move {
        tokio::select! { biased;
            _ = terminate.recv() => tracing::info!("SIGTERM: resigning"),
            _ = interrupt.recv() => tracing::info!("SIGINT: resigning"),
        }
    };
    tracing::info!(
        worker = &*config.setup.worker,
        group = &**group,
        jobs = jobs.len(),
        "{} nodes from {}",
        config.nodes.len(),
        config.nodes_from
    );
    let nodes = quorum.met(FIRST_LOOK).await;
    let barred = |state: &NodeState| matches!(state, NodeState::Refused(why) if why.is_permanent());
    if nodes.iter().filter(|node| barred(&node.state)).count() > (nodes.len() - 1) / 2 {
        quorum.close().await;
        return Err(Failure::new(CONFIG, open::explain(&nodes)));
    }
    let guard = Guard::new(config.lease.ttl, config.lease.step_down_grace);
    let election =
        Election::new(&quorum, group).ttl(config.lease.ttl).step_down_grace(config.lease.step_down_grace);
    let mut scheduler = Scheduler::on(&election);
    for job in jobs {
        scheduler = scheduler.job(command_job(job, quorum.env(), guard));
    }
    let ended = scheduler.run().until(shutdown).await;
    quorum.close().await;
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Ok(0)
        }
        Err(ElectionError::Setup(error)) => Err(Failure::new(CONFIG, error)),
        Err(ElectionError::Work(error)) => Err(Failure::new(CONFIG, error)),
        Err(error) => Err(Failure::new(FAILURE, error)),
    }
}

/// Says what the file means.
fn check(config: &Config, group: &str, jobs: &[JobConfig]) -> u8 {
    println!(
        "group {group}, lease of {:?}, {} nodes from {}",
        config.lease.ttl,
        config.nodes.len(),
        config.nodes_from
    );
    for node in &config.nodes {
        println!("  {node}");
    }
    if let Some(advice) = Setup::advice(config.nodes.len()) {
        println!("  WARNING: {advice}");
    }
    let now = Env::system().wall();
    for job in jobs {
        let next = job.schedule.next_after(now).map_or("never".to_owned(), |at| job.schedule.show(at));
        println!(
            "job {}: {}, {}, next {next}: {}",
            job.name,
            job.schedule,
            job.delivery,
            job.command.join(" ")
        );
    }
    0
}

fn command_job(config: &JobConfig, env: &Env, guard: Guard) -> Job {
    let shared = Arc::new(config.clone());
    let env = env.clone();
    let job = Job::new(&config.name, config.schedule.clone(), move |tick: Tick| {
        let (job, env) = (Arc::clone(&shared), env.clone());
        async move { command(&job, &env, guard, &tick).await }
    });
    job.misfire(config.misfire).delivery(config.delivery)
}

/// Runs a job's command for one tick, under a warden.
async fn command(job: &JobConfig, env: &Env, guard: Guard, tick: &Tick) -> Result<(), String> {
    let token = tick.check().map_err(|error| error.to_string())?;
    let (program, args) = job.command.split_first().ok_or("the command is empty")?;
    let mut spec = CommandSpec::new(program).args(args).stdin(Stream::Null);
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
    let look = || tick.term().work_until();
    let deadline = guard.deadline(look().unwrap_or_default());
    let mut warden = Warden::start(env, spec, deadline).await.map_err(|error| error.to_string())?;
    let stop = tick.stop().child_token();
    let mut exit = pin!(guard.tend(env, &mut warden, look, &stop, None));
    let deadline = job.timeout.map_or(BootTime::from_nanos(u64::MAX), |timeout| env.now() + timeout);
    match env.before(deadline, &mut exit).await {
        Some(exit) => {
            if exit.ended_by.is_some() {
                // Ended by its guard, not by itself: at least once, it runs again.
                tick.mark_interrupted();
            }
            outcome(&exit)
        }
        None => {
            // Told to end like at a step-down: it has the grace.
            stop.cancel();
            exit.await;
            Err(format!("timed out after {:.1?}", job.timeout.unwrap_or_default()))
        }
    }
}

/// A tick's time as RFC 3339 has it, in UTC, with a fraction only where there is one.
pub(crate) fn rfc3339(at: WallTime) -> String {
    let time = UNIX_EPOCH + Duration::from_micros(at.as_micros());
    if at.as_micros().is_multiple_of(1_000_000) {
        humantime::format_rfc3339_seconds(time).to_string()
    } else {
        humantime::format_rfc3339_micros(time).to_string()
    }
}

fn outcome(exit: &Exit) -> Result<(), String> {
    match (exit.ended_by, exit.status) {
        (None, Status::Code(0)) => Ok(()),
        (None, Status::Code(code)) => Err(format!("exit status {code}")),
        (None, Status::Signal(number)) => Err(format!("ended by signal {number}")),
        (Some(EndedBy::StepDown), _) => Err("ended at step-down".to_owned()),
        (Some(_), _) => Err("ended because its lease ran out".to_owned()),
    }
}
