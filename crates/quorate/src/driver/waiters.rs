use crate::{driver::wake_queue::WakeQueue, node::ReleasedLease};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The queues of callers that wait for releases, shared by all drivers of one quorum.
#[derive(Debug)]
pub(crate) struct WaiterRegistry {
    wake_queue: Mutex<WakeQueue<Arc<Notify>>>,
}

impl WaiterRegistry {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { wake_queue: Mutex::new(WakeQueue::new(nodes)) }
    }

    /// Handles a node's report of a release. The node sent the report to `notified` sessions.
    pub(crate) fn on_release(&self, node: usize, freed: &ReleasedLease, notified: u32) {
        if let Some(notify) = self.wake_queue().on_release(node, freed, notified) {
            notify.notify_one();
        }
    }

    pub(crate) fn wake_queue(&self) -> MutexGuard<'_, WakeQueue<Arc<Notify>>> {
        self.wake_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
