use crate::env::{BootTime, WallTime};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The leader of the group, as far as a candidate knows it.
#[derive(Debug, Default)]
pub(super) struct KnownLeader(Mutex<Option<Entry>>);

#[derive(Debug)]
struct Entry {
    worker: Arc<str>,
    since: WallTime,
    /// The time at which the leader was first seen. `None` once [`KnownLeader::outlives`] has reported the leader.
    first: Option<BootTime>,
    /// The end of the leader's lease, as the nodes last reported it. `None` if they reported no end, or if this
    /// candidate itself leads.
    until: Option<BootTime>,
}

/// The leader, as [`KnownLeader::get`] returns it.
#[derive(Debug, PartialEq)]
pub(super) struct Known {
    pub(super) worker: Arc<str>,
    pub(super) since: WallTime,
    pub(super) remaining: Option<Duration>,
}

impl KnownLeader {
    /// Returns the leader, unless the leader's lease has expired since it was reported.
    pub(super) fn get(&self, now: BootTime) -> Option<Known> {
        let entry = self.entry();
        let entry = entry.as_ref().filter(|entry| entry.until.is_none_or(|until| now < until))?;
        let remaining = entry.until.map(|until| now.until(until));
        Some(Known { worker: Arc::clone(&entry.worker), since: entry.since, remaining })
    }

    /// Records that this candidate, on the worker called `worker`, leads.
    pub(super) fn leads(&self, worker: &Arc<str>, wall: WallTime) {
        *self.entry() = Some(Entry { worker: Arc::clone(worker), since: wall, first: None, until: None });
    }

    /// Records that `worker` leads, with a lease that ends after `remaining` unless it is extended. Returns
    /// whether this is another leader than before.
    pub(super) fn follows(
        &self,
        worker: &str,
        remaining: Option<Duration>,
        now: BootTime,
        wall: WallTime,
    ) -> bool {
        let until = remaining.map(|remaining| now + remaining);
        let mut entry = self.entry();
        match &mut *entry {
            Some(known) if *known.worker == *worker => {
                known.until = until;
                false
            }
            other => {
                *other = Some(Entry { worker: worker.into(), since: wall, first: Some(now), until });
                true
            }
        }
    }

    /// Returns true, once for each leader, if the leader was first seen longer ago than `ttl`. So it has extended its
    /// lease since: it is not the lease that an earlier process left behind.
    pub(super) fn outlives(&self, ttl: Duration, now: BootTime) -> bool {
        let mut entry = self.entry();
        let Some(known) = &mut *entry else { return false };
        known.first.take_if(|first| first.until(now) > ttl).is_some()
    }

    /// Records that the leader is not known.
    pub(super) fn clear(&self) {
        self.entry().take();
    }

    fn entry(&self) -> MutexGuard<'_, Option<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_leader_is_known_until_its_lease_runs_out_and_a_change_is_reported_once() {
        let (known, start) = (KnownLeader::default(), BootTime::from_nanos(5));
        let wall = |seconds: u64| WallTime::from_micros(seconds * 1_000_000);
        assert_eq!(known.get(start), None);
        assert!(known.follows("a", Some(10 * SECOND), start, wall(1)));
        assert!(!known.follows("a", Some(10 * SECOND), start + SECOND, wall(2)), "no change");
        let a = Known { worker: "a".into(), since: wall(1), remaining: Some(SECOND) };
        assert_eq!(known.get(start + 10 * SECOND), Some(a));
        assert_eq!(known.get(start + 11 * SECOND), None, "its lease has run out");
        assert!(known.follows("b", None, start + 11 * SECOND, wall(12)));
        assert_eq!(known.get(start + 100 * SECOND).map(|known| known.worker), Some("b".into()));
        assert!(!known.outlives(100 * SECOND, start + 111 * SECOND), "it may be the lease of a dead process");
        assert!(known.outlives(100 * SECOND, start + 112 * SECOND), "it was extended");
        assert!(!known.outlives(100 * SECOND, start + 113 * SECOND), "reported once");
        known.leads(&"c".into(), wall(13));
        assert!(!known.outlives(SECOND, start + 900 * SECOND), "this candidate leads itself");
        assert_eq!(known.get(start).map(|known| known.remaining), Some(None));
        known.clear();
        assert_eq!(known.get(start), None);
    }
}
