use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// A value for which tasks wait. A change wakes them in the order in which they began to wait, so that one seed of a simulation
/// has one history. A `tokio::sync::watch` wakes them in a random order.
#[derive(Default)]
pub(crate) struct Shown<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Shown<T> {
    /// Returns the value.
    pub(crate) fn get(&self) -> T {
        self.value().clone()
    }

    /// Changes the value, and wakes all that wait.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut *self.value());
        self.changed.notify_waiters();
    }

    /// Waits until the value fulfils a condition, and returns it.
    pub(crate) async fn until(&self, is_it: impl Fn(&T) -> bool) -> T {
        loop {
            // A `Notified` receives every change from its creation on.
            let changed = self.changed.notified();
            let value = self.get();
            if is_it(&value) {
                return value;
            }
            changed.await;
        }
    }

    fn value(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + fmt::Debug> fmt::Debug for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::pin;

    #[test]
    fn a_wait_ends_with_the_change_that_fulfils_it() {
        let shown = Shown::<u32>::default();
        let mut third = pin!(shown.until(|value| *value >= 3));
        assert_eq!(third.as_mut().now_or_never(), None);
        shown.change(|value| *value = 2);
        assert_eq!(third.as_mut().now_or_never(), None);
        shown.change(|value| *value = 3);
        assert_eq!((third.now_or_never(), shown.get()), (Some(3), 3));
    }
}
