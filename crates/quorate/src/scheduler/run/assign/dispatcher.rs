//! The leader's decisions about the runs for any worker: which worker gets which run, and when a run has ended. Without I/O.

use super::{
    assigned_run::{AssignedRun, Found, Step},
    roster::{LiveWorker, Roster},
};
use crate::{
    env::{BootTime, WallTime},
    ledger::Registered,
    node::{FencingToken, copy::AssignmentId},
    scheduler::{
        job::{Job, RunOutcome},
        policy::Labels,
        store::{Announcement, AssignedTo, OpenRun, WorkEnd, WorkResult, WorkRow},
    },
    session::Seen,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The time on both clocks.
pub(super) type Now = (BootTime, WallTime);

/// The runs and the workers of one term.
#[derive(Debug)]
pub(super) struct Dispatcher {
    /// The name of the leader.
    me: Arc<str>,
    term: FencingToken,
    /// The number of assignments in this term.
    assigned: u64,
    roster: Roster,
    runs: BTreeMap<Arc<str>, AssignedRun>,
    /// The sessions that are being fenced.
    fencing: BTreeSet<Arc<str>>,
}

/// An action that the shell must carry out.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Store the record of a run, and call [`Dispatcher::stored`] once it is at a majority.
    Store { key: Arc<str>, open: OpenRun },
    /// Void an assignment, and call [`Dispatcher::voided`] with the answers.
    Void { key: Arc<str>, id: AssignmentId },
    /// Store the row of a session, or remove it.
    Row { key: Arc<str>, row: Option<WorkRow> },
    /// Make sure that the session has ended, and call [`Dispatcher::fenced`].
    Fence { session: Arc<str> },
    /// Report the end of a run to its owner.
    End { key: Arc<str>, open: OpenRun, end: RunOutcome, result: WorkResult },
    /// Report to the log that a run needs another generation.
    Reopen { job: Arc<str>, key: Arc<str>, generation: u32, why: Arc<str> },
}

impl Dispatcher {
    pub(super) fn new(me: &Arc<str>, term: FencingToken, roster: Roster) -> Self {
        let (runs, fencing) = (BTreeMap::new(), BTreeSet::new());
        Self { me: Arc::clone(me), term, assigned: 0, roster, runs, fencing }
    }

    /// Adds a run. `stored` is true if the ledger has `open` already.
    pub(super) fn add(
        &mut self,
        key: &Arc<str>,
        run: (Arc<Job>, OpenRun),
        reopens: bool,
        stored: bool,
        now: BootTime,
    ) {
        let (job, open) = run;
        if let Some(to) = &open.to {
            // The worker may have a run of which its row says nothing, if the row was not stored in time.
            let who = Announcement {
                worker: Arc::clone(&to.worker),
                room: 0,
                labels: Labels::default(),
                jobs: 0,
                handlers: Vec::new(),
            };
            self.roster.add_unknown(&to.session, who);
            self.roster.assign(&to.session, (key, open.not_before), to.id(), open.cancel.clone());
        }
        let mut run = AssignedRun::new(job, open, reopens, stored, now);
        if run.session().is_some_and(|session| self.roster.has_ended(session)) {
            run.session_ended();
        }
        self.runs.insert(Arc::clone(key), run);
    }

    /// Removes a run, which the next leader finds in the ledger.
    pub(super) fn leave(&mut self, key: &str) {
        self.runs.remove(key);
    }

    /// Cancels a run.
    pub(super) fn cancel(&mut self, key: &str, why: &Arc<str>) {
        if let Some(run) = self.runs.get_mut(key) {
            run.cancel(why);
        }
    }

    /// Ends a run with `end`, unless a worker starts it first.
    pub(super) fn withdraw(&mut self, key: &str, end: RunOutcome, why: &Arc<str>) {
        if let Some(run) = self.runs.get_mut(key) {
            run.withdraw(end, why);
        }
    }

    /// Returns whether no run needs a worker.
    pub(super) fn is_idle(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the sessions to inspect.
    pub(super) fn sessions(&self) -> Vec<Arc<str>> {
        self.roster.sessions()
    }

    /// Notes what a worker announces.
    pub(super) fn announce(&mut self, session: &Arc<str>, who: Announcement) {
        self.roster.announce(session, who);
    }

    /// Notes the state of a session.
    pub(super) fn see(&mut self, session: &Arc<str>, seen: Seen, out: &mut Vec<Action>) {
        let of_session = self.runs.iter().filter(|(_, run)| run.session() == Some(session));
        match seen {
            Seen::Held => {
                if self.roster.admit(session) {
                    for (key, to, run) in
                        of_session.filter_map(|(key, run)| Some((key, run.open().to.as_ref()?, run)))
                    {
                        let due = run.open().not_before;
                        self.roster.assign(session, (key, due), to.id(), run.open().cancel.clone());
                    }
                }
            }
            // No run needs to know for certain that the session has ended. It may go on.
            Seen::Free if of_session.count() == 0 => self.roster.dismiss(session),
            Seen::Free => {
                if self.fencing.insert(Arc::clone(session)) {
                    out.push(Action::Fence { session: Arc::clone(session) });
                }
            }
        }
    }

    /// Notes whether a session has certainly ended.
    pub(super) fn fenced(&mut self, session: &Arc<str>, ended: bool) {
        self.fencing.remove(session);
        if ended {
            self.roster.end(session);
            self.end_session(session);
        }
    }

    fn end_session(&mut self, session: &Arc<str>) {
        let of_session = self.runs.values_mut().filter(|run| run.session() == Some(session));
        of_session.for_each(AssignedRun::session_ended);
    }

    /// Notes that the record of a run is stored.
    pub(super) fn stored(&mut self, key: &str, now: BootTime) {
        if let Some(run) = self.runs.get_mut(key) {
            run.stored(now);
            if run.session().is_some_and(|session| self.roster.has_ended(session)) {
                run.session_ended();
            }
        }
    }

    /// Returns the assignments whose ends the shell must look for. It calls [`looked`](Self::looked) for each.
    pub(super) fn looks(&mut self, (now, wall): Now) -> Vec<(Arc<str>, AssignmentId)> {
        let looks =
            |(key, run): (&Arc<str>, &mut AssignedRun)| Some((Arc::clone(key), run.looks(now, wall)?));
        self.runs.iter_mut().filter_map(looks).collect()
    }

    /// Notes what a look has found. See [`AssignedRun::looked`].
    pub(super) fn looked(
        &mut self,
        key: &Arc<str>,
        id: AssignmentId,
        end: Option<Option<WorkEnd>>,
        now: Now,
        out: &mut Vec<Action>,
    ) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let (job, session) = (Arc::clone(&run.job().name), run.session().cloned());
        match (run.looked(id, end, now), session) {
            (Found::NotStarted { lacks_job }, Some(session)) => {
                match lacks_job {
                    true => self.roster.note_lacks(&session, &job),
                    false => self.roster.doubt(&session, now.0),
                }
                self.roster.take_back(&session, key);
            }
            (Found::Done(result), Some(session)) => {
                self.roster.take_back(&session, key);
                match run.outcome(&result) {
                    Some(end) => self.end(key, end, result, out),
                    None => run.interrupted(result),
                }
            }
            _ => {}
        }
    }

    /// Notes the answers to a request to void an assignment.
    pub(super) fn voided(&mut self, key: &Arc<str>, id: AssignmentId, answers: Registered, now: BootTime) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let session = run.session().cloned();
        if run.voided(id, answers, now)
            && let Some(session) = session
        {
            if !run.is_ordered() {
                self.roster.doubt(&session, now);
            }
            self.roster.take_back(&session, key);
        }
    }

    /// Takes the steps that are due.
    pub(super) fn step(&mut self, now: Now, out: &mut Vec<Action>) {
        let mut waiting = self.step_each(now, out);
        if self.reopen(now.1, out) {
            waiting = self.step_each(now, out);
        }
        waiting.sort();
        for (.., key) in waiting {
            self.assign(&key, now, out);
        }
        let rows = self.roster.take_changed();
        out.extend(rows.into_iter().map(|(key, row)| Action::Row { key, row }));
    }

    /// Takes the steps of each run. Returns the runs that need a worker, those with the highest priority first.
    fn step_each(&mut self, now: Now, out: &mut Vec<Action>) -> Vec<(Reverse<i32>, WallTime, Arc<str>)> {
        let mut waiting = Vec::new();
        let mut ended = Vec::new();
        for (key, run) in &mut self.runs {
            match run.step(&self.me, now) {
                Step::Wait => {}
                Step::Assign => {
                    waiting.push((Reverse(run.job().rules.priority), run.open().not_before, Arc::clone(key)));
                }
                Step::StoreCancel => {
                    let open = run.store_cancel();
                    if let Some(to) = &open.to {
                        self.roster.assign(&to.session, (key, open.not_before), to.id(), open.cancel.clone());
                    }
                    out.push(Action::Store { key: Arc::clone(key), open });
                }
                Step::Void(id) => out.push(Action::Void { key: Arc::clone(key), id }),
                Step::End(end, result) => ended.push((Arc::clone(key), end, result)),
            }
        }
        for (key, end, result) in ended {
            self.end(&key, end, result, out);
        }
        waiting
    }

    /// Returns the workers that live, as far as is known, and a number that grows when they change.
    pub(super) fn live(&self) -> (u64, impl FnOnce() -> Vec<LiveWorker>) {
        (self.roster.revision(), || self.roster.live())
    }

    /// Returns the number of jobs with runs that wait, because no live worker has their handler, and because none has their
    /// labels.
    pub(super) fn without_worker(&self) -> (usize, usize) {
        let waits = self.runs.values().filter(|run| run.open().to.is_none());
        let (mut of_handler, mut of_labels) = (BTreeSet::new(), BTreeSet::new());
        for run in waits {
            if run.handler().is_some_and(|handler| !self.roster.has_handler(handler)) {
                of_handler.insert(&run.job().name);
            } else if !run.open().labels.is_empty() && !self.roster.has_labels(&run.open().labels) {
                of_labels.insert(&run.job().name);
            }
        }
        (of_handler.len(), of_labels.len())
    }

    /// Returns the next time at which a step may be due.
    pub(super) fn wake(&self, (now, wall): Now) -> Option<BootTime> {
        self.runs.values().filter_map(|run| run.wake(now, wall)).min()
    }

    fn end(&mut self, key: &Arc<str>, end: RunOutcome, result: WorkResult, out: &mut Vec<Action>) {
        let Some(run) = self.runs.remove(key) else { return };
        if let Some(session) = run.session() {
            self.roster.take_back(session, key);
        }
        let open = run.open().clone();
        out.push(Action::End { key: Arc::clone(key), open, end, result });
    }

    /// Opens the next generation of each run whose last one was lost or interrupted. Returns whether there was one.
    fn reopen(&mut self, wall: WallTime, out: &mut Vec<Action>) -> bool {
        let before = out.len();
        for (key, run) in &mut self.runs {
            if let Some(why) = run.reopen(wall) {
                let (job, generation) = (Arc::clone(&run.job().name), run.open().generation);
                out.push(Action::Reopen { job, key: Arc::clone(key), generation, why });
            }
        }
        out.len() > before
    }

    fn assign(&mut self, key: &Arc<str>, (now, wall): Now, out: &mut Vec<Action>) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let Some((session, worker)) = self.roster.pick(
            (&run.job().name, run.handler(), run.open().not_before),
            &run.open().labels,
            run.lost_by(),
            (now, wall),
        ) else {
            if run.must_store_waiting(wall) {
                let open = run.store_waiting();
                out.push(Action::Store { key: Arc::clone(key), open });
            }
            return;
        };
        self.assigned += 1;
        let next = FencingToken::new(run.open().token.get() + 1);
        let token = self.term.max(FencingToken::new(wall.as_micros())).max(next).min(FencingToken::MAX);
        let to = AssignedTo { worker, session, term: self.term, seq: self.assigned };
        self.roster.assign(&to.session, (key, run.open().not_before), to.id(), None);
        let open = OpenRun { token, to: Some(to), ..run.open().clone() };
        run.assign(open.clone());
        out.push(Action::Store { key: Arc::clone(key), open });
    }
}

#[cfg(test)]
#[path = "dispatcher_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "history_tests.rs"]
mod history_tests;
