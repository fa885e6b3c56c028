use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A gate. While it is shut, tasks wait at it. When it opens, the waiting tasks pass in the order in which
/// they arrived. (Tokio's `watch` would wake them in a random order, so two runs of a seed would differ.)
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
