//! The times at which jobs have ticks to decide on.

use crate::{env::WallTime, scheduler::plan::job_id::JobId};
use std::{collections::BTreeSet, time::Duration};

/// The times at which jobs are due, in order. The cost of finding the due jobs depends on the number of due
/// jobs, and hardly on the number of all jobs.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct TimerQueue {
    timers: BTreeSet<(WallTime, JobId)>,
}

impl TimerQueue {
    /// Moves the timer of a job from the time `before` to the time `at`. A time of `None` means that the job
    /// has no timer.
    pub(in crate::scheduler) fn set(&mut self, job: JobId, before: Option<WallTime>, at: Option<WallTime>) {
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, job));
        }
        self.timers.extend(at.map(|at| (at, job)));
    }

    /// Returns the earliest time at which a job is due.
    pub(in crate::scheduler) fn next(&self) -> Option<WallTime> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns the time of the last timer that is at most `within` later than the earliest one. Jobs that are due
    /// within such a short time are handled together.
    pub(in crate::scheduler) fn next_group(&self, within: Duration) -> Option<WallTime> {
        let first = self.next()?;
        self.timers
            .range(..=(first + within, JobId { place: usize::MAX, seq: u64::MAX }))
            .next_back()
            .map(|(at, _)| *at)
    }

    /// Removes the earliest timer if its job is due at `now`, and returns the job.
    pub(in crate::scheduler) fn pop(&mut self, now: WallTime) -> Option<JobId> {
        self.next().filter(|at| *at <= now)?;
        self.timers.pop_first().map(|(_, job)| job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(place: usize) -> JobId {
        JobId { place, seq: 7 }
    }

    fn at(micros: u64) -> WallTime {
        WallTime::from_micros(micros)
    }

    #[test]
    fn due_jobs_come_in_the_order_of_their_times() {
        let mut timers = TimerQueue::default();
        timers.set(id(1), None, Some(at(7)));
        timers.set(id(2), None, Some(at(5)));
        timers.set(id(3), None, Some(at(9)));
        assert_eq!((timers.next(), timers.pop(at(4))), (Some(at(5)), None));
        assert_eq!(
            [timers.pop(at(7)), timers.pop(at(7)), timers.pop(at(7))],
            [Some(id(2)), Some(id(1)), None]
        );
    }

    #[test]
    fn jobs_that_are_due_shortly_after_the_first_one_are_in_its_group() {
        let mut timers = TimerQueue::default();
        let group = |timers: &TimerQueue| timers.next_group(Duration::from_micros(5));
        assert_eq!(group(&timers), None);
        timers.set(id(3), None, Some(at(13)));
        assert_eq!(group(&timers), Some(at(13)), "a job alone does not wait");
        timers.set(id(1), None, Some(at(8)));
        timers.set(id(2), None, Some(at(10)));
        assert_eq!(group(&timers), Some(at(13)));
        timers.set(id(4), None, Some(at(14)));
        assert_eq!(group(&timers), Some(at(13)), "later by more than that");
    }

    #[test]
    fn a_job_has_one_timer() {
        let mut timers = TimerQueue::default();
        timers.set(id(1), None, Some(at(7)));
        timers.set(id(1), Some(at(7)), Some(at(9)));
        timers.set(id(1), Some(at(9)), Some(at(9)));
        assert_eq!((timers.pop(at(8)), timers.next()), (None, Some(at(9))));
        timers.set(id(1), Some(at(9)), None);
        assert_eq!(timers.next(), None);
    }
}
