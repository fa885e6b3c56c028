//! `quorate lead`: campaigns without jobs, and answers over HTTP whether this process leads.

use crate::{
    args::LeadArgs,
    config::Config,
    connect,
    exit::{CONFIG, FAILURE, Failure},
    failures,
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
    election::{Election, ElectionError, Term},
    lease::Heartbeat,
    quorum::Quorum,
};
use std::convert::Infallible;
use tokio_util::sync::CancellationToken;

/// Campaigns until SIGTERM or SIGINT.
pub(crate) async fn lead(args: &LeadArgs, config: &Config, otlp: Option<Otlp>) -> Result<u8, Failure> {
    let group = failures::group(args.group.as_deref(), config)?;
    refuse_jobs(group, config)?;
    if config.election.never_lead {
        let text =
            "`quorate lead` only leads, and the file has never_lead = true in `election`; remove the key";
        let file = config.file.as_deref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
        return Err(Failure::new(CONFIG, format!("{file}{text}")));
    }
    let Some(http) = &config.http else {
        let text = "no address to answer on; give --listen 127.0.0.1:9640, or http.listen in the file";
        return Err(Failure::new(CONFIG, text));
    };
    let signals = Signals::catch().map_err(|error| Failure::new(FAILURE, error))?;
    let _stop =
        StopDeadline::watch(config.lease.step_down_grace).map_err(|error| Failure::new(FAILURE, error))?;
    let recorder = Measurements::install()?;
    let listener = Listener::bind(http, recorder.clone()).await?;
    let quorum = connect::quorum(config, config.settings.clone())?;
    let heartbeat = Heartbeat::new(quorum.env(), max_silence(config.lease.ttl));
    let election = Election::new(&quorum, group)
        .ttl(config.lease.ttl)
        .step_down_grace(config.lease.step_down_grace)
        .renew_while_beating(&heartbeat);
    let election = config.election.apply(election);
    election.observe().map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))?;
    begin::announce(config, Some(group), None);
    if !config.notify.is_empty() {
        tracing::warn!("`quorate lead` sends no notifications, so [[notify]] of the file has no effect here");
    }
    let sending = otlp.map(|otlp| otlp.start(quorum.env(), recorder)).transpose()?;
    let server = listener.start(&quorum, &election, config, false)?;
    begin::first_look(&quorum).await?;
    let ended = campaign(&quorum, &election, &heartbeat, signals, &server).await;
    begin::stop(Some(server), sending).await;
    quorum.close().await;
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Ok(0)
        }
        Err(ElectionError::Acquire(error)) => Err(Failure::new(CONFIG, error)),
        Err(error) => Err(Failure::new(FAILURE, error)),
    }
}

/// Refuses to lead the group of the file's jobs. While this process led it, no job of the group would run.
fn refuse_jobs(group: &str, config: &Config) -> Result<(), Failure> {
    let is_of_file = config.group.as_deref() == Some(group);
    if !is_of_file || config.jobs.is_empty() {
        return Ok(());
    }
    let file = config.file.as_deref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
    let text = format!(
        "{file}the group {group:?} has {} [[job]], and `quorate lead` runs none: while it leads, no job of the group \
         runs; start `quorate run`, or name another group with --group",
        config.jobs.len()
    );
    Err(Failure::new(CONFIG, text))
}

/// Campaigns, and waits for the end of each term, until a signal. The lease is extended only while this loop runs.
async fn campaign(
    quorum: &Quorum,
    election: &Election,
    heartbeat: &Heartbeat,
    signals: Signals,
    server: &Server,
) -> Result<(), ElectionError<Infallible>> {
    let stop = CancellationToken::new();
    let work = |term: Term| async move {
        term.step_down_token().cancelled().await;
        Ok(())
    };
    let campaign = election.run(work).until(stop.clone().cancelled_owned());
    let says = Sayings {
        status: || connect::leadership(quorum, election),
        stopping: "resigning",
        reload: "there is nothing to reload without jobs",
    };
    work_until_signal((quorum.env(), Some(server)), heartbeat, signals, &stop, campaign, says).await
}
