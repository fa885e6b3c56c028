use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The number of attempts to acquire that have not ended. An attempt that ends without a lease queues releases, and a
/// driver that is being closed waits for them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenAttempts(Arc<AtomicUsize>);

/// One open attempt. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct OpenAttempt(OpenAttempts);

impl OpenAttempts {
    pub(super) fn begin(&self) -> OpenAttempt {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenAttempt(self.clone())
    }

    /// Returns whether an attempt is open. If not, the requests of every ended attempt have been queued.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}
