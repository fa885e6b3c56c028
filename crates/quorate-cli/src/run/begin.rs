//! The begin and the end that all daemons have in common.

use crate::{
    config::Config,
    connect,
    exit::{CONFIG, Failure},
    http::Server,
    otlp::Sending,
};
use futures_util::future::OptionFuture;
use quorate::quorum::Quorum;
use std::time::Duration;

/// The longest wait for the first handshakes, before the daemon continues without them.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Logs the nodes that the daemon uses, for its group or set, and what an operator should know before it works.
pub(crate) fn announce(config: &Config, group: Option<&str>, set: Option<&str>) {
    tracing::info!(
        worker = &*config.settings.worker,
        group,
        set,
        "{} nodes from {}",
        config.nodes.len(),
        config.nodes_from
    );
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Waits for a majority of the nodes, but not for long: one that is unreachable for a while may come.
///
/// # Errors
/// A majority refuses for a reason that only an operator can remove. The quorum is closed then.
pub(crate) async fn first_look(quorum: &Quorum) -> Result<(), Failure> {
    if !quorum.ready(FIRST_LOOK).await.is_err_and(|error| error.is_permanent()) {
        return Ok(());
    }
    let nodes = quorum.nodes();
    quorum.close().await;
    Err(Failure::new(CONFIG, connect::explain(&nodes)))
}

/// Ends the server and the sender of traces and metrics, each within a second.
pub(crate) async fn stop(server: Option<Server>, sending: Option<Sending>) {
    let (server, sending) = (server.map(Server::stop), sending.map(Sending::finish));
    tokio::join!(OptionFuture::from(server), OptionFuture::from(sending));
}
