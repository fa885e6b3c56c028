//! `quorate shards run`: a worker of a set, which runs a command for each of its shards.

use super::command::ShardCommand;
use crate::{
    args::ShardsRunArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
    guard::Guard,
    http::{Listener, Server},
    recorder::Measurements,
    run::{
        FIRST_LOOK,
        daemon::{Signals, max_silence},
        steady::{Sayings, work_until_signal},
        stop::StopDeadline,
    },
};
use futures_util::future::OptionFuture;
use quorate::{
    election::Election,
    lease::Heartbeat,
    quorum::{Quorum, QuorumConfig},
    shards::{Shard, Shards, ShardsError},
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Works until SIGTERM or SIGINT.
pub(crate) async fn run(args: &ShardsRunArgs, config: &Config) -> Result<u8, Failure> {
    let signals = Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let ttl = args.ttl.unwrap_or(config.lease.ttl);
    let grace = args.ttl.map_or(config.lease.step_down_grace, QuorumConfig::default_grace);
    let _stop = StopDeadline::watch(grace).map_err(|error| Failure::new(FAILURE, error))?;
    let listener = match &config.http {
        Some(http) => Some(Listener::bind(http, Measurements::install()?).await?),
        None => None,
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
    tracing::info!(
        worker = &*config.settings.worker,
        set = &*args.set,
        "{} nodes from {}",
        config.nodes.len(),
        config.nodes_from
    );
    // The page and the health checks are those of a process that never leads.
    let election = Election::new(&quorum, config.group.as_deref().unwrap_or(&args.set)).ttl(ttl);
    let server = listener.map(|listener| listener.start(&quorum, &election, config, true)).transpose()?;
    if quorum.ready(FIRST_LOOK).await.is_err_and(|error| error.is_permanent()) {
        let nodes = quorum.nodes();
        quorum.close().await;
        return Err(Failure::new(CONFIG, connect::explain(&nodes)));
    }
    let ended = work((&quorum, server.as_ref()), &shards, &heartbeat, command, signals).await;
    OptionFuture::from(server.map(Server::stop)).await;
    quorum.close().await;
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Ok(0)
        }
        Err(ShardsError::Acquire(error)) => Err(Failure::new(CONFIG, error)),
        Err(error) => Err(Failure::new(FAILURE, error)),
    }
}

/// Runs the commands until a signal. The leases are extended only while this loop runs.
async fn work(
    (quorum, server): (&Quorum, Option<&Server>),
    shards: &Shards,
    heartbeat: &Heartbeat,
    command: ShardCommand,
    signals: Signals,
) -> Result<(), ShardsError> {
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
