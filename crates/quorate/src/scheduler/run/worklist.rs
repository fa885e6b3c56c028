//! The assignments of one worker, as its row and their records show them. Without I/O.

use crate::{
    env::{BootTime, WallTime},
    node::copy::AssignmentId,
    scheduler::{
        registry::JobMap,
        run::{
            Cancel,
            assignment::{ASK_AGAIN, Tried},
        },
        store::{OpenRun, WorkRow, job_and_tick},
    },
};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

/// The longest time for which a worker waits for a run to become due before it reads its wall clock again.
const WALL_CLOCK_CHECK: Duration = Duration::from_millis(500);
/// The reason of a run that the leader no longer wants from this worker.
const TAKEN_BACK: &str = "the leader has ended the run, or given it to another worker";

/// The assignments of one session, by the keys of their runs.
#[derive(Debug, Default)]
pub(super) struct Worklist {
    works: BTreeMap<Arc<str>, Work>,
}

#[derive(Debug)]
struct Work {
    id: AssignmentId,
    /// The run's record, once it has been read.
    open: Option<OpenRun>,
    cancel: Cancel,
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    /// The assignment may be started from this time on.
    Waiting(BootTime),
    /// A task starts or executes it.
    Active,
    /// The worker is done with it.
    Over,
}

/// An assignment to start.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) key: Arc<str>,
    pub(super) id: AssignmentId,
    pub(super) open: OpenRun,
    pub(super) cancel: Cancel,
}

impl Worklist {
    /// Notes the assignments that the row names. A run that the row no longer names is not started, and is cancelled if it
    /// is executed. Returns true if there are new assignments.
    pub(super) fn update(&mut self, row: &WorkRow, now: BootTime) -> bool {
        self.works.retain(|key, work| {
            let is_named = row.runs.get(key).is_some_and(|run| run.id() == work.id);
            if !is_named && work.state == State::Active {
                work.cancel.cancel(TAKEN_BACK);
            }
            is_named || work.state == State::Active
        });
        let mut is_new = false;
        for (key, run) in &row.runs {
            let new =
                || Work { id: run.id(), open: None, cancel: Cancel::default(), state: State::Waiting(now) };
            let work = self.works.entry(Arc::clone(key)).or_insert_with(|| {
                is_new = true;
                new()
            });
            // An earlier assignment of the run may still end here. The new one waits until it has.
            if let Some(why) = run.cancel.as_ref().filter(|_| work.id == run.id()) {
                work.cancel.cancel(why);
            }
        }
        is_new
    }

    /// Returns the keys of the runs whose records the worker needs.
    pub(super) fn unread(&self) -> Vec<Arc<str>> {
        self.works.iter().filter(|(_, work)| work.open.is_none()).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Notes the record of a run. A record of another assignment is ignored.
    pub(super) fn read(&mut self, key: &str, open: OpenRun) {
        if let Some(work) = self.works.get_mut(key)
            && open.to.as_ref().is_some_and(|to| to.id() == work.id)
        {
            work.open = Some(open);
        }
    }

    /// Returns the assignments to start now, of which there is room for `room`. Those of jobs with a higher priority come
    /// first. Notes that they are active.
    pub(super) fn due(&mut self, jobs: &JobMap, room: usize, (now, wall): (BootTime, WallTime)) -> Vec<Due> {
        let mut due: Vec<_> = self
            .works
            .iter()
            .filter_map(|(key, work)| {
                let open = work.open.as_ref()?;
                let is_due = matches!(work.state, State::Waiting(at) if at <= now) && open.not_before <= wall;
                let priority = job_of(key).and_then(|job| jobs.get(job)).map_or(0, |job| job.priority);
                is_due.then(|| (Reverse(priority), open.not_before, Arc::clone(key)))
            })
            .collect();
        due.sort();
        due.truncate(room);
        due.into_iter().filter_map(|(.., key)| self.activate(key)).collect()
    }

    /// Notes the end of an attempt.
    pub(super) fn tried(&mut self, key: &str, id: AssignmentId, tried: &Tried, now: BootTime) {
        let Some(work) = self.works.get_mut(key).filter(|work| work.id == id) else { return };
        work.state = match tried {
            Tried::Over => State::Over,
            Tried::Again => State::Waiting(now + ASK_AGAIN),
        };
    }

    /// Interrupts what is executed, because the worker shuts down.
    pub(super) fn interrupt(&self, why: &str) {
        let active = self.works.values().filter(|work| work.state == State::Active);
        active.for_each(|work| work.cancel.interrupt(why));
    }

    /// Forgets everything, because the session has ended.
    pub(super) fn clear(&mut self) {
        self.works.clear();
    }

    /// Returns the next time at which an assignment may be due.
    pub(super) fn wake(&self, (now, wall): (BootTime, WallTime)) -> Option<BootTime> {
        let waiting = self.works.values().filter_map(|work| match (&work.state, &work.open) {
            (State::Waiting(at), Some(open)) => {
                Some((*at).max(now + wall.until(open.not_before).min(WALL_CLOCK_CHECK)))
            }
            _ => None,
        });
        waiting.min()
    }

    fn activate(&mut self, key: Arc<str>) -> Option<Due> {
        let work = self.works.get_mut(&key)?;
        work.state = State::Active;
        Some(Due { id: work.id, open: work.open.clone()?, cancel: work.cancel.clone(), key })
    }
}

/// Returns the job from the key of a run.
pub(super) fn job_of(key: &str) -> Option<&str> {
    job_and_tick(key).map(|(job, _)| job)
}
