//! The workers that a leader knows, and the runs that it has assigned to each.

use crate::{
    env::BootTime,
    node::copy::AssignmentId,
    scheduler::store::{Announcement, WorkRow, WorkRun},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The sessions of workers that the leader knows.
#[derive(Debug)]
pub(super) struct Roster {
    /// After a worker did not start a run in time, others come first for this long.
    doubt: Duration,
    members: BTreeMap<Arc<str>, Member>,
    /// Workers that have announced themselves, and whose sessions have not been seen.
    announced: BTreeMap<Arc<str>, Announcement>,
    /// Sessions that have ended. A session has a name of its own and never begins again.
    ended: BTreeSet<Arc<str>>,
    /// The sessions whose rows must be stored.
    changed: BTreeSet<Arc<str>>,
    /// The number of assignments so far.
    turns: u64,
}

#[derive(Debug)]
struct Member {
    row: WorkRow,
    /// The jobs that the worker has said not to have.
    lacks: BTreeSet<Arc<str>>,
    doubted_until: BootTime,
    /// The turn in which the member got its last run.
    last_turn: u64,
}

/// The state of a session, as the nodes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum Seen {
    /// A majority names its worker.
    Held,
    /// No majority can name its worker.
    Free,
}

impl Roster {
    /// Returns the roster of the rows that the ledger has, each with its session.
    pub(super) fn new(rows: impl Iterator<Item = (Arc<str>, WorkRow)>, doubt: Duration) -> Self {
        let members = rows.map(|(session, row)| (session, Member::new(row))).collect();
        let (announced, ended, changed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { doubt, members, announced, ended, changed, turns: 0 }
    }

    /// Returns the sessions whose states the leader needs.
    pub(super) fn sessions(&self) -> Vec<Arc<str>> {
        self.members.keys().chain(self.announced.keys()).cloned().collect()
    }

    /// Notes what a worker announces.
    pub(super) fn announce(&mut self, session: &Arc<str>, who: Announcement) {
        match self.members.get_mut(session) {
            Some(member) if member.row.who != who => {
                member.lacks.clear();
                member.row.who = who;
                self.changed.insert(Arc::clone(session));
            }
            Some(_) => {}
            None if self.ended.contains(session) => {}
            None => drop(self.announced.insert(Arc::clone(session), who)),
        }
    }

    /// Notes the worker of a session, unless the session is known already.
    pub(super) fn add_unknown(&mut self, session: &Arc<str>, who: Announcement) {
        if !self.members.contains_key(session) && !self.ended.contains(session) {
            self.announced.entry(Arc::clone(session)).or_insert(who);
        }
    }

    /// Makes the worker of a session a member, if it has only announced itself. Returns whether it did.
    pub(super) fn admit(&mut self, session: &Arc<str>) -> bool {
        let Some(who) = self.announced.remove(session) else { return false };
        let row = WorkRow { who, runs: BTreeMap::new() };
        self.members.insert(Arc::clone(session), Member::new(row));
        self.changed.insert(Arc::clone(session));
        true
    }

    /// Notes that a session has ended, and that its worker executes nothing more.
    pub(super) fn end(&mut self, session: &Arc<str>) {
        self.announced.remove(session);
        if self.members.remove(session).is_some() {
            self.changed.insert(Arc::clone(session));
        }
        self.ended.insert(Arc::clone(session));
    }

    /// Returns whether a session has ended.
    pub(super) fn has_ended(&self, session: &str) -> bool {
        self.ended.contains(session)
    }

    /// Returns the session of the worker that gets the next run of `job`, with the worker's name. Of the workers with room,
    /// those that started their runs in time come first, then those that did not lose this run, then those with fewer
    /// runs, and then the one that got a run longest ago.
    pub(super) fn pick(
        &self,
        job: &str,
        lost_it: Option<&str>,
        now: BootTime,
    ) -> Option<(Arc<str>, Arc<str>)> {
        let fits =
            |member: &Member| member.row.runs.len() < member.row.who.room && !member.lacks.contains(job);
        let order = |(session, member): &(&Arc<str>, &Member)| {
            let (doubted, lost) = (member.doubted_until > now, lost_it == Some(&***session));
            (doubted, lost, member.row.runs.len(), member.last_turn)
        };
        let chosen = self.members.iter().filter(|(_, member)| fits(member)).min_by_key(order);
        chosen.map(|(session, member)| (Arc::clone(session), Arc::clone(&member.row.who.worker)))
    }

    /// Notes that `session` has the run `key` as the assignment `id`, and the reason to cancel it.
    pub(super) fn assign(
        &mut self,
        session: &Arc<str>,
        key: &Arc<str>,
        id: AssignmentId,
        cancel: Option<Arc<str>>,
    ) {
        let Some(member) = self.members.get_mut(session) else { return };
        if member.row.runs.insert(Arc::clone(key), WorkRun::new(id, cancel)).is_none() {
            self.turns += 1;
            member.last_turn = self.turns;
        }
        self.changed.insert(Arc::clone(session));
    }

    /// Notes that `session` no longer has the run `key`.
    pub(super) fn take_back(&mut self, session: &Arc<str>, key: &str) {
        let Some(member) = self.members.get_mut(session) else { return };
        if member.row.runs.remove(key).is_some() {
            self.changed.insert(Arc::clone(session));
        }
    }

    /// Notes that the worker did not start a run in time.
    pub(super) fn doubt(&mut self, session: &str, now: BootTime) {
        if let Some(member) = self.members.get_mut(session) {
            member.doubted_until = now + self.doubt;
        }
    }

    /// Notes that the worker does not have `job`.
    pub(super) fn note_lacks(&mut self, session: &str, job: &Arc<str>) {
        if let Some(member) = self.members.get_mut(session) {
            member.lacks.insert(Arc::clone(job));
        }
    }

    /// Returns the rows to store, with `None` for a row to remove.
    pub(super) fn take_changed(&mut self) -> Vec<(Arc<str>, Option<WorkRow>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let row = |session: &str| self.members.get(session).map(|member| member.row.clone());
        changed.map(|session| (WorkRow::key(&session), row(&session))).collect()
    }
}

impl Member {
    fn new(row: WorkRow) -> Self {
        Self { row, lacks: BTreeSet::new(), doubted_until: BootTime::default(), last_turn: 0 }
    }
}
