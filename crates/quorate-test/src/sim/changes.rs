use super::Truth;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// The time of the last change on the servers or in the network, and the tasks that wait for the next one.
/// With it, a waiter that polls the servers in production sleeps here until a poll can have another result.
#[derive(Debug)]
pub struct Changes {
    truth: Truth,
    last: Mutex<Duration>,
    changed: Arc<Notify>,
}

impl Changes {
    /// Begins with a change now.
    pub fn begin(truth: Truth) -> Arc<Self> {
        Arc::new(Self { truth, last: Mutex::new(truth.now()), changed: Arc::default() })
    }

    /// Records a change, and wakes the tasks that wait for one.
    pub fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.truth.now();
        self.changed.notify_waiters();
    }

    /// Returns the time since the last change.
    pub fn age(&self) -> Duration {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.truth.now().saturating_sub(last)
    }

    /// Returns the signal that wakes its waiters at the next change.
    pub fn next(&self) -> &Arc<Notify> {
        &self.changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_wakes_those_who_wait_and_is_remembered() {
        let truth = Truth::begin();
        let changes = Changes::begin(truth);
        truth.pass(Duration::from_secs(3)).await;
        assert_eq!(changes.age(), Duration::from_secs(3));
        let mut waits = std::pin::pin!(changes.next().notified());
        assert!(futures_util::poll!(&mut waits).is_pending());
        changes.note();
        assert_eq!(changes.age(), Duration::ZERO);
        waits.await;
    }
}
