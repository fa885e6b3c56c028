use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The reason why a candidate cannot do the leader's work, although it is or was elected. For a scheduler: a majority
/// of the nodes refuses the writes of the ledger.
///
/// The reason stays after the candidate has given up the lead, until it can do the work in a later term, or another
/// leader has led for long enough that it can obviously do the work.
#[derive(Debug, Default)]
pub(super) struct Impediment(Mutex<Option<Arc<str>>>);

impl Impediment {
    pub(super) fn set(&self, why: Option<Arc<str>>) {
        *self.lock() = why;
    }

    /// Returns the reason. `followed` is the time for which another leader has been followed. A leader that cannot do
    /// the work gives up after one TTL.
    pub(super) fn get(&self, followed: Option<Duration>, ttl: Duration) -> Option<Arc<str>> {
        let mut why = self.lock();
        if followed.is_some_and(|time| time > ttl * 2) {
            *why = None;
        }
        why.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stays_until_another_leader_has_led_for_longer_than_one_that_gives_up() {
        let (impediment, ttl) = (Impediment::default(), Duration::from_secs(3));
        assert_eq!(impediment.get(None, ttl), None);
        impediment.set(Some("OOM".into()));
        for followed in [None, Some(Duration::ZERO), Some(ttl * 2)] {
            assert_eq!(impediment.get(followed, ttl).as_deref(), Some("OOM"), "{followed:?}");
        }
        assert_eq!(impediment.get(Some(ttl * 3), ttl), None);
        assert_eq!(impediment.get(None, ttl), None, "the reason is forgotten");
        impediment.set(Some("OOM".into()));
        impediment.set(None);
        assert_eq!(impediment.get(None, ttl), None);
    }
}
