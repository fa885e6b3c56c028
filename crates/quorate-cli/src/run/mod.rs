//! The command `quorate run`, the daemon that runs the jobs of the configuration file while its worker leads.

mod check;
mod command;
mod daemon;
mod notify;
mod output;
mod reader;
mod sink;
mod stop;
mod watch;

use crate::{
    args::RunArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
};
use daemon::Daemon;
use notify::Notifier;
use quorate::election::ElectionError;
use std::time::Duration;
use stop::StopDeadline;

/// The longest wait for the first handshakes, before the daemon continues without them.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT.
pub(crate) async fn run(args: &RunArgs, config: &Config) -> Result<u8, Failure> {
    let (group, jobs) = config.group_with_jobs()?;
    if args.check {
        return check::check(config, group, jobs);
    }
    let signals = daemon::Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let _stop =
        StopDeadline::watch(config.lease.step_down_grace).map_err(|error| Failure::new(FAILURE, error))?;
    let quorum = connect::quorum(config, config.settings.clone())?;
    tracing::info!(
        worker = &*config.settings.worker,
        group = &**group,
        jobs = jobs.len(),
        "{} nodes from {}",
        config.nodes.len(),
        config.nodes_from
    );
    // If a majority is unreachable for now, the daemon waits for it. If the nodes refuse this worker for a
    // reason that only an operator can fix, the daemon ends with an error.
    if quorum.ready(FIRST_LOOK).await.is_err_and(|error| error.is_permanent()) {
        let nodes = quorum.nodes();
        quorum.close().await;
        return Err(Failure::new(CONFIG, connect::explain(&nodes)));
    }
    let flags = args.nodes.flags();
    let daemon = Daemon::new(&quorum, config, group, flags, Notifier::from_env());
    let ended = daemon.map_err(|error| Failure::new(FAILURE, error))?.run(jobs, signals).await;
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
