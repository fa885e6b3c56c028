use super::{
    super::samples::{DUE, TAKE_BY, done, job, ms, not_started, open, registered, result, to, wall, who},
    *,
};
use crate::scheduler::{policy::Delivery, store::WorkRun};
use Delivery::{AtLeastOnce, AtMostOnce};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
/// The first time at which a worker that has not started its run loses it.
const LATE: u64 = DUE + 1_001;

/// A leader of the term 3, with the answers of an environment that does everything at once.
struct Leader {
    dispatcher: Dispatcher,
    /// The rows of the workers, as they are stored.
    rows: BTreeMap<String, WorkRow>,
    fenced: Vec<String>,
    ended: Vec<(String, RunOutcome, WorkResult)>,
}

impl Leader {
    /// Returns a leader that knows workers with this much room. Each has a session with its name.
    fn with(workers: &[(&str, usize)]) -> Self {
        let roster = Roster::new(std::iter::empty(), TTL);
        let dispatcher = Dispatcher::new(&"leader".into(), FencingToken::new(3), roster);
        let (rows, fenced, ended) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut leader = Self { dispatcher, rows, fenced, ended };
        workers.iter().for_each(|(worker, room)| leader.joins(worker, *room));
        leader
    }

    fn joins(&mut self, worker: &str, room: usize) {
        self.dispatcher.announce(&worker.into(), who(worker, room));
        self.sees(worker, Seen::Held);
    }

    fn sees(&mut self, session: &str, seen: Seen) {
        let mut out = Vec::new();
        self.dispatcher.see(&session.into(), seen, &mut out);
        self.note(out);
    }

    /// Adds a run of the job `name`, which the ledger has if it is assigned.
    fn opens(&mut self, key: &str, name: &str, open: OpenRun) {
        let (stored, now) = (open.to.is_some(), ms(0).0);
        self.dispatcher.add(&key.into(), (job(name), open), true, stored, now);
    }

    /// Takes the steps that are due. Returns the actions other than those on rows and sessions.
    fn step(&mut self, after: u64) -> Vec<Action> {
        let mut out = Vec::new();
        self.dispatcher.step(ms(after), &mut out);
        self.note(out)
    }

    fn note(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let mut rest = Vec::new();
        for action in actions {
            match action {
                Action::Row { key, row: Some(row) } => drop(self.rows.insert(key.to_string(), row)),
                Action::Row { key, row: None } => drop(self.rows.remove(&*key)),
                Action::Fence { session } => self.fenced.push(session.to_string()),
                Action::End { key, end, result, .. } => self.ended.push((key.to_string(), end, result)),
                other => rest.push(other),
            }
        }
        rest
    }

    /// Takes the steps that are due, and stores the records. Returns these.
    fn stores(&mut self, after: u64) -> Vec<(String, OpenRun)> {
        let stored = self.step(after).into_iter().filter_map(|action| match action {
            Action::Store { key, open } => Some((key.to_string(), open)),
            _ => None,
        });
        let stored: Vec<_> = stored.collect();
        stored.iter().for_each(|(key, _)| self.dispatcher.stored(key, ms(after).0));
        stored
    }

    /// Takes the steps that are due, and stores the records. Returns which worker gets which run.
    fn assigns(&mut self, after: u64) -> Vec<(String, String)> {
        let of_worker = |(key, open): (String, OpenRun)| Some((key, open.to?.worker.to_string()));
        self.stores(after).into_iter().filter_map(of_worker).collect()
    }

    /// Takes the steps that are due. Returns which assignments are to be voided.
    fn voids(&mut self, after: u64) -> Vec<(String, u64)> {
        let voids = self.step(after).into_iter().filter_map(|action| match action {
            Action::Void { key, id } => Some((key.to_string(), id.seq)),
            _ => None,
        });
        voids.collect()
    }

    /// Notes that nodes answer a request to void an assignment.
    fn voided(&mut self, (key, seq): (&str, u64), done: usize, too_late: usize, after: u64) {
        let answers = registered(done, too_late, 0);
        self.dispatcher.voided(&key.into(), id(seq), answers, ms(after).0);
    }

    /// Looks for the ends, and finds `end` of the assignment.
    fn finds(&mut self, (key, seq): (&str, u64), end: Option<WorkEnd>, after: u64) {
        let looks = self.dispatcher.looks(ms(after));
        assert!(looks.contains(&(key.into(), id(seq))), "{looks:?}");
        let mut out = Vec::new();
        self.dispatcher.looked(&key.into(), id(seq), Some(end), ms(after), &mut out);
        self.note(out);
    }

    /// Sees that a session is free, and makes sure that it has ended.
    fn loses(&mut self, session: &str) {
        self.sees(session, Seen::Free);
        assert_eq!(self.fenced.pop().as_deref(), Some(session));
        self.dispatcher.fenced(&session.into(), true);
    }

    /// Returns the runs in the stored row of a session.
    fn row(&self, session: &str) -> Vec<&str> {
        let row = self.rows.get(&format!("work/{session}"));
        row.map(|row| row.runs.keys().map(|key| &**key).collect()).unwrap_or_default()
    }

    fn only_end(&self) -> (RunOutcome, &str) {
        let [(_, end, result)] = &self.ended[..] else { panic!("{:?}", self.ended) };
        (*end, &result.reason)
    }
}

fn id(seq: u64) -> AssignmentId {
    to("", seq).id()
}

fn pair(key: &str, worker: &str) -> (String, String) {
    (key.to_owned(), worker.to_owned())
}

/// Returns a run that the worker of a session has as the assignment `seq`.
fn assigned(session: &str, seq: u64, delivery: Delivery) -> OpenRun {
    OpenRun { to: Some(to(session, seq)), ..open(delivery) }
}

#[test]
fn runs_go_to_workers_with_room_in_turn_and_the_rest_waits() {
    let mut leader = Leader::with(&[("a", 2), ("b", 1)]);
    for key in ["r1", "r2", "r3", "r4"] {
        leader.opens(key, "j", open(AtMostOnce));
    }
    let given = leader.assigns(0);
    assert_eq!(given, [pair("r1", "a"), pair("r2", "b"), pair("r3", "a")]);
    assert_eq!((leader.row("a"), leader.row("b")), (vec!["r1", "r3"], vec!["r2"]));
    assert_eq!(leader.assigns(1), []);
    leader.finds(("r2", 2), Some(done()), DUE);
    assert_eq!(leader.only_end(), (RunOutcome::Done, "a reason"));
    assert_eq!(leader.assigns(DUE), [pair("r4", "b")]);
    assert_eq!(leader.row("b"), ["r4"]);
}

#[test]
fn an_assignment_has_a_number_of_its_own_and_a_growing_token() {
    let mut leader = Leader::with(&[("a", 9)]);
    let late = FencingToken::new(wall(TAKE_BY).as_micros());
    leader.opens("r1", "j", open(AtLeastOnce));
    leader.opens("r2", "j", OpenRun { token: late, ..open(AtLeastOnce) });
    let stored = leader.stores(0);
    let ids: Vec<_> = stored.iter().map(|(_, open)| open.to.as_ref().unwrap().id()).collect();
    assert_eq!(ids, [id(1), id(2)]);
    let tokens: Vec<u64> = stored.iter().map(|(_, open)| open.token.get()).collect();
    assert_eq!(tokens, [wall(0).as_micros(), late.get() + 1]);
    leader.finds(("r1", 1), Some(WorkEnd::Done(result(None))), DUE);
    let [(key, again)] = &leader.stores(DUE)[..] else { panic!() };
    assert!((&**key, again.generation) == ("r1", 2) && again.token.get() > tokens[0]);
    assert_eq!(again.to.as_ref().map(AssignedTo::id), Some(id(3)));
}

#[test]
fn the_runs_of_jobs_with_a_higher_priority_and_then_the_earlier_ones_get_a_worker_first() {
    let mut leader = Leader::with(&[]);
    let urgent = || Arc::new(Job::clone(&job("j")).priority(5));
    let due = |after| OpenRun { not_before: wall(after), ..open(AtMostOnce) };
    for (key, job, due) in [
        ("late", job("j"), due(DUE + 1)),
        ("early", job("j"), due(DUE)),
        ("urgent-late", urgent(), due(DUE + 9)),
        ("urgent", urgent(), due(DUE + 8)),
    ] {
        leader.dispatcher.add(&key.into(), (job, due), true, false, ms(0).0);
    }
    leader.joins("a", 3);
    let keys: Vec<String> = leader.assigns(DUE + 10).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["urgent", "urgent-late", "early"]);
}

/// Tests that a worker whose room is taken by a run of the future still gets the runs that are due before.
#[test]
fn a_run_that_is_due_does_not_wait_for_one_that_is_due_later() {
    let mut leader = Leader::with(&[("a", 1)]);
    leader.opens(
        "later",
        "j",
        OpenRun { not_before: wall(30_000), take_by: wall(40_000), ..open(AtMostOnce) },
    );
    assert_eq!(leader.assigns(0), [pair("later", "a")]);
    leader.opens("now", "other", OpenRun { not_before: wall(1_000), ..open(AtMostOnce) });
    let mut given = leader.assigns(1_000);
    for (key, seq) in leader.voids(2_001) {
        leader.voided((&key, seq), 2, 0, 2_001);
    }
    given.extend(leader.assigns(2_001));
    assert!(given.contains(&pair("now", "a")), "the worker does nothing, and the run waits: {given:?}");
}

#[test]
fn a_run_that_its_worker_does_not_start_in_time_goes_to_another() {
    for delivery in [AtMostOnce, AtLeastOnce] {
        let mut leader = Leader::with(&[("a", 9), ("b", 9)]);
        leader.opens("r", "j", open(delivery));
        assert_eq!(leader.assigns(0), [pair("r", "a")]);
        assert_eq!(leader.voids(LATE - 1), []);
        assert_eq!(leader.voids(LATE), [("r".to_owned(), 1)]);
        leader.voided(("r", 1), 1, 0, LATE);
        assert_eq!(leader.assigns(LATE + 1), [], "a minority has voided it");
        assert_eq!(leader.voids(LATE + 200), [("r".to_owned(), 1)]);
        leader.voided(("r", 1), 2, 0, LATE + 200);
        assert_eq!(leader.assigns(LATE + 200), [pair("r", "b")]);
        assert_eq!((leader.row("a").len(), leader.row("b")), (0, vec!["r"]));
        leader.opens("next", "j", open(delivery));
        assert_eq!(leader.assigns(LATE + 200), [pair("next", "b")], "a is doubted, although it has no run");
    }
}

#[test]
fn a_void_that_a_started_register_refuses_lets_the_run_go_on() {
    let mut leader = Leader::with(&[("a", 9), ("b", 9)]);
    leader.opens("r", "j", open(AtMostOnce));
    assert_eq!(leader.assigns(0).len(), 1);
    assert_eq!(leader.voids(LATE).len(), 1);
    leader.voided(("r", 1), 1, 1, LATE);
    assert_eq!(leader.step(TAKE_BY + 9_000), []);
    assert_eq!(leader.row("a"), ["r"]);
    leader.finds(("r", 1), Some(done()), TAKE_BY + 9_000);
    assert_eq!(leader.only_end(), (RunOutcome::Done, "a reason"));
    leader.step(TAKE_BY + 9_000);
    assert!(leader.dispatcher.is_idle() && leader.row("a").is_empty());
}

#[test]
fn a_worker_that_refuses_a_run_does_not_get_it_again_before_others() {
    for (lacks_job, next) in [(true, "b"), (false, "b")] {
        let mut leader = Leader::with(&[("a", 9), ("b", 9)]);
        leader.opens("r", "j", open(AtMostOnce));
        assert_eq!(leader.assigns(0), [pair("r", "a")]);
        leader.finds(("r", 1), Some(not_started(lacks_job)), DUE);
        assert_eq!(leader.assigns(DUE), [pair("r", next)]);
        leader.finds(("r", 2), Some(not_started(true)), DUE);
        let again = leader.assigns(DUE);
        let expected = if lacks_job { vec![] } else { vec![pair("r", "a")] };
        assert_eq!(again, expected, "b lacks the job, and a lacks it: {lacks_job}");
    }
}

/// Tests that only a worker that was late is doubted.
#[test]
fn a_worker_whose_run_was_cancelled_or_withdrawn_is_not_doubted() {
    for cancelled in [true, false] {
        let mut leader = Leader::with(&[("a", 9), ("b", 9)]);
        leader.opens("r1", "j", open(AtMostOnce));
        leader.opens("r2", "j", open(AtMostOnce));
        assert_eq!(leader.assigns(0), [pair("r1", "a"), pair("r2", "b")]);
        match cancelled {
            true => leader.dispatcher.cancel("r1", &"on request".into()),
            false => leader.dispatcher.withdraw("r1", RunOutcome::SkippedPaused, &"paused".into()),
        }
        leader.stores(1);
        leader.step(2);
        leader.voided(("r1", 1), 2, 0, 2);
        leader.step(2);
        assert_eq!(leader.ended.len(), 1);
        leader.opens("r3", "j", open(AtMostOnce));
        assert_eq!(leader.assigns(3), [pair("r3", "a")], "cancelled: {cancelled}");
    }
}

#[test]
fn a_cancelled_run_is_recorded_then_voided_then_ended() {
    let mut leader = Leader::with(&[("a", 9)]);
    leader.opens("r", "j", open(AtLeastOnce));
    assert_eq!(leader.assigns(0).len(), 1);
    leader.dispatcher.cancel("r", &"on request".into());
    let [Action::Store { open, .. }] = &leader.step(1)[..] else { panic!("first the record") };
    assert_eq!((open.cancel.as_deref(), &open.to), (Some("on request"), &Some(to("a", 1))));
    let run = &leader.rows["work/a"].runs["r"];
    assert_eq!(*run, WorkRun::new(id(1), Some("on request".into())), "the worker finds it in its row");
    leader.dispatcher.stored("r", ms(2).0);
    assert_eq!(leader.voids(2), [("r".to_owned(), 1)]);
    leader.voided(("r", 1), 2, 0, 3);
    leader.step(3);
    assert_eq!(leader.only_end(), (RunOutcome::Cancelled, "on request"));
    assert!(leader.dispatcher.is_idle() && leader.row("a").is_empty());
}

/// Tests that the record of a waiting run, which is stored late, is not taken for the record of its assignment, nor that
/// of an assignment for the one that says that the run is cancelled.
#[test]
fn a_record_that_is_stored_late_is_not_taken_for_a_later_one() {
    let mut leader = Leader::with(&[]);
    leader.opens("r", "j", open(AtMostOnce));
    assert!(matches!(&leader.step(DUE)[..], [Action::Store { open, .. }] if open.to.is_none()));
    leader.joins("a", 9);
    assert!(matches!(&leader.step(DUE)[..], [Action::Store { open, .. }] if open.to.is_some()));
    leader.dispatcher.cancel("r", &"on request".into());
    leader.dispatcher.stored("r", ms(DUE).0);
    leader.step(DUE);
    leader.dispatcher.stored("r", ms(DUE).0);
    assert_eq!(leader.voids(DUE), [], "the record that says that the run is cancelled is not stored yet");
}

#[test]
fn a_withdrawn_run_is_voided_and_ends_as_its_owner_wants() {
    let mut leader = Leader::with(&[("a", 9)]);
    leader.opens("r", "j", open(AtLeastOnce));
    assert_eq!(leader.assigns(0).len(), 1);
    leader.dispatcher.withdraw("r", RunOutcome::SkippedPaused, &"paused".into());
    assert_eq!(leader.voids(1), [("r".to_owned(), 1)]);
    leader.voided(("r", 1), 2, 0, 1);
    assert_eq!(leader.assigns(1), []);
    assert_eq!(leader.only_end(), (RunOutcome::SkippedPaused, "paused"));
}

#[test]
fn an_interrupted_run_gets_the_next_generation_with_a_larger_token() {
    let mut leader = Leader::with(&[("a", 9), ("b", 9)]);
    leader.opens("r", "j", open(AtLeastOnce));
    let first = leader.stores(0).remove(0).1;
    leader.finds(("r", 1), Some(WorkEnd::Done(result(None))), DUE);
    let actions = leader.step(DUE);
    assert!(matches!(&actions[0], Action::Reopen { generation: 2, .. }), "{actions:?}");
    let Some(Action::Store { open: next, .. }) = actions.get(1) else { panic!("{actions:?}") };
    assert_eq!((next.generation, next.to.clone()), (2, Some(to("b", 2))), "another worker comes first");
    assert!(next.token > first.token && leader.ended.is_empty());
    assert_eq!((leader.row("a").len(), leader.row("b")), (0, vec!["r"]));
}

#[test]
fn a_run_whose_session_has_ended_is_lost_or_repeated() {
    for delivery in [AtMostOnce, AtLeastOnce] {
        let mut leader = Leader::with(&[("a", 9)]);
        leader.opens("r", "j", open(delivery));
        assert_eq!(leader.assigns(0).len(), 1);
        leader.sees("a", Seen::Free);
        leader.sees("a", Seen::Free);
        assert_eq!(leader.fenced, ["a"], "once");
        assert_eq!(leader.step(DUE), [], "the session may still be held");
        leader.dispatcher.fenced(&"a".into(), false);
        assert_eq!(leader.step(DUE), []);
        leader.fenced.clear();
        leader.loses("a");
        assert_eq!(leader.voids(DUE), [("r".to_owned(), 1)]);
        leader.finds(("r", 1), None, DUE);
        assert_eq!((leader.step(DUE), leader.ended.len()), (vec![], 0), "the void has no answer yet");
        leader.voided(("r", 1), 1, 1, DUE);
        leader.joins("b", 9);
        let given = leader.stores(DUE);
        match delivery {
            AtMostOnce => {
                assert_eq!(leader.only_end().0, RunOutcome::Lost);
                assert_eq!(given, []);
            }
            AtLeastOnce => {
                let [(_, next)] = &given[..] else { panic!("{given:?}") };
                assert_eq!((next.generation, next.to.as_ref().map(|to| &*to.worker)), (2, Some("b")));
            }
        }
        assert_eq!(leader.row("a").len(), 0);
        assert!(!leader.rows.contains_key("work/a"), "its row is removed");
    }
}

#[test]
fn a_run_of_an_ended_session_that_has_not_started_goes_to_another_worker() {
    let mut leader = Leader::with(&[("a", 9), ("b", 9)]);
    leader.opens("r", "j", open(AtMostOnce));
    assert_eq!(leader.assigns(0), [pair("r", "a")]);
    leader.loses("a");
    assert_eq!(leader.voids(1), [("r".to_owned(), 1)]);
    leader.voided(("r", 1), 2, 0, 1);
    assert_eq!(leader.assigns(1), [pair("r", "b")]);
}

/// Tests that a session that ends while the record of its run is being stored does not leave the run without an end.
#[test]
fn a_run_whose_session_ends_while_its_record_is_stored_is_not_forgotten() {
    let mut leader = Leader::with(&[("a", 9)]);
    leader.opens("r", "j", open(AtMostOnce));
    assert_eq!(leader.step(0).len(), 1);
    // The worker finds the record on some nodes and starts the run. Then its session ends.
    leader.loses("a");
    leader.dispatcher.stored("r", ms(DUE).0);
    for after in [DUE, LATE, TAKE_BY, TAKE_BY + 60_000] {
        for (key, seq) in leader.voids(after) {
            leader.voided((&key, seq), 0, 3, after);
        }
        for (key, id) in leader.dispatcher.looks(ms(after)) {
            leader.dispatcher.looked(&key, id, Some(None), ms(after), &mut Vec::new());
        }
    }
    leader.step(TAKE_BY + 60_000);
    assert_eq!(leader.only_end().0, RunOutcome::Lost);
}

/// Tests that a session of which the leader had no run when the session seemed free is fenced before a run of it, which the
/// leader finds later, counts as over.
#[test]
fn a_session_that_seemed_free_is_fenced_before_its_runs_are_given_up() {
    let mut leader = Leader::with(&[("a", 9)]);
    leader.sees("a", Seen::Free);
    assert!(leader.fenced.is_empty(), "no run needs it");
    leader.opens("r", "j", assigned("a", 1, AtMostOnce));
    for (key, seq) in leader.voids(DUE) {
        leader.voided((&key, seq), 0, 3, DUE);
    }
    for (key, id) in leader.dispatcher.looks(ms(DUE)) {
        leader.dispatcher.looked(&key, id, Some(None), ms(DUE), &mut Vec::new());
    }
    leader.step(DUE);
    assert_eq!(leader.ended, [], "the worker may hold its session and execute the run");
}

#[test]
fn without_a_worker_the_record_says_that_a_due_run_waits_until_its_window_ends() {
    let mut leader = Leader::with(&[]);
    leader.opens("r", "j", open(AtMostOnce));
    assert_eq!(leader.step(DUE - 1), []);
    let stored = leader.stores(DUE);
    assert!(matches!(&stored[..], [(key, open)] if key == "r" && open.to.is_none()), "{stored:?}");
    assert_eq!(leader.step(DUE + 1), [], "once");
    assert_eq!((leader.step(TAKE_BY), leader.ended.len()), (vec![], 0));
    leader.step(TAKE_BY + 1);
    let (end, why) = leader.only_end();
    assert!(end == RunOutcome::SkippedMisfire && why.contains("misfire window"), "{why}");
    assert_eq!(&*leader.ended[0].2.worker, "leader");
}

#[test]
fn a_waiting_run_goes_to_the_first_worker_that_joins() {
    let mut leader = Leader::with(&[]);
    leader.opens("r", "j", open(AtMostOnce));
    assert_eq!(leader.stores(DUE).len(), 1);
    leader.dispatcher.announce(&"a".into(), who("a", 9));
    assert_eq!(leader.assigns(DUE + 1), [], "its session was not seen yet");
    assert_eq!(leader.dispatcher.sessions(), [Arc::<str>::from("a")]);
    leader.sees("a", Seen::Held);
    assert_eq!(leader.assigns(DUE + 2), [pair("r", "a")]);
}

#[test]
fn a_lost_run_of_an_unknown_job_waits_for_a_leader_with_the_job() {
    let mut leader = Leader::with(&[("b", 9)]);
    let run = assigned("a", 1, AtLeastOnce);
    leader.dispatcher.add(&"r".into(), (job("j"), run.clone()), false, true, ms(0).0);
    leader.sees("a", Seen::Held);
    leader.finds(("r", 1), Some(WorkEnd::Done(result(None))), DUE);
    assert_eq!((leader.step(DUE), leader.ended.len()), (vec![], 0));
    leader.dispatcher.leave("r");
    assert!(leader.dispatcher.is_idle());
    // The job comes to this leader, which finds the record as it was.
    leader.opens("r", "j", run);
    leader.finds(("r", 1), Some(WorkEnd::Done(result(None))), DUE);
    assert_eq!(leader.assigns(DUE), [pair("r", "b")]);
}

#[test]
fn a_run_whose_worker_has_no_row_is_put_into_one_when_its_session_is_seen() {
    for known in [false, true] {
        let mut leader = Leader::with(if known { &[("a", 9)] } else { &[] });
        leader.opens("r", "j", assigned("a", 7, AtMostOnce));
        leader.step(0);
        assert_eq!(leader.row("a").len(), usize::from(known));
        assert_eq!(leader.dispatcher.sessions(), [Arc::<str>::from("a")], "it must be inspected");
        leader.sees("a", Seen::Held);
        leader.step(0);
        assert_eq!(leader.row("a"), ["r"]);
        assert_eq!(leader.rows["work/a"].runs["r"].id(), id(7));
    }
}

#[test]
fn a_worker_that_is_known_only_from_a_run_gets_no_other_before_it_announces_itself() {
    let mut leader = Leader::with(&[]);
    leader.opens("r", "j", assigned("a", 7, AtMostOnce));
    leader.sees("a", Seen::Held);
    leader.opens("next", "j", open(AtMostOnce));
    assert_eq!(leader.assigns(0), []);
    leader.dispatcher.announce(&"a".into(), who("a", 2));
    assert_eq!(leader.assigns(0), [pair("next", "a")]);
    assert_eq!(leader.row("a"), ["next", "r"]);
}

#[test]
fn a_session_without_runs_that_has_ended_is_forgotten_without_a_fence() {
    let mut leader = Leader::with(&[("a", 9)]);
    leader.step(0);
    assert!(leader.rows.contains_key("work/a"));
    leader.sees("a", Seen::Free);
    leader.step(0);
    assert!(leader.rows.is_empty() && leader.fenced.is_empty() && leader.dispatcher.sessions().is_empty());
}

#[test]
fn the_leader_wakes_up_for_the_earliest_run() {
    let mut leader = Leader::with(&[("a", 9)]);
    assert_eq!(leader.dispatcher.wake(ms(0)), None);
    for (key, due) in [("r1", 8_000), ("r2", 4_000), ("r3", 6_000)] {
        leader.opens(key, "j", OpenRun { not_before: wall(due), ..open(AtMostOnce) });
    }
    assert_eq!(leader.assigns(0).len(), 3);
    let wake = leader.dispatcher.wake(ms(0)).unwrap();
    assert_eq!(wake, ms(4_050).0);
}
