use crate::harness::Truth;
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::time::Duration;

/// A check of the lease counts as just before a stop of the process if the stop came at most this much later.
/// If the lease was valid at such a check, the process still believed in its lease when it was stopped.
const FRESH: Duration = Duration::from_millis(150);

/// The belief of a process in its lease. It lasts from the grant to the last check that finds the lease valid.
///
/// If the director stops the process just after such a check, the belief lasts until the process continues or until
/// the validity ends, whichever is first. (If the process had run, it would have believed in its lease for that time.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    pub(super) who: Who,
    /// The last moment at which the process was known to believe in the lease.
    last: BootTime,
    /// The end of the lease's validity, as the process knew it then.
    until: BootTime,
}

impl Belief {
    /// Returns the belief in a lease that was requested at `requested`, and that was valid at `at`, or to `until` if
    /// that is earlier.
    pub(super) fn acquired(who: Who, requested: BootTime, at: BootTime, until: BootTime) -> Self {
        Self { who, last: at.min(until).max(requested), until }
    }

    /// Notes a check that found the lease valid.
    pub(super) fn is_valid(&mut self, at: BootTime, until: BootTime) {
        self.last = self.last.max(at);
        self.until = until;
    }

    /// Returns the moment until which the process believed in the lease, if no later check found it valid. It had
    /// ended by `now`.
    pub(super) fn lasted(&self, truth: &Truth, now: BootTime) -> BootTime {
        let resumed = truth.stop_after(self.who, self.last, FRESH, now);
        resumed.map_or(self.last, |resumed| self.last.max(resumed.min(self.until).min(now)))
    }
}
