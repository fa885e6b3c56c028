//! `quorate shards run`: a worker of a set, which runs a command for each of its shards.

use super::command::ShardCommand;
use crate::{
    args::ShardsRunArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
    guard::Guard,
    http::{Listener, Server},
    otlp::Otlp,
    recorder::Measurements,
    run::{
        begin,
        daemon::{Signals, max_silence},
        steady::{Sayings, work_until_signal},
        stop::StopDeadline,
    },
};
use quorate::{
    election::Election,
    lease::{AcquireError, Heartbeat},
    quorum::{Quorum, QuorumConfig},
    shards::{Shard, Shards},
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Works until SIGTERM or SIGINT.
pub(crate) async fn run(args: &ShardsRunArgs, config: &Config, otlp: Option<Otlp>) -> Result<u8, Failure> {
    let signals = Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let ttl = args.ttl.unwrap_or(config.lease.ttl);
    let grace = args.ttl.map_or(config.lease.step_down_grace, QuorumConfig::default_grace);
    let _stop = StopDeadline::watch(grace).map_err(|error| Failure::new(FAILURE, error))?;
    let recorder = (config.http.is_some() || otlp.is_some()).then(Measurements::install).transpose()?;
    let listener = match (&config.http, &recorder) {
        (Some(http), Some(recorder)) => Some(Listener::bind(http, recorder.clone()).await?),
        _ => None,
    };
    let quorum = connect::quorum(config, config.settings.clone())?;
    let heartbeat = Heartbeat::new(quorum.env(), max_silence(ttl));
    let shards = Shards::new(&quorum, &args.set, args.count)
        .weight(args.weight)
        .ttl(ttl)
        .step_down_grace(grace)
        .renew_while_beating(&heartbeat);
    let command = ShardCommand::new(args, Guard::new(ttl, grace), quorum.env())
        .ok_or_else(|| Failure::new(FAILURE, "no command"))?;
    begin::announce(config, None, Some(&args.set));
    // The page and the health checks are those of a process that never leads.
    let election = Election::new(&quorum, config.group.as_deref().unwrap_or(&args.set)).ttl(ttl);
    let sending = match (otlp, recorder) {
        (Some(otlp), Some(recorder)) => Some(otlp.start(quorum.env(), recorder)?),
        _ => None,
    };
    let server = listener.map(|listener| listener.start(&quorum, &election, config, true)).transpose()?;
    begin::first_look(&quorum).await?;
    let ended = work((&quorum, server.as_ref()), &shards, &heartbeat, command, signals).await;
    begin::stop(server, sending).await;
    quorum.close().await;
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Ok(0)
        }
        Err(error) => Err(Failure::new(CONFIG, error)),
    }
}

/// Runs the commands until a signal. The leases are extended only while this loop runs.
async fn work(
    (quorum, server): (&Quorum, Option<&Server>),
    shards: &Shards,
    heartbeat: &Heartbeat,
    command: ShardCommand,
    signals: Signals,
) -> Result<(), AcquireError> {
    let (stop, command) = (CancellationToken::new(), Arc::new(command));
    let work = move |shard: Shard| {
        let command = Arc::clone(&command);
        async move { command.run(&shard).await }
    };
    let run = shards.run(work).until(stop.clone().cancelled_owned());
    let says = Sayings {
        status: || format!("owns {} shards", shards.owned().len()),
        stopping: "hands its shards over",
        reload: "there is no file of jobs to reload",
    };
    work_until_signal((quorum.env(), server), heartbeat, signals, &stop, run, says).await
}
