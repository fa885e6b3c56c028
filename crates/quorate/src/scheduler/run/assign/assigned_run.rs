//! The state of one run that workers execute, from its opening to its end, without I/O.

use crate::{
    env::{BootTime, WallTime},
    ledger::Registered,
    node::copy::AssignmentId,
    scheduler::{
        job::{Job, RunOutcome},
        policy::Delivery,
        run::pace,
        store::{OpenRun, WorkEnd, WorkResult, verdict::voided},
    },
};
use std::{sync::Arc, time::Duration};

/// A worker that has not started its run for this long after it was due loses it.
const START_WITHIN: Duration = Duration::from_secs(1);
/// The pause between two requests to the nodes to void one assignment.
const VOID_AGAIN: Duration = Duration::from_millis(200);

/// One run.
#[derive(Debug)]
pub(super) struct AssignedRun {
    job: Arc<Job>,
    open: OpenRun,
    /// True if this leader has the job, so that it may open another generation.
    reopens: bool,
    stage: Stage,
    /// The number of records of the run that are being stored.
    storing: usize,
    cancel: Option<Arc<str>>,
    withdraw: Option<(RunOutcome, Arc<str>)>,
    /// The session that lost the run last.
    lost_by: Option<Arc<str>>,
}

#[derive(Debug)]
enum Stage {
    /// No worker has the run. `stored` is true if the ledger says so.
    Waiting { stored: bool },
    /// The assignment is being stored.
    Storing,
    /// The worker has the run.
    Given(Given),
    /// The last generation may have run, and only a leader with the job may open another one.
    Lost(WorkResult),
}

#[derive(Debug)]
struct Given {
    since: BootTime,
    look_at: BootTime,
    void_at: BootTime,
    is_looking: bool,
    is_voiding: bool,
    /// A node has registered the start.
    started: bool,
    /// The session has ended, and what has been asked since then.
    over: Option<Over>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Over {
    voided: bool,
    looked: bool,
    /// The look that is under way was asked before the session ended. It may have missed the end of the run.
    is_old_look: bool,
    /// The same for the request to void the assignment.
    is_old_void: bool,
}

/// The next step of a run.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing is due.
    Wait,
    /// The run needs a worker.
    Assign,
    /// The record must say that the run is cancelled.
    StoreCancel,
    /// The nodes must register that the assignment does not start.
    Void(AssignmentId),
    /// The run ends with this outcome.
    End(RunOutcome, WorkResult),
}

impl AssignedRun {
    /// Returns a run that was opened as `open`, which an earlier leader may have stored.
    pub(super) fn new(job: Arc<Job>, open: OpenRun, reopens: bool, stored: bool, now: BootTime) -> Self {
        let cancel = open.cancel.clone();
        let stage = match open.to {
            Some(_) => Stage::Given(Given::new(now)),
            None => Stage::Waiting { stored },
        };
        Self { job, open, reopens, stage, storing: 0, cancel, withdraw: None, lost_by: None }
    }

    pub(super) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Returns the name of the handler that the worker must have, if the job is stored on the nodes.
    pub(super) fn handler(&self) -> Option<&str> {
        self.open.job.as_ref().map(|job| &*job.handler)
    }

    pub(super) fn open(&self) -> &OpenRun {
        &self.open
    }

    pub(super) fn session(&self) -> Option<&Arc<str>> {
        match self.stage {
            Stage::Storing | Stage::Given(_) => self.open.to.as_ref().map(|to| &to.session),
            Stage::Waiting { .. } | Stage::Lost(_) => None,
        }
    }

    /// Returns the session that lost the run last.
    pub(super) fn lost_by(&self) -> Option<&str> {
        self.lost_by.as_deref()
    }

    pub(super) fn cancel(&mut self, why: &Arc<str>) {
        self.cancel.get_or_insert_with(|| Arc::clone(why));
    }

    pub(super) fn withdraw(&mut self, end: RunOutcome, why: &Arc<str>) {
        self.withdraw.get_or_insert_with(|| (end, Arc::clone(why)));
    }

    /// Returns whether the ledger does not say yet that the run waits for a worker, although it is due.
    pub(super) fn must_store_waiting(&self, wall: WallTime) -> bool {
        matches!(self.stage, Stage::Waiting { stored: false }) && self.open.not_before <= wall
    }

    /// Returns the record that says that the run waits, which is being stored from now on.
    pub(super) fn store_waiting(&mut self) -> OpenRun {
        if let Stage::Waiting { stored } = &mut self.stage {
            *stored = true;
        }
        self.storing += 1;
        OpenRun { to: None, ..self.open.clone() }
    }

    /// Notes that `open` is being stored, which names the worker.
    pub(super) fn assign(&mut self, open: OpenRun) {
        (self.open, self.stage) = (open, Stage::Storing);
        self.storing += 1;
    }

    /// Notes that a record is stored. The last one counts once all are.
    pub(super) fn stored(&mut self, now: BootTime) {
        self.storing = self.storing.saturating_sub(1);
        if self.storing == 0 && matches!(self.stage, Stage::Storing) {
            self.stage = Stage::Given(Given::new(now));
        }
    }

    /// Returns the record that says that the run is cancelled, which is being stored from now on.
    pub(super) fn store_cancel(&mut self) -> OpenRun {
        self.open.cancel = self.cancel.clone();
        self.storing += 1;
        self.open.clone()
    }

    /// Returns whether the leader wants the run back for another reason than that its worker is late.
    pub(super) fn is_ordered(&self) -> bool {
        self.cancel.is_some() || self.withdraw.is_some()
    }

    /// Notes that the session of the worker has ended.
    pub(super) fn session_ended(&mut self) {
        if let Stage::Given(given) = &mut self.stage {
            let (is_old_look, is_old_void) = (given.is_looking, given.is_voiding);
            given.over.get_or_insert(Over { is_old_look, is_old_void, ..Over::default() });
        }
    }

    /// Returns whether the leader must look for the end now. If so, notes that it looks.
    pub(super) fn looks(&mut self, now: BootTime, wall: WallTime) -> Option<AssignmentId> {
        let (id, not_before) = (self.open.to.as_ref()?.id(), self.open.not_before);
        let Stage::Given(given) = &mut self.stage else { return None };
        let is_due = given.look_at <= now && (not_before <= wall || given.over.is_some());
        if given.is_looking || !is_due {
            return None;
        }
        given.is_looking = true;
        Some(id)
    }

    /// Notes what a look has found. `end` is `None` if too few nodes answered, and `Some(None)` if no node has an end. Returns
    /// the end if the worker has executed the run, or true if the worker does not have the job.
    pub(super) fn looked(
        &mut self,
        id: AssignmentId,
        end: Option<Option<WorkEnd>>,
        (now, wall): (BootTime, WallTime),
    ) -> Found {
        let due = self.open.not_before;
        let is_current = self.open.to.as_ref().is_some_and(|to| to.id() == id);
        let Stage::Given(given) = &mut self.stage else { return Found::Nothing };
        if !is_current || !given.is_looking {
            return Found::Nothing;
        }
        given.is_looking = false;
        let is_old = given.over.as_mut().is_some_and(|over| std::mem::take(&mut over.is_old_look));
        // A run that is given to a worker late has just begun too.
        let begun = due.until(wall).min(given.since.until(now));
        given.look_at = if is_old { now } else { now + pace::pause(begun) };
        match end {
            None => Found::Nothing,
            Some(None) => {
                if let Some(over) = &mut given.over {
                    over.looked |= !is_old;
                }
                Found::Nothing
            }
            Some(Some(WorkEnd::Done(result))) => Found::Done(result),
            Some(Some(WorkEnd::NotStarted { lacks_job, .. })) => {
                self.wait_again();
                Found::NotStarted { lacks_job }
            }
        }
    }

    /// Notes the answers to a request to void the assignment. Returns true if the worker never starts it.
    pub(super) fn voided(&mut self, id: AssignmentId, answers: Registered, now: BootTime) -> bool {
        let is_current = self.open.to.as_ref().is_some_and(|to| to.id() == id);
        let Stage::Given(given) = &mut self.stage else { return false };
        if !is_current || !given.is_voiding {
            return false;
        }
        given.is_voiding = false;
        given.void_at = now + VOID_AGAIN;
        given.started |= answers.too_late > 0;
        if let Some(over) = &mut given.over {
            over.voided |= !std::mem::take(&mut over.is_old_void);
        }
        if answers.by_majority() {
            self.wait_again();
            return true;
        }
        false
    }

    /// Returns the next step. If it is to void the assignment, notes that this is under way.
    pub(super) fn step(&mut self, me: &Arc<str>, (now, wall): (BootTime, WallTime)) -> Step {
        let ordered = self.order(wall);
        let late = self.open.not_before + START_WITHIN < wall;
        let ordered_back = self.is_ordered();
        match &mut self.stage {
            Stage::Storing => Step::Wait,
            Stage::Waiting { .. } => match ordered {
                Some((end, why)) => Step::End(voided(self.open.generation, end), WorkResult::none(me, why)),
                None => Step::Assign,
            },
            Stage::Lost(result) => match self.withdraw.is_some() {
                true => Step::End(RunOutcome::Lost, result.clone()),
                false => Step::Wait,
            },
            Stage::Given(given) => {
                if self.cancel.is_some() && self.open.cancel.is_none() {
                    return Step::StoreCancel;
                }
                if self.storing > 0 {
                    return Step::Wait;
                }
                match given.over {
                    Some(Over { voided: true, looked: true, .. }) => self.lost(me),
                    Some(Over { voided: false, .. }) if !given.is_voiding => self.void(),
                    Some(_) => Step::Wait,
                    None => {
                        let untimely = late && given.since + START_WITHIN < now;
                        let wanted = ordered_back || untimely;
                        let is_due = !given.started && !given.is_voiding && given.void_at <= now;
                        if wanted && is_due { self.void() } else { Step::Wait }
                    }
                }
            }
        }
    }

    /// Returns the next time at which the run needs attention although nothing has happened.
    pub(super) fn wake(&self, now: BootTime, wall: WallTime) -> Option<BootTime> {
        let due = now + wall.until(self.open.not_before);
        match &self.stage {
            Stage::Storing | Stage::Lost(_) => None,
            Stage::Waiting { .. } if wall < self.open.not_before => Some(due),
            Stage::Waiting { .. } => Some(now + wall.until(self.open.take_by) + Duration::from_millis(1)),
            Stage::Given(given) => {
                let look = (!given.is_looking).then(|| match given.over {
                    Some(_) => given.look_at,
                    None if wall < self.open.not_before => due + pace::LEAST,
                    None => given.look_at,
                });
                let late = now + wall.until(self.open.not_before + START_WITHIN);
                let late = late.max(given.since + START_WITHIN) + Duration::from_millis(1);
                let void_at = if self.is_ordered() { given.void_at } else { given.void_at.max(late) };
                let may_void =
                    self.storing == 0 && given.over.is_none() && !given.started && !given.is_voiding;
                let void = may_void.then_some(void_at);
                look.into_iter().chain(void).min()
            }
        }
    }

    /// Returns the outcome with which a run that no worker has must end, and the reason.
    fn order(&self, wall: WallTime) -> Option<(RunOutcome, Arc<str>)> {
        let cancelled = self.cancel.as_ref().map(|why| (RunOutcome::Cancelled, Arc::clone(why)));
        cancelled.or_else(|| self.withdraw.clone()).or_else(|| {
            (wall > self.open.take_by)
                .then(|| (RunOutcome::SkippedMisfire, "it waited for longer than the misfire window".into()))
        })
    }

    fn void(&mut self) -> Step {
        let (Stage::Given(given), Some(to)) = (&mut self.stage, &self.open.to) else { return Step::Wait };
        given.is_voiding = true;
        Step::Void(to.id())
    }

    /// Makes the run wait for another worker.
    fn wait_again(&mut self) {
        self.lost_by = self.session().cloned();
        self.stage = Stage::Waiting { stored: true };
    }

    /// The session has ended, and no node has an end of the run.
    fn lost(&mut self, me: &Arc<str>) -> Step {
        let worker = self.open.to.as_ref().map_or(me, |to| &to.worker);
        let why = format!("it was started by {worker}, which recorded no end").into();
        let result = WorkResult::none(worker, why);
        match self.open.delivery {
            _ if self.cancel.is_some() => Step::End(RunOutcome::Cancelled, result),
            Delivery::AtMostOnce => Step::End(RunOutcome::Lost, result),
            Delivery::AtLeastOnce => {
                self.stage = Stage::Lost(result);
                Step::Wait
            }
        }
    }

    /// Returns the outcome of a run that the worker has executed. Returns `None` if the run must be executed again.
    pub(super) fn outcome(&self, result: &WorkResult) -> Option<RunOutcome> {
        match (result.end, self.open.delivery) {
            (Some(end), _) => Some(end),
            (None, _) if self.cancel.is_some() => Some(RunOutcome::Cancelled),
            (None, Delivery::AtMostOnce) => Some(RunOutcome::Cancelled),
            (None, Delivery::AtLeastOnce) => None,
        }
    }

    /// Notes that the run was interrupted, and must be executed again.
    pub(super) fn interrupted(&mut self, result: WorkResult) {
        self.stage = Stage::Lost(result);
    }

    /// If another generation must follow the last one, begins it, and returns the reason. The generation waits for a worker.
    pub(super) fn reopen(&mut self, wall: WallTime) -> Option<Arc<str>> {
        let Stage::Lost(result) = &self.stage else { return None };
        if !self.reopens {
            return None;
        }
        let why = Arc::clone(&result.reason);
        self.lost_by = self.open.to.as_ref().map(|to| Arc::clone(&to.session));
        (self.open, self.stage) = (self.open.next_generation(wall), Stage::Waiting { stored: false });
        Some(why)
    }
}

/// The result of a look.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Nothing,
    /// The worker has executed the run.
    Done(WorkResult),
    /// The worker does not start the run. It does not have the job, or it came too late.
    NotStarted {
        lacks_job: bool,
    },
}

impl Given {
    fn new(now: BootTime) -> Self {
        Self {
            since: now,
            look_at: now,
            void_at: now,
            is_looking: false,
            is_voiding: false,
            started: false,
            over: None,
        }
    }
}

#[cfg(test)]
#[path = "assigned_run_tests.rs"]
mod tests;
