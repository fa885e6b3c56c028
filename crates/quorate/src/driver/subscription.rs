use crate::{
    driver::{
        NodePool,
        wake_queue::{LeaveResult, Wake, WakeQueue},
    },
    node::{Freed, Listen, Resource},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;

/// The waiters of a fleet, as its drivers ring them.
#[derive(Debug)]
pub(crate) struct WaiterRegistry {
    wake_queue: Mutex<WakeQueue<Arc<Notify>>>,
    /// Whether a release has ever been told by a majority: then the nodes push, and workers publish.
    told: AtomicBool,
}

impl WaiterRegistry {
    pub(crate) fn new(majority: usize) -> Self {
        Self { wake_queue: Mutex::new(WakeQueue::new(majority)), told: AtomicBool::new(false) }
    }

    /// A node has told of a release.
    pub(crate) fn heard(&self, node: usize, freed: &Freed, told: u32) {
        if let Some(notify) = self.wake_queue().heard(node, freed, told) {
            self.told.store(true, Ordering::Relaxed);
            notify.notify_one();
        }
    }

    fn wake_queue(&self) -> MutexGuard<'_, WakeQueue<Arc<Notify>>> {
        self.wake_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiter's place: while any is held for a resource, the nodes are listened to for its release. Dropping the last
/// ends that.
pub(crate) struct Subscription {
    pool: Arc<NodePool>,
    resource: Resource,
    id: u64,
    notify: Arc<Notify>,
}

impl Subscription {
    pub(crate) fn begin(pool: &Arc<NodePool>, resource: &Resource) -> Self {
        let notify = Arc::new(Notify::new());
        let mut wake_queue = pool.waits().wake_queue();
        let (id, first) = wake_queue.join(resource, Arc::clone(&notify));
        if first {
            // Under the lock: or the end of the last waiter's listening might overtake this.
            pool.listen(&Listen::Begin(resource.clone()));
        }
        drop(wake_queue);
        Self { pool: Arc::clone(pool), resource: resource.clone(), id, notify }
    }

    /// Comes back when a majority of nodes have told of a release and this waiter's turn has come.
    ///
    /// # Cancel safety
    /// Safe: who was rung meanwhile still is.
    pub(crate) async fn woken(&self) -> Wake {
        loop {
            if let Some(wake) = self.take() {
                return wake;
            }
            self.notify.notified().await;
        }
    }

    /// An attempt begins: it finds whatever this waiter may have been woken for.
    pub(crate) fn attempts(&self) {
        let _ = self.take();
    }

    fn take(&self) -> Option<Wake> {
        self.pool.waits().wake_queue().take_woken(&self.resource, self.id)
    }

    /// This waiter was let in beside others: so may be the next one here.
    pub(crate) fn hand_on(&self) {
        if let Some(notify) = self.pool.waits().wake_queue().hand_on(&self.resource, self.id) {
            notify.notify_one();
        }
    }

    /// Whether releases have been heard here before, of whatever resource.
    pub(crate) fn is_told(&self) -> bool {
        self.pool.waits().told.load(Ordering::Relaxed)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut wake_queue = self.pool.waits().wake_queue();
        let LeaveResult { wake, last } = wake_queue.leave(&self.resource, self.id);
        if last {
            self.pool.listen(&Listen::End(self.resource.clone()));
        }
        drop(wake_queue);
        if let Some(notify) = wake {
            notify.notify_one();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("resource", &self.resource).finish_non_exhaustive()
    }
}
