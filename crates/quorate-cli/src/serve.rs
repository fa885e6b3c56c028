//! `quorate serve`: holds leases for programs in any language, which speak HTTP on a socket of this machine.

use crate::{
    args::ServeArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
    http::{Listener, Server},
    leases::{Leases, Limits},
    otlp::Otlp,
    recorder::Measurements,
    run::{
        begin,
        daemon::{BEATS, Signals, max_silence},
        steady::serve_until_signal,
    },
};
use quorate::{election::Election, quorum::Quorum};
use std::time::Duration;

/// The number of locks and messages of all clients.
const LEASES_MAX: usize = 100_000;
/// The group that the operator's page shows, if the configuration names none.
const GROUP: &str = "default";
/// The longest time for which a daemon that stops waits for its clients. What they then still hold ends with its TTL.
const STOP: Duration = Duration::from_secs(25);

/// Serves until SIGTERM or SIGINT.
pub(crate) async fn serve(args: &ServeArgs, config: &Config, otlp: Option<Otlp>) -> Result<u8, Failure> {
    let group = args.group.as_deref().or(config.group.as_deref()).unwrap_or(GROUP);
    let Some(clients) = &config.serve else {
        let text = "no address for clients; give --listen unix:/run/quorate/quorate.sock, or serve.listen in the file";
        return Err(Failure::new(CONFIG, text));
    };
    let signals = Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let recorder = Measurements::install()?;
    let listener = Listener::bind_all(config.http.as_ref(), Some(clients), recorder.clone()).await?;
    let quorum = connect::quorum(config, config.settings.clone())?;
    let election = Election::new(&quorum, group).ttl(config.lease.ttl);
    begin::announce(config, None, None);
    let sending = otlp.map(|otlp| otlp.start(quorum.env(), recorder)).transpose()?;
    let limits = Limits { per_client: clients.leases_per_client, total: LEASES_MAX };
    let leases = Leases::new(quorum.env(), limits);
    let server = listener.start_with((&quorum, &election), config, false, Some(leases.clone()))?;
    begin::first_look(&quorum).await?;
    serve_clients(&quorum, config, signals, &server, &leases).await;
    begin::stop(Some(server), sending).await;
    // If clients still hold leases, their locks end with their TTL: a release could let another client in too early.
    if leases.all().is_empty() {
        quorum.close().await;
    }
    tracing::info!("ended");
    Ok(0)
}

async fn serve_clients(
    quorum: &Quorum,
    config: &Config,
    mut signals: Signals,
    server: &Server,
    leases: &Leases,
) {
    let (env, every) = (quorum.env(), max_silence(config.lease.ttl) / BEATS);
    let stopping = || format!("stopping, with {} leases of clients", leases.all().len());
    serve_until_signal(env, every, &mut signals, server, stopping).await;
    tokio::select! { biased;
        () = leases.stop() => {}
        _ = signals.next() => {}
        () = env.sleep(STOP) => {}
    }
}
