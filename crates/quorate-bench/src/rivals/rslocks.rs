use super::shared::TTL;
use rslock::{Lock, LockManager};

/// The crate `rslock` with its default settings.
pub(crate) struct Rslock(LockManager);

impl Rslock {
    pub(crate) fn start(urls: &[String]) -> Self {
        Self(LockManager::new(urls.iter().map(String::as_str).collect()))
    }

    pub(crate) async fn acquire(&self, resource: &str) -> Option<Lock> {
        self.0.lock(resource, TTL).await.ok()
    }

    pub(crate) async fn release(&self, lock: &Lock) {
        self.0.unlock(lock).await;
    }
}
