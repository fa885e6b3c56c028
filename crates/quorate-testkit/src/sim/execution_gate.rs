use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Something that is open or shut, and at which one can wait. Whoever came first goes first: tokio's `watch`
/// wakes in an order drawn at random, and two runs of a seed would differ.
#[derive(Debug)]
pub(super) struct ExecutionGate {
    shut: AtomicBool,
    opened: Notify,
}

impl ExecutionGate {
    pub(super) fn open() -> Self {
        Self { shut: AtomicBool::new(false), opened: Notify::new() }
    }

    pub(super) fn set_open(&self, open: bool) {
        self.shut.store(!open, Ordering::Relaxed);
        if open {
            self.opened.notify_waiters();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.shut.load(Ordering::Relaxed)
    }

    pub(super) async fn pass(&self) {
        while !self.is_open() {
            self.opened.notified().await;
        }
    }
}
