/// Waits until this process is asked to end: by SIGTERM, as from systemd, Docker and Kubernetes, or by SIGINT, as from
/// Ctrl-C. Other systems than Unix have only Ctrl-C.
///
/// Give it to each `until` of this crate. The work then ends in order, and the lease is released, so that another copy takes
/// over at once. A process that SIGTERM kills leaves its leases to their TTLs.
///
/// ```no_run
/// use quorate::{Election, Quorum, Term, node::MemoryNode, shutdown_signal};
///
/// async fn lead(term: Term) -> Result<(), std::convert::Infallible> {
///     term.step_down_token().cancelled().await; // work until then
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let quorum = Quorum::builder().node(MemoryNode::new("memory")).trust_new_nodes(true).build()?;
/// Election::new(&quorum, "billing").run(lead).until(shutdown_signal()).await?;
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
///
/// From the first poll on, these signals no longer end the process by themselves, not even after this future has ended. If the
/// system does not let this process wait for them, that is logged, and the future does not complete.
///
/// # Panics
/// Outside of a Tokio runtime, or if that has no I/O driver (`enable_io`; `#[tokio::main]` has one).
///
/// # Cancel safety
/// Safe: a signal that arrives while no such future waits is lost, and nothing else.
pub async fn shutdown_signal() {
    if let Err(error) = arrived().await {
        tracing::error!(%error, "signals cannot be waited for: SIGTERM and Ctrl-C end this process at once");
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
async fn arrived() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn arrived() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
