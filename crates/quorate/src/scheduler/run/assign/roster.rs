//! The workers that a leader knows, and the runs that it has assigned to each.

use crate::{
    env::{BootTime, WallTime},
    node::copy::AssignmentId,
    scheduler::{
        job::Job,
        policy::Labels,
        store::{Announcement, WorkRow, WorkRun, snapshot::LedgerSnapshot},
    },
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
    /// Grows when a worker comes or goes, or offers something else.
    revision: u64,
}

#[derive(Debug)]
struct Member {
    row: WorkRow,
    /// The times at which the runs are due. A run without a time is of an earlier leader.
    due: BTreeMap<Arc<str>, WallTime>,
    /// The jobs that the worker has said not to have.
    lacks: BTreeSet<Arc<str>>,
    doubted_until: BootTime,
    /// The turn in which the member got its last run.
    last_turn: u64,
}

/// A worker that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scheduler) struct LiveWorker {
    who: Announcement,
    /// The jobs that it has said not to have.
    lacks: BTreeSet<Arc<str>>,
}

impl LiveWorker {
    /// Returns the workers whose rows the ledger has.
    pub(in crate::scheduler) fn of_ledger(ledger: &LedgerSnapshot) -> Vec<Self> {
        let rows = ledger.rows(WorkRow::prefix()).filter_map(|(_, row)| WorkRow::parse(row));
        rows.map(|row| Self { who: row.who, lacks: BTreeSet::new() }).collect()
    }

    /// Returns a worker that has no handlers.
    #[cfg(test)]
    pub(in crate::scheduler) fn named(worker: &str, labels: &[&str], lacks: &[&str]) -> Self {
        let who = super::samples::who(worker, 1);
        let who = Announcement { labels: Labels::new(labels), ..who };
        Self { who, lacks: lacks.iter().map(|job| (*job).into()).collect() }
    }

    #[cfg(test)]
    pub(in crate::scheduler) fn offer(&mut self, handler: &str) {
        self.who.handlers.push(handler.into());
    }

    #[cfg(test)]
    pub(in crate::scheduler) fn announcement(&self) -> &Announcement {
        &self.who
    }

    pub(in crate::scheduler) fn name(&self) -> &Arc<str> {
        &self.who.worker
    }

    /// Returns the number of workers by label, and under the empty label of all.
    pub(super) fn by_label(workers: &[Self]) -> BTreeMap<Arc<str>, usize> {
        let mut counts = BTreeMap::from([("".into(), workers.len())]);
        for label in workers.iter().flat_map(|worker| worker.who.labels.iter()) {
            *counts.entry(Arc::clone(label)).or_default() += 1;
        }
        counts
    }

    /// Returns whether the worker has the labels and the handler of a job, and has not said that it lacks the job, which has
    /// `name` for this worker.
    pub(in crate::scheduler) fn has(&self, job: &Job, name: &str) -> bool {
        let handler = job.handler_name().filter(|_| job.stored.is_some());
        job.rules.labels.are_in(&self.who.worker, &self.who.labels)
            && handler.is_none_or(|name| self.who.handlers.contains(name))
            && !self.lacks.contains(name)
    }
}

impl Roster {
    /// Returns the roster of the rows that the ledger has, each with its session.
    pub(super) fn new(rows: impl Iterator<Item = (Arc<str>, WorkRow)>, doubt: Duration) -> Self {
        let members = rows.map(|(session, row)| (session, Member::new(row))).collect();
        let (announced, ended, changed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { doubt, members, announced, ended, changed, turns: 0, revision: 0 }
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
                self.revision += 1;
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
        self.revision += 1;
        self.changed.insert(Arc::clone(session));
        true
    }

    /// Removes a member without runs whose session seems to have ended. If the session is seen again, it becomes a member
    /// again.
    pub(super) fn dismiss(&mut self, session: &Arc<str>) {
        self.announced.remove(session);
        if self.members.remove(session).is_some() {
            self.revision += 1;
            self.changed.insert(Arc::clone(session));
        }
    }

    /// Notes that a session has certainly ended, and that its worker executes nothing more.
    pub(super) fn end(&mut self, session: &Arc<str>) {
        self.dismiss(session);
        self.ended.insert(Arc::clone(session));
    }

    pub(super) fn has_ended(&self, session: &str) -> bool {
        self.ended.contains(session)
    }

    /// Returns the session of the worker that gets a run of `job` that is due at `due`, with the worker's name. If the job names
    /// a handler, only workers that have registered it get the run. Runs that are due later take no room. Of the workers with
    /// room and all of the `labels`, those that started their runs in time come first, then those
    /// that did not lose this run, then those with fewer runs, and then the one that got a run longest ago.
    pub(super) fn pick(
        &self,
        (job, handler, due): (&str, Option<&str>, WallTime),
        labels: &Labels,
        lost_it: Option<&str>,
        (now, wall): (BootTime, WallTime),
    ) -> Option<(Arc<str>, Arc<str>)> {
        let load = |member: &Member| member.load(due.max(wall));
        let has = |member: &Member| handler.is_none_or(|name| member.has(name));
        let fits = |member: &Member| {
            let who = &member.row.who;
            load(member) < who.room
                && labels.are_in(&who.worker, &who.labels)
                && !member.lacks.contains(job)
                && has(member)
        };
        let order = |(session, member): &(&Arc<str>, &Member)| {
            let (doubted, lost) = (member.doubted_until > now, lost_it == Some(&***session));
            (doubted, lost, load(member), member.last_turn)
        };
        let chosen = self.members.iter().filter(|(_, member)| fits(member)).min_by_key(order);
        chosen.map(|(session, member)| (Arc::clone(session), Arc::clone(&member.row.who.worker)))
    }

    /// Returns a number that grows when [`Roster::live`] changes.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the workers that live, as far as is known.
    pub(super) fn live(&self) -> Vec<LiveWorker> {
        let live = |member: &Member| LiveWorker { who: member.row.who.clone(), lacks: member.lacks.clone() };
        self.members.values().map(live).collect()
    }

    /// Returns whether a live worker has this handler.
    pub(super) fn has_handler(&self, name: &str) -> bool {
        self.members.values().any(|member| member.has(name))
    }

    /// Returns whether a live worker has these labels.
    pub(super) fn has_labels(&self, labels: &Labels) -> bool {
        let who = |member: &Member| labels.are_in(&member.row.who.worker, &member.row.who.labels);
        self.members.values().any(who)
    }

    /// Notes that `session` has the run `key`, which is due at `due`, as the assignment `id`, and the reason to cancel it.
    pub(super) fn assign(
        &mut self,
        session: &Arc<str>,
        (key, due): (&Arc<str>, WallTime),
        id: AssignmentId,
        cancel: Option<Arc<str>>,
    ) {
        let Some(member) = self.members.get_mut(session) else { return };
        member.due.insert(Arc::clone(key), due);
        if member.row.runs.insert(Arc::clone(key), WorkRun::new(id, cancel)).is_none() {
            self.turns += 1;
            member.last_turn = self.turns;
        }
        self.changed.insert(Arc::clone(session));
    }

    /// Notes that `session` no longer has the run `key`.
    pub(super) fn take_back(&mut self, session: &Arc<str>, key: &str) {
        let Some(member) = self.members.get_mut(session) else { return };
        member.due.remove(key);
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
            self.revision += u64::from(member.lacks.insert(Arc::clone(job)));
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
        let (due, lacks) = (BTreeMap::new(), BTreeSet::new());
        Self { row, due, lacks, doubted_until: BootTime::default(), last_turn: 0 }
    }

    /// Returns whether the worker has this handler.
    fn has(&self, name: &str) -> bool {
        self.row.who.handlers.iter().any(|handler| **handler == *name)
    }

    /// Returns the number of runs that may be executed at `at`.
    fn load(&self, at: WallTime) -> usize {
        self.row.runs.len() - self.due.values().filter(|due| **due > at).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{DUE, ms, to, wall, who},
        *,
    };

    const DOUBT: Duration = Duration::from_secs(10);

    /// Returns the roster of workers with this much room, each of which has a session with its name.
    fn roster(workers: &[(&str, usize)]) -> Roster {
        let rows = workers.iter().map(|(worker, room)| {
            (Arc::from(*worker), WorkRow { who: who(worker, *room), runs: BTreeMap::new() })
        });
        Roster::new(rows, DOUBT)
    }

    /// Returns the worker that gets the run `number` of the job `j`, and gives it the run.
    fn give(roster: &mut Roster, number: u64) -> Option<String> {
        let (session, worker) = roster.pick(("j", None, wall(DUE)), &Labels::default(), None, ms(0))?;
        assert_eq!(session, worker);
        roster.assign(&session, (&key(number), wall(DUE)), to(&session, number).id(), None);
        Some(worker.to_string())
    }

    fn picked(roster: &Roster, lost_it: Option<&str>, after: u64) -> Option<String> {
        roster
            .pick(("j", None, wall(DUE)), &Labels::default(), lost_it, ms(after))
            .map(|(_, worker)| worker.to_string())
    }

    fn key(number: u64) -> Arc<str> {
        format!("tick/j/{number}").into()
    }

    /// Returns the numbers of the runs in the rows to store, with `None` for a row to remove.
    fn changed(roster: &mut Roster) -> Vec<(String, Option<Vec<u64>>)> {
        let numbers = |row: WorkRow| row.runs.values().map(|run| run.id().seq).collect();
        let rows = roster.take_changed().into_iter();
        rows.map(|(key, row)| (key.to_string(), row.map(numbers))).collect()
    }

    #[test]
    fn a_run_goes_to_the_worker_with_room_and_the_fewest_runs_in_turn() {
        let mut roster = roster(&[("a", 2), ("b", 3), ("c", 1)]);
        let given: Vec<_> = (0..7).map(|number| give(&mut roster, number)).collect();
        let names = ["a", "b", "c", "a", "b", "b"].map(|worker| Some(worker.to_owned()));
        assert_eq!(given[..6], names);
        assert_eq!(given[6], None, "no worker has room");
        roster.take_back(&"b".into(), &key(1));
        roster.take_back(&"a".into(), &key(0));
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("a"), "it has one run, and b has two");
        roster.take_back(&"b".into(), &key(4));
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("a"), "b got its last run later");
        roster.take_back(&"c".into(), &key(2));
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("c"), "it has no run");
    }

    #[test]
    fn the_number_of_runs_counts_before_the_turn_and_the_turn_before_the_name() {
        let mut roster = roster(&[("a", 9), ("b", 9)]);
        assert_eq!(give(&mut roster, 0).as_deref(), Some("a"));
        roster.take_back(&"a".into(), &key(0));
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("b"), "a got a run before");
        for (session, number) in [("a", 1), ("a", 2), ("b", 3)] {
            let id = to(session, number).id();
            roster.assign(&session.into(), (&key(number), wall(DUE)), id, None);
        }
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("b"), "it got the last run, but has fewer");
    }

    #[test]
    fn runs_that_are_due_later_take_no_room() {
        let mut roster = roster(&[("a", 1), ("b", 1)]);
        let pick = |roster: &Roster, due, after| {
            roster
                .pick(("j", None, wall(due)), &Labels::default(), None, ms(after))
                .map(|(_, worker)| worker.to_string())
        };
        for (session, number) in [("a", 0), ("b", 1)] {
            roster.assign(
                &session.into(),
                (&key(number), wall(DUE + number)),
                to(session, number).id(),
                None,
            );
        }
        assert_eq!(pick(&roster, DUE - 1, 0).as_deref(), Some("a"));
        assert_eq!(pick(&roster, DUE, 0).as_deref(), Some("b"), "a has a run that is due at that time");
        assert_eq!(pick(&roster, DUE + 1, 0), None);
        assert_eq!(pick(&roster, 0, DUE + 1), None, "all runs are due now");
        let earlier =
            WorkRow { who: who("c", 1), runs: [(key(2), WorkRun::new(to("c", 2).id(), None))].into() };
        let roster = Roster::new([(Arc::from("c"), earlier)].into_iter(), DOUBT);
        assert_eq!(pick(&roster, 0, 0), None, "the time of an earlier leader's run is not known");
    }

    #[test]
    fn a_second_record_of_one_run_takes_no_more_room() {
        let mut roster = roster(&[("a", 2)]);
        for number in [0, 0, 0] {
            assert!(give(&mut roster, number).is_some());
        }
        assert_eq!(give(&mut roster, 1).as_deref(), Some("a"));
        assert_eq!(give(&mut roster, 2), None);
    }

    #[test]
    fn a_worker_without_the_job_gets_no_run_of_it_until_its_jobs_change() {
        let mut roster = roster(&[("a", 9), ("b", 9)]);
        let job: Arc<str> = "j".into();
        roster.note_lacks("a", &job);
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("b"));
        roster.note_lacks("b", &job);
        assert_eq!(picked(&roster, None, 0), None);
        assert!(roster.pick(("other", None, wall(DUE)), &Labels::default(), None, ms(0)).is_some());
        roster.announce(&"a".into(), who("a", 9));
        assert_eq!(picked(&roster, None, 0), None, "its jobs are the same");
        roster.announce(&"a".into(), Announcement { jobs: 2, ..who("a", 9) });
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("a"));
        let stored = |roster: &Roster| {
            roster.pick(("on-nodes", Some("mail"), wall(DUE)), &Labels::default(), None, ms(0))
        };
        assert_eq!(stored(&roster), None, "no worker has the handler");
        roster.announce(&"b".into(), Announcement { handlers: vec!["mail".into()], ..who("b", 9) });
        assert_eq!(stored(&roster).map(|(_, worker)| worker).as_deref(), Some("b"));
    }

    #[test]
    fn a_worker_that_is_doubted_or_has_lost_the_run_comes_last() {
        let mut roster = roster(&[("a", 9), ("b", 9), ("c", 9)]);
        roster.doubt("a", ms(0).0);
        assert_eq!(picked(&roster, Some("b"), 0).as_deref(), Some("c"));
        roster.end(&"c".into());
        assert_eq!(picked(&roster, Some("b"), 0).as_deref(), Some("b"), "the other one is doubted");
        roster.end(&"b".into());
        assert_eq!(picked(&roster, Some("a"), 0).as_deref(), Some("a"), "there is no other");

        let mut roster = self::roster(&[("a", 9), ("b", 9)]);
        roster.doubt("a", ms(0).0);
        assert_eq!(picked(&roster, None, 9_999).as_deref(), Some("b"));
        assert_eq!(picked(&roster, None, 10_000).as_deref(), Some("a"), "no longer");
    }

    #[test]
    fn a_worker_that_announces_itself_is_a_member_once_its_session_was_seen_and_never_after_its_end() {
        let (mut roster, session) = (roster(&[]), Arc::<str>::from("a"));
        assert!(!roster.admit(&session), "it has not announced itself");
        roster.announce(&session, who("a", 9));
        assert_eq!((picked(&roster, None, 0), roster.sessions()), (None, vec![session.clone()]));
        assert!(roster.admit(&session) && !roster.admit(&session));
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("a"));
        roster.end(&session);
        assert!(roster.has_ended(&session) && roster.sessions().is_empty());
        roster.announce(&session, who("a", 9));
        roster.add_unknown(&session, who("a", 9));
        assert!(!roster.admit(&session) && roster.sessions().is_empty());
        assert_eq!(picked(&roster, None, 0), None);
    }

    #[test]
    fn a_worker_that_is_known_only_from_a_run_keeps_what_it_announces() {
        let (mut roster, session) = (roster(&[("b", 0)]), Arc::<str>::from("a"));
        roster.announce(&session, who("a", 9));
        roster.add_unknown(&session, who("a", 0));
        roster.add_unknown(&"b".into(), who("other", 9));
        assert!(roster.admit(&session));
        assert_eq!(picked(&roster, None, 0).as_deref(), Some("a"), "it has announced its room");
    }

    #[test]
    fn each_change_of_a_row_is_stored_once() {
        let mut roster = roster(&[("a", 2), ("b", 2)]);
        let row = |session: &str| format!("work/{session}");
        assert_eq!(changed(&mut roster), [], "the ledger has the rows");
        assert!((0..3).all(|number| give(&mut roster, number).is_some()));
        assert_eq!(changed(&mut roster), [(row("a"), Some(vec![0, 2])), (row("b"), Some(vec![1]))]);
        assert_eq!(changed(&mut roster), []);
        roster.take_back(&"a".into(), &key(0));
        roster.take_back(&"b".into(), &key(0));
        assert_eq!(changed(&mut roster), [(row("a"), Some(vec![2]))], "b did not have that run");
        roster.announce(&"a".into(), who("a", 2));
        assert_eq!(changed(&mut roster), [], "nothing new");
        roster.announce(&"a".into(), who("a", 3));
        roster.end(&"b".into());
        roster.end(&"unknown".into());
        assert_eq!(changed(&mut roster), [(row("a"), Some(vec![2])), (row("b"), None)]);
    }

    #[test]
    fn the_row_of_a_worker_has_the_reason_to_cancel_a_run() {
        let (mut roster, session) = (roster(&[("a", 2)]), Arc::<str>::from("a"));
        assert!(give(&mut roster, 0).is_some());
        roster.assign(&session, (&key(0), wall(DUE)), to("a", 0).id(), Some("on request".into()));
        let (_, row) = roster.take_changed().remove(0);
        assert_eq!(row.unwrap().runs[&key(0)].cancel.as_deref(), Some("on request"));
    }

    #[test]
    fn a_run_that_requires_labels_goes_to_a_worker_with_all_of_them() {
        let mut roster = roster(&[("a", 9), ("b", 9)]);
        let pick = |roster: &Roster, labels: &[&str]| {
            let found = roster.pick(("j", None, wall(DUE)), &Labels::new(labels), None, ms(0));
            found.map(|(_, worker)| worker.to_string())
        };
        assert_eq!(pick(&roster, &["eu"]), None);
        roster.announce(&"b".into(), Announcement { labels: Labels::new(["eu", "gpu"]), ..who("b", 9) });
        for labels in [&["eu"][..], &["eu", "gpu"]] {
            assert_eq!(pick(&roster, labels).as_deref(), Some("b"), "{labels:?}");
        }
        assert_eq!(pick(&roster, &["eu", "arm"]), None, "it has only one of them");
        assert_eq!(pick(&roster, &[]).as_deref(), Some("a"));
    }
}
