//! The times at which the leader does its recurring work on the ledger.

use crate::{env::BootTime, scheduler::store::record_life::PRUNE_EVERY};
use std::time::Duration;

/// The time between two writes of the mark. The mark is a row that stores the time up to which the leader has
/// made decisions on all ticks.
const MARK_EVERY: Duration = Duration::from_secs(10);

/// The times at which the leader next prunes the ledger, writes its mark, and checks which jobs have ended.
#[derive(Debug)]
pub(in crate::scheduler) struct Housekeeping {
    pub(in crate::scheduler) prune: Recurring,
    pub(in crate::scheduler) mark: Recurring,
    pub(in crate::scheduler) check: Recurring,
}

/// The time at which some work is due, and the time between two times.
#[derive(Debug)]
pub(in crate::scheduler) struct Recurring {
    at: BootTime,
    every: Duration,
}

impl Recurring {
    /// Returns whether the work is due at `now`. If it is, sets the time at which the work is due next.
    pub(in crate::scheduler) fn take(&mut self, now: BootTime) -> bool {
        let due = now >= self.at;
        if due {
            self.at = now + self.every;
        }
        due
    }
}

impl Housekeeping {
    /// Makes all work due at `now`. The leader does it once it has taken over all jobs. It has then decided on the
    /// ticks that were missed before its term, and its first mark prevents that the next leader enters them again.
    pub(in crate::scheduler) fn new(now: BootTime, check_every: Duration) -> Self {
        Self {
            prune: Recurring { at: now, every: PRUNE_EVERY },
            mark: Recurring { at: now, every: MARK_EVERY },
            check: Recurring { at: now, every: check_every },
        }
    }

    /// Returns the time at which some of the work is due next.
    pub(in crate::scheduler) fn next(&self) -> BootTime {
        self.prune.at.min(self.mark.at).min(self.check.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_kind_of_work_recurs_by_its_own_time() {
        let start = BootTime::from_nanos(7);
        let mut work = Housekeeping::new(start, 20 * SECOND);
        assert!(work.prune.take(start) && work.check.take(start) && work.mark.take(start));
        let later = start + 10 * SECOND;
        assert!(!work.prune.take(later) && !work.check.take(later) && work.mark.take(later));
        let late = start + 60 * SECOND;
        assert!(work.prune.take(late) && !work.prune.take(late), "once, however late");
        assert!(work.check.take(late) && !work.check.take(late + 19 * SECOND));
    }
}
