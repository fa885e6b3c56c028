//! The assignments of one worker, as its row and their records show them. Without I/O.

use crate::{
    env::{BootTime, WallTime},
    node::copy::AssignmentId,
    scheduler::{
        job::whole_of,
        registry::JobMap,
        run::{
            Cancel,
            assignment::{ASK_AGAIN, Tried},
        },
        store::{OpenRun, WorkRow, job_and_tick},
    },
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// The longest time for which a worker waits for a run to become due before it reads its wall clock again.
const WALL_CLOCK_CHECK: Duration = Duration::from_millis(500);
/// The number of assignments that a worker remembers after it is done with them.
const OVER_MAX: usize = 10_000;
/// The reason of a run that the leader no longer wants from this worker.
const TAKEN_BACK: &str = "the leader has ended the run, or given it to another worker";

/// The assignments of one session, by the keys of their runs.
#[derive(Debug, Default)]
pub(super) struct Worklist {
    works: BTreeMap<Arc<str>, Work>,
    over: OverWorks,
}

/// The last assignments with which the worker is done, and that its row did not name afterwards. A later read may be
/// of copies that lack the leader's last write, and name such an assignment again. It must not start a second time.
#[derive(Debug, Default)]
struct OverWorks {
    all: BTreeSet<(Arc<str>, AssignmentId)>,
    in_order: VecDeque<(Arc<str>, AssignmentId)>,
}

impl OverWorks {
    fn note(&mut self, key: &Arc<str>, id: AssignmentId) {
        if self.all.insert((Arc::clone(key), id)) {
            self.in_order.push_back((Arc::clone(key), id));
        }
        if self.in_order.len() > OVER_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    fn contains(&self, key: &Arc<str>, id: AssignmentId) -> bool {
        self.all.contains(&(Arc::clone(key), id))
    }
}

#[derive(Debug)]
struct Work {
    id: AssignmentId,
    /// The run's record, once it has been read.
    open: Option<OpenRun>,
    /// The time of the first attempt to start it.
    tried: Option<BootTime>,
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
    /// The time of the first attempt to start it.
    pub(super) tried: BootTime,
    pub(super) cancel: Cancel,
}

impl Worklist {
    /// Notes the assignments that the row names. A run that the row no longer names is not started, and is cancelled if it
    /// is executed. Returns true if there are new assignments.
    pub(super) fn update(&mut self, row: &WorkRow, now: BootTime) -> bool {
        let over = &mut self.over;
        self.works.retain(|key, work| {
            let is_named = row.runs.get(key).is_some_and(|run| run.id() == work.id);
            match work.state {
                State::Active if !is_named => work.cancel.cancel(TAKEN_BACK),
                State::Over if !is_named => over.note(key, work.id),
                _ => {}
            }
            is_named || work.state == State::Active
        });
        let mut is_new = false;
        for (key, run) in row.runs.iter().filter(|(key, run)| !self.over.contains(key, run.id())) {
            let new = || Work {
                id: run.id(),
                open: None,
                tried: None,
                cancel: Cancel::default(),
                state: State::Waiting(now),
            };
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
                let own = || job_of(key).and_then(|job| jobs.get(whole_of(job).unwrap_or(job)));
                let own = || own().map_or(0, |job| job.rules.priority);
                let priority = open.job.as_ref().map_or_else(own, |job| job.priority());
                is_due.then(|| (Reverse(priority), open.not_before, Arc::clone(key)))
            })
            .collect();
        due.sort();
        due.truncate(room);
        due.into_iter().filter_map(|(.., key)| self.activate(key, now)).collect()
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
        *self = Self::default();
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

    fn activate(&mut self, key: Arc<str>, now: BootTime) -> Option<Due> {
        let work = self.works.get_mut(&key)?;
        work.state = State::Active;
        let tried = *work.tried.get_or_insert(now);
        Some(Due { id: work.id, open: work.open.clone()?, tried, cancel: work.cancel.clone(), key })
    }
}

/// Returns the job from the key of a run.
pub(super) fn job_of(key: &str) -> Option<&str> {
    job_and_tick(key).map(|(job, _)| job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{
            job::{Job, RunCause},
            policy::Delivery,
            schedule::Schedule,
            store::{Announcement, AssignedTo, WorkRun},
        },
    };

    const NONE: [u64; 0] = [];
    /// The runs are due at this time, in milliseconds.
    const DUE: u64 = 10_000;

    /// Returns the time after so many milliseconds. The two clocks show different numbers.
    fn ms(after: u64) -> (BootTime, WallTime) {
        (BootTime::from_nanos((7_000 + after) * 1_000_000), wall(after))
    }

    fn wall(after: u64) -> WallTime {
        WallTime::from_micros((1_000_000 + after) * 1_000)
    }

    fn id(seq: u64) -> AssignmentId {
        AssignmentId { term: FencingToken::new(3), seq }
    }

    fn key(job: &str) -> Arc<str> {
        format!("tick/{job}/{:020}", wall(DUE).as_micros()).into()
    }

    fn open(seq: u64) -> OpenRun {
        let to = AssignedTo { worker: "w".into(), session: "s".into(), term: id(seq).term, seq };
        OpenRun {
            generation: 1,
            at: wall(0),
            not_before: wall(DUE),
            take_by: wall(DUE + 5_000),
            delivery: Delivery::AtMostOnce,
            cause: RunCause::Scheduled,
            term: FencingToken::new(3),
            labels: Default::default(),
            uses: None,
            state: None,
            cancel: None,
            payload: None,
            job: None,
            token: FencingToken::default(),
            to: Some(to),
        }
    }

    /// Returns the row with these jobs' runs, the assignments, and the reasons to cancel them.
    fn row(runs: &[(&str, u64, Option<&str>)]) -> WorkRow {
        let who = Announcement {
            worker: "w".into(),
            room: 9,
            labels: Default::default(),
            jobs: 1,
            handlers: Vec::new(),
        };
        let run = |(job, seq, cancel): &(&str, u64, Option<&str>)| {
            (key(job), WorkRun::new(id(*seq), cancel.map(Into::into)))
        };
        WorkRow { who, runs: runs.iter().map(run).collect() }
    }

    /// Returns a list that has read the record of each job's run. The assignments are numbered from 0.
    fn read(jobs: &[&str]) -> Worklist {
        let mut list = Worklist::default();
        let runs: Vec<_> = (0..).zip(jobs).map(|(seq, job)| (*job, seq, None)).collect();
        assert!(list.update(&row(&runs), ms(0).0));
        for (seq, job) in (0..).zip(jobs) {
            list.read(&key(job), open(seq));
        }
        list
    }

    fn jobs(priorities: &[(&str, i32)]) -> JobMap {
        let minute = Schedule::every(Duration::from_secs(60)).unwrap();
        let job = |(name, priority): &(&str, i32)| {
            let job = Job::new(name, minute.clone(), |_| async { Ok::<(), String>(()) });
            (Arc::from(*name), Arc::new(job.priority(*priority)))
        };
        Arc::new(priorities.iter().map(job).collect())
    }

    /// Returns the assignments that start.
    fn due(list: &mut Worklist, room: usize, after: u64) -> Vec<u64> {
        list.due(&jobs(&[]), room, ms(after)).iter().map(|due| due.id.seq).collect()
    }

    #[test]
    fn a_run_starts_once_when_it_is_due() {
        let mut list = read(&["j"]);
        assert_eq!(due(&mut list, 9, DUE - 1), NONE);
        let started = list.due(&jobs(&[]), 9, ms(DUE));
        let [Due { key: of, id: which, open: record, cancel, .. }] = &started[..] else {
            panic!("{started:?}")
        };
        assert_eq!((of, *which, record), (&key("j"), id(0), &open(0)));
        assert!(!cancel.is_cancelled());
        assert_eq!(due(&mut list, 9, DUE + 1), NONE, "it is active");
        list.tried(of, id(0), &Tried::Over, ms(DUE).0);
        assert!(!list.update(&row(&[("j", 0, None)]), ms(DUE).0), "the row still names it");
        assert_eq!(due(&mut list, 9, DUE + 60_000), NONE, "it is over");
        assert_eq!((list.wake(ms(DUE)), list.unread().len()), (None, 0));
    }

    #[test]
    fn a_run_that_is_over_does_not_start_again_if_an_older_row_names_it_again() {
        let mut list = read(&["j"]);
        assert_eq!(due(&mut list, 9, DUE), [0]);
        list.tried(&key("j"), id(0), &Tried::Over, ms(DUE).0);
        assert!(!list.update(&row(&[]), ms(DUE + 1).0), "the leader knows its end");
        assert!(!list.update(&row(&[("j", 0, None)]), ms(DUE + 2).0), "copies that lack that write");
        list.read(&key("j"), open(0));
        assert_eq!(due(&mut list, 9, DUE + 3), NONE);
        assert!(list.update(&row(&[("j", 1, None)]), ms(DUE + 4).0), "another assignment of the run");
        list.read(&key("j"), open(1));
        assert_eq!(due(&mut list, 9, DUE + 5), [1]);
    }

    #[test]
    fn the_last_assignments_that_are_over_are_remembered() {
        let mut over = OverWorks::default();
        for seq in 0..=OVER_MAX as u64 {
            over.note(&key("j"), id(seq));
            over.note(&key("j"), id(seq));
        }
        assert!(!over.contains(&key("j"), id(0)) && over.contains(&key("j"), id(1)));
        assert_eq!((over.all.len(), over.in_order.len()), (OVER_MAX, OVER_MAX));
    }

    #[test]
    fn a_start_without_an_answer_is_tried_again_after_a_pause() {
        let mut list = read(&["j"]);
        assert_eq!(due(&mut list, 9, DUE), [0]);
        list.tried(&key("j"), id(0), &Tried::Again, ms(DUE).0);
        list.tried(&key("j"), id(7), &Tried::Over, ms(DUE).0);
        assert_eq!(due(&mut list, 9, DUE + 99), NONE);
        assert_eq!(list.wake(ms(DUE + 50)), Some(ms(DUE + 100).0));
        let again = list.due(&jobs(&[]), 9, ms(DUE + 100));
        assert_eq!((again[0].id, again[0].tried), (id(0), ms(DUE).0), "the time of the first attempt");
    }

    #[test]
    fn jobs_with_a_higher_priority_start_first_and_the_rest_waits_for_room() {
        let mut list = read(&["a", "b", "c", "d"]);
        list.read(&key("d"), OpenRun { not_before: wall(DUE - 1), ..open(3) });
        let jobs = jobs(&[("a", 0), ("c", 5), ("d", 0)]);
        let mut start = |room| {
            let due = list.due(&jobs, room, ms(DUE));
            due.iter().map(|due| due.id.seq).collect::<Vec<_>>()
        };
        assert_eq!(start(2), [2, 3], "then the earlier one");
        assert_eq!(start(0), NONE);
        assert_eq!(start(9), [0, 1]);
    }

    #[test]
    fn only_the_record_of_the_assignment_is_read() {
        let mut list = Worklist::default();
        assert!(list.update(&row(&[("j", 4, None)]), ms(0).0));
        assert!(!list.update(&row(&[("j", 4, None)]), ms(0).0), "nothing new");
        for other in [open(3), OpenRun { to: None, ..open(4) }] {
            list.read(&key("j"), other);
            assert_eq!((list.unread(), due(&mut list, 9, DUE)), (vec![key("j")], vec![]));
        }
        list.read(&key("other"), open(4));
        list.read(&key("j"), open(4));
        assert_eq!((list.unread().len(), due(&mut list, 9, DUE)), (0, vec![4]));
    }

    #[test]
    fn a_run_that_the_row_no_longer_names_does_not_start_and_is_cancelled_if_it_is_executed() {
        let mut list = read(&["a", "b"]);
        list.read(&key("b"), OpenRun { not_before: wall(DUE + 1), ..open(1) });
        let started = list.due(&jobs(&[]), 9, ms(DUE));
        assert_eq!(started.len(), 1);
        assert!(!list.update(&row(&[]), ms(DUE).0));
        assert!(started[0].cancel.is_for_good());
        assert_eq!(started[0].cancel.why().as_deref(), Some(TAKEN_BACK));
        assert_eq!(due(&mut list, 9, DUE + 1), NONE);
    }

    #[test]
    fn a_new_assignment_of_a_run_waits_for_the_end_of_the_earlier_one() {
        let mut list = read(&["j"]);
        let started = list.due(&jobs(&[]), 9, ms(DUE));
        let next = row(&[("j", 5, Some("on request"))]);
        assert!(!list.update(&next, ms(DUE).0));
        assert_eq!(started[0].cancel.why().as_deref(), Some(TAKEN_BACK), "the other reason is not for it");
        list.read(&key("j"), open(5));
        assert_eq!(due(&mut list, 9, DUE), NONE);
        list.tried(&key("j"), id(0), &Tried::Over, ms(DUE).0);
        assert!(list.update(&next, ms(DUE).0));
        assert_eq!(list.unread(), [key("j")]);
        list.read(&key("j"), open(5));
        let again = list.due(&jobs(&[]), 9, ms(DUE));
        assert_eq!((again[0].id, again[0].cancel.why().as_deref()), (id(5), Some("on request")));
    }

    #[test]
    fn a_run_is_cancelled_through_the_row_and_interrupted_by_a_shutdown() {
        let mut list = read(&["a", "b", "c"]);
        list.read(&key("c"), OpenRun { not_before: wall(DUE + 1), ..open(2) });
        let started = list.due(&jobs(&[]), 9, ms(DUE));
        list.update(&row(&[("a", 0, Some("on request")), ("b", 1, None), ("c", 2, None)]), ms(DUE).0);
        assert!(started[0].cancel.is_for_good() && !started[1].cancel.is_cancelled());
        list.interrupt("a shutdown");
        assert!(started[1].cancel.is_cancelled() && !started[1].cancel.is_for_good());
        assert_eq!(started[0].cancel.why().as_deref(), Some("on request"));
        let waits = list.due(&jobs(&[]), 9, ms(DUE + 1));
        assert!(!waits[0].cancel.is_cancelled(), "it was not executed");
    }

    #[test]
    fn nothing_of_a_session_that_has_ended_starts() {
        let mut list = read(&["j"]);
        list.clear();
        assert_eq!((due(&mut list, 9, DUE), list.wake(ms(DUE))), (vec![], None));
    }

    #[test]
    fn a_worker_wakes_up_for_the_next_run_and_reads_its_wall_clock_before() {
        let mut list = read(&["j"]);
        assert_eq!(list.wake(ms(DUE - 200)), Some(ms(DUE).0));
        assert_eq!(list.wake(ms(DUE - 5_000)), Some(ms(DUE - 4_500).0));
        assert_eq!(list.wake(ms(DUE + 5_000)), Some(ms(DUE + 5_000).0), "not in the past");
        assert_eq!(due(&mut list, 9, DUE), [0]);
        assert_eq!(list.wake(ms(DUE)), None, "it is active");
        list.update(&row(&[("j", 0, None), ("new", 9, None)]), ms(DUE).0);
        assert_eq!(list.wake(ms(DUE)), None, "its record is not read yet");
    }
}
