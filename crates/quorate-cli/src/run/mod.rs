//! The command `quorate run`, the daemon that runs the jobs of the configuration file while its worker leads.

pub(crate) mod begin;
mod check;
mod command;
pub(crate) mod daemon;
mod lines;
pub(crate) mod notify;
mod output;
mod reader;
mod request;
pub(crate) mod steady;
pub(crate) mod stop;
mod watch;

use crate::{
    args::RunArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
    http::Listener,
    otlp::Otlp,
    recorder::Measurements,
};
use daemon::Daemon;
use notify::Notifier;
use quorate::election::ElectionError;
use stop::StopDeadline;

/// Runs until SIGTERM or SIGINT.
pub(crate) async fn run(args: &RunArgs, config: &Config, otlp: Option<Otlp>) -> Result<u8, Failure> {
    let (group, jobs) = config.group_with_jobs()?;
    if args.check {
        return check::check(config, group, jobs);
    }
    let signals = daemon::Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let _stop =
        StopDeadline::watch(config.lease.step_down_grace).map_err(|error| Failure::new(FAILURE, error))?;
    // The recorder is installed before the quorum is built: measurements that were made before would be lost.
    let recorder = (config.http.is_some() || otlp.is_some()).then(Measurements::install).transpose()?;
    let listener = match (&config.http, &recorder) {
        (Some(http), Some(recorder)) => Some(Listener::bind(http, recorder.clone()).await?),
        _ => None,
    };
    let quorum = connect::quorum(config, config.settings.clone())?;
    tracing::info!(
        worker = &*config.settings.worker,
        group = &**group,
        jobs = jobs.len(),
        "{} nodes from {}",
        config.nodes.len(),
        config.nodes_from
    );
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let daemon = Daemon::new(&quorum, config, (group, jobs), args.flags(), Notifier::from_env());
    let daemon = daemon.map_err(|error| Failure::new(FAILURE, error))?;
    let sending = match (otlp, recorder) {
        (Some(otlp), Some(recorder)) => Some(otlp.start(quorum.env(), recorder)?),
        _ => None,
    };
    let server =
        listener.map(|listener| listener.start(&quorum, daemon.election(), config, true)).transpose()?;
    begin::first_look(&quorum).await?;
    let ended = daemon.run(signals, server.as_ref()).await;
    begin::stop(server, sending).await;
    quorum.close().await;
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Ok(0)
        }
        Err(ElectionError::Acquire(error)) => Err(Failure::new(CONFIG, error)),
        Err(ElectionError::Work(error)) => Err(Failure::new(CONFIG, error)),
        Err(error) => Err(Failure::new(FAILURE, error)),
    }
}
