use super::{
    Fleet,
    bench::{Bench, Left, Wake},
};
use crate::node::{Freed, Listen, Resource};
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
pub(super) struct Waits {
    bench: Mutex<Bench<Arc<Notify>>>,
    /// Whether a release has ever been told by a majority: then the nodes push, and workers publish.
    told: AtomicBool,
}

impl Waits {
    pub(super) fn new(majority: usize) -> Self {
        Self { bench: Mutex::new(Bench::new(majority)), told: AtomicBool::new(false) }
    }

    /// A node has told of a release.
    pub(super) fn heard(&self, node: usize, freed: &Freed, told: u32) {
        if let Some(bell) = self.bench().heard(node, freed, told) {
            self.told.store(true, Ordering::Relaxed);
            bell.notify_one();
        }
    }

    fn bench(&self) -> MutexGuard<'_, Bench<Arc<Notify>>> {
        self.bench.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiter's place: while any is held for a resource, the nodes are listened to for its release. Dropping the last
/// ends that.
pub(crate) struct Waiting {
    fleet: Arc<Fleet>,
    resource: Resource,
    id: u64,
    bell: Arc<Notify>,
}

impl Waiting {
    pub(super) fn begin(fleet: &Arc<Fleet>, resource: &Resource) -> Self {
        let bell = Arc::new(Notify::new());
        let mut bench = fleet.waits().bench();
        let (id, first) = bench.join(resource, Arc::clone(&bell));
        if first {
            // Under the lock: or the end of the last waiter's listening might overtake this.
            fleet.listen(&Listen::Begin(resource.clone()));
        }
        drop(bench);
        Self { fleet: Arc::clone(fleet), resource: resource.clone(), id, bell }
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
            self.bell.notified().await;
        }
    }

    /// An attempt begins: it finds whatever this waiter may have been woken for.
    pub(crate) fn attempts(&self) {
        let _ = self.take();
    }

    fn take(&self) -> Option<Wake> {
        self.fleet.waits().bench().take_woken(&self.resource, self.id)
    }

    /// This waiter was let in beside others: so may be the next one here.
    pub(crate) fn hand_on(&self) {
        if let Some(bell) = self.fleet.waits().bench().hand_on(&self.resource, self.id) {
            bell.notify_one();
        }
    }

    /// Whether releases have been heard here before, of whatever resource.
    pub(crate) fn is_told(&self) -> bool {
        self.fleet.waits().told.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut bench = self.fleet.waits().bench();
        let Left { wake, last } = bench.leave(&self.resource, self.id);
        if last {
            self.fleet.listen(&Listen::End(self.resource.clone()));
        }
        drop(bench);
        if let Some(bell) = wake {
            bell.notify_one();
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("resource", &self.resource).finish_non_exhaustive()
    }
}
