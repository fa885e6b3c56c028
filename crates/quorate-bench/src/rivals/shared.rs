//! The parts that all rivals use.

use std::time::Duration;

/// The TTL of every lock that is measured.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Starts a task of the benchmark itself.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "a program's edge: the measured side goes through Env")]
    tokio::spawn(work)
}
