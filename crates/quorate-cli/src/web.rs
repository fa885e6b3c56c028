//! `quorate web`: serves the operator's page and the API without jobs, and never leads.

use crate::{
    args::WebArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
    failures,
    http::Listener,
    otlp::Otlp,
    recorder::Measurements,
    run::{
        begin::{self, FIRST_LOOK},
        daemon::{BEATS, Signals, max_silence},
        steady::serve_until_signal,
    },
};
use quorate::election::Election;

/// Serves until SIGTERM or SIGINT.
pub(crate) async fn web(args: &WebArgs, config: &Config, otlp: Option<Otlp>) -> Result<u8, Failure> {
    let group = failures::group(args.group.as_deref(), config)?;
    let Some(http) = &config.http else {
        let text =
            "no address to serve the page on; give --listen 127.0.0.1:9640, or http.listen in the file";
        return Err(Failure::new(CONFIG, text));
    };
    let mut signals = Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let recorder = Measurements::install()?;
    let listener = Listener::bind(http, recorder.clone()).await?;
    // A viewer who may not operate changes nothing, so that even markers need not be written.
    let quorum = match http.operate_token_file {
        Some(_) => connect::quorum(config, config.settings.clone())?,
        None => connect::only_looking(config)?,
    };
    let election = Election::new(&quorum, group).ttl(config.lease.ttl);
    begin::announce(config, Some(group), None);
    let sending = otlp.map(|otlp| otlp.start(quorum.env(), recorder)).transpose()?;
    let server = listener.start(&quorum, &election, config, true)?;
    quorum.met(FIRST_LOOK).await;
    let every = max_silence(config.lease.ttl) / BEATS;
    serve_until_signal(quorum.env(), every, &mut signals, &server, || "stopping".to_owned()).await;
    begin::stop(Some(server), sending).await;
    quorum.close().await;
    tracing::info!("ended");
    Ok(0)
}
