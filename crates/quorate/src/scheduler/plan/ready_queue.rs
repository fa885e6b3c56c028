//! The queue of the jobs that have a run to start. It applies the leader's limit of concurrent runs.

use crate::{env::WallTime, scheduler::plan::job_id::JobId};
use std::{cmp::Reverse, collections::BTreeSet};

/// The position of a job in the ready queue. A job whose next run is open comes first: a worker may execute the run
/// already, so it counts before any other run starts. A job whose next run is for workers comes next, because the
/// leader's limit does not apply to that run. The other jobs are ordered by priority, then by the time from which their
/// next run may start, then by their ids. The runs of a back-fill may start when the run before has
/// ended. Ordered by their ticks, which are old, they would keep all other jobs waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::scheduler) struct ReadyOrder {
    turn: Turn,
    priority: Reverse<i32>,
    not_before: WallTime,
    job: JobId,
}

/// The kinds of runs, in the order in which they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::scheduler) enum Turn {
    /// The run is open to workers already.
    Open,
    /// Workers will execute the run.
    OnWorkers,
    /// The leader will execute the run.
    OnLeader,
}

/// The positions of the jobs with a run that may start, in order, and the number of runs that the leader
/// executes.
#[derive(Debug)]
pub(in crate::scheduler) struct ReadyQueue {
    runs: BTreeSet<ReadyOrder>,
    executing: usize,
    max_executing: usize,
}

impl ReadyOrder {
    /// Returns the position of the job, whose next run may start at `not_before`.
    pub(in crate::scheduler) fn new(turn: Turn, priority: i32, not_before: WallTime, job: JobId) -> Self {
        Self { turn, priority: Reverse(priority), not_before, job }
    }
}

impl ReadyQueue {
    pub(in crate::scheduler) fn new(max_executing: usize) -> Self {
        Self { runs: BTreeSet::new(), executing: 0, max_executing }
    }

    /// Moves a job from the position `before` to the position `place`. A position of `None` means that the job
    /// is not in the queue.
    pub(in crate::scheduler) fn set(&mut self, before: Option<ReadyOrder>, place: Option<ReadyOrder>) {
        if before == place {
            return;
        }
        if let Some(before) = before {
            self.runs.remove(&before);
        }
        self.runs.extend(place);
    }

    /// Removes and returns the first job of the queue. Returns `None` if the queue is empty, or if
    /// the leader would execute the job's run and has reached its limit.
    pub(in crate::scheduler) fn pop(&mut self) -> Option<JobId> {
        let first = self.runs.first()?;
        if first.turn == Turn::OnLeader && self.is_full() {
            return None;
        }
        self.runs.pop_first().map(|run| run.job)
    }

    /// Returns the number of runs that the leader executes.
    pub(in crate::scheduler) fn executing(&self) -> usize {
        self.executing
    }

    /// Returns whether the leader executes as many runs as it may.
    pub(in crate::scheduler) fn is_full(&self) -> bool {
        self.executing >= self.max_executing
    }

    /// Counts the start of a run that the leader executes.
    pub(in crate::scheduler) fn on_start(&mut self) {
        self.executing += 1;
    }

    /// Counts the end of a run that the leader executed.
    pub(in crate::scheduler) fn on_end(&mut self) {
        self.executing -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(place: usize) -> JobId {
        JobId { place, seq: 7 }
    }

    fn place(here: bool, priority: i32, tick: u64, job: usize) -> Option<ReadyOrder> {
        turn(if here { Turn::OnLeader } else { Turn::OnWorkers }, priority, tick, job)
    }

    fn turn(turn: Turn, priority: i32, tick: u64, job: usize) -> Option<ReadyOrder> {
        Some(ReadyOrder::new(turn, priority, WallTime::from_micros(tick), id(job)))
    }

    #[test]
    fn open_runs_come_first_then_runs_for_workers_then_priority_time_and_order() {
        let mut ready = ReadyQueue::new(usize::MAX);
        let places = [
            place(true, 0, 5, 1),
            place(true, 0, 5, 2),
            place(true, 3, 9, 3),
            place(true, 0, 4, 4),
            place(false, -1, 9, 5),
            turn(Turn::Open, -2, 9, 6),
        ];
        places.into_iter().for_each(|place| ready.set(None, place));
        let order: Vec<usize> = std::iter::from_fn(|| ready.pop()).map(|job| job.place).collect();
        assert_eq!(order, [6, 5, 3, 4, 1, 2]);
    }

    #[test]
    fn without_room_only_runs_for_workers_start() {
        let mut ready = ReadyQueue::new(1);
        ready.on_start();
        ready.set(None, place(true, 0, 1, 1));
        assert_eq!(ready.pop(), None);
        ready.set(None, place(false, 0, 2, 2));
        assert_eq!((ready.pop(), ready.pop()), (Some(id(2)), None));
        ready.on_end();
        assert_eq!((ready.pop(), ready.executing()), (Some(id(1)), 0));
    }

    #[test]
    fn a_run_has_one_place() {
        let mut ready = ReadyQueue::new(1);
        ready.set(None, place(true, 0, 1, 1));
        ready.set(place(true, 0, 1, 1), place(true, 0, 2, 1));
        ready.set(place(true, 0, 2, 1), None);
        assert_eq!(ready.pop(), None);
    }
}
