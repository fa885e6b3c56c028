use crate::{
    driver::{
        pool::NodePool,
        wake_queue::{LeaveResult, Wake, WakeOrder},
    },
    node::{Listen, Owner, Resource},
};
use std::{fmt, sync::Arc};
use tokio::sync::Notify;

/// A waiter for the releases of a resource. While at least one waiter exists, the nodes report the resource's
/// releases to this process. When the last waiter is dropped, the reports end.
pub(crate) struct Subscription {
    pool: Arc<NodePool>,
    resource: Resource,
    id: u64,
    notify: Arc<Notify>,
}

impl Subscription {
    /// Begins to wait for a release of `resource`, in this order among the waiters of this process. The subscription reaches
    /// each node before any request that is sent later.
    pub(crate) fn begin(pool: &Arc<NodePool>, resource: &Resource, order: WakeOrder) -> Self {
        let notify = Arc::new(Notify::new());
        let mut wake_queue = pool.waiters().wake_queue();
        let (id, first) = wake_queue.join(resource, order, Arc::clone(&notify));
        if first {
            // The message is sent while the queue of waiters is locked. So the message that ends the
            // subscription cannot be sent before this one.
            pool.listen(&Listen::Begin(resource.clone()));
        }
        drop(wake_queue);
        Self { pool: Arc::clone(pool), resource: resource.clone(), id, notify }
    }

    /// Waits until this waiter is woken by a release that enough nodes have reported: a majority, or one node fewer
    /// if the lease may have been on a bare majority. Each release wakes only one waiter.
    ///
    /// # Cancel safety
    /// Safe: if the waiter was woken before the drop, the next call returns at once.
    pub(crate) async fn woken(&self) -> Wake {
        loop {
            if let Some(wake) = self.take() {
                return wake;
            }
            self.notify.notified().await;
        }
    }

    /// Notes that this waiter begins an attempt. If the waiter was woken and has not used its wake, drops the
    /// wake: the attempt itself finds out whether the resource is free.
    pub(crate) fn attempts(&self) {
        let _ = self.take();
    }

    /// Notes that this waiter has acquired the lease.
    pub(crate) fn won(&self) {
        self.pool.waiters().wake_queue().won(&self.resource, self.id);
    }

    /// Notes the owner that refused this waiter's last attempt, and the number of nodes that named this owner.
    pub(crate) fn refused_by(&self, holder: Option<(&Owner, usize)>) {
        let woken = self.pool.waiters().wake_queue().refused_by(&self.resource, self.id, holder);
        if let Some(notify) = woken {
            notify.notify_one();
        }
    }

    fn take(&self) -> Option<Wake> {
        self.pool.waiters().wake_queue().take_wake(&self.resource, self.id)
    }

    /// Wakes the next waiter of this process, because this waiter acquired a lease that other readers may share.
    pub(crate) fn hand_on(&self) {
        if let Some(notify) = self.pool.waiters().wake_queue().wake_next(&self.resource, self.id) {
            notify.notify_one();
        }
    }

    /// Returns whether a majority of the nodes has ever reported a release to this process, of any resource.
    pub(crate) fn releases_are_reported(&self) -> bool {
        self.pool.waiters().wake_queue().releases_are_reported()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut wake_queue = self.pool.waiters().wake_queue();
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
        f.debug_struct("Subscription").field("resource", &self.resource).finish_non_exhaustive()
    }
}
