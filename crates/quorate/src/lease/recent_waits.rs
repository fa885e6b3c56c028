use crate::{env::BootTime, node::Resource};
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The time for which a wait counts as recent.
const RECENT: Duration = Duration::from_secs(1);
/// The number of waits that are kept.
const WAITS_MAX: usize = 16;

/// The locks for which this process has lately waited beside others. They are likely to wait for them now, so a new
/// attempt competes with theirs.
#[derive(Debug, Default)]
pub(super) struct RecentWaits(Mutex<VecDeque<(Resource, BootTime)>>);

impl RecentWaits {
    /// Records that a caller waited for `resource` at `now`.
    pub(super) fn add(&self, resource: &Resource, now: BootTime) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|(other, at)| other != resource && *at + RECENT > now);
        if waits.len() == WAITS_MAX {
            waits.pop_front();
        }
        waits.push_back((resource.clone(), now));
    }

    /// Returns whether a caller waited for `resource` lately.
    pub(super) fn contains(&self, resource: &Resource, now: BootTime) -> bool {
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.iter().any(|(other, at)| *at + RECENT > now && other == resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_recent_for_a_second_and_few_are_kept() {
        let at = |ms: u64| BootTime::from_nanos(ms * 1_000_000);
        let lock = |number: usize| Resource::lock(&format!("r{number}")).unwrap();
        let waits = RecentWaits::default();
        waits.add(&lock(0), at(0));
        assert!(waits.contains(&lock(0), at(999)) && !waits.contains(&lock(1), at(0)));
        assert!(!waits.contains(&lock(0), at(1_000)));
        (0..=WAITS_MAX).for_each(|number| waits.add(&lock(number), at(1_000)));
        assert!(!waits.contains(&lock(0), at(1_000)) && waits.contains(&lock(1), at(1_000)));
    }
}
