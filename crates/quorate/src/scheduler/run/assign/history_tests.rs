//! Random histories of leaders, workers and nodes. The nodes' registers are the shipped ones.

use super::{
    super::{
        sample_nodes::{Copy, Dice, Stored},
        samples::{NODES, job, ms, open, result, wall, who},
    },
    *,
};
use crate::{
    node::{
        Incarnation, Reply,
        copy::{Entry, Header, Stamp},
    },
    scheduler::{policy::Delivery, store::WorkRun},
};
use std::time::Duration;

const RUNS: usize = 5;
const TTL: Duration = Duration::from_secs(2);
/// A worker gives a run back whose start no majority registers within this time, in milliseconds.
const GIVE_BACK_AFTER: u64 = 2_000;

/// A request to all nodes, of which some have not carried it out yet.
struct Call {
    act: Act,
    pending: Vec<usize>,
    replies: Vec<Reply>,
}

enum Act {
    Write { key: Arc<str>, stamp: Stamp, open: OpenRun, acknowledged: bool },
    Void { key: Arc<str>, id: AssignmentId },
    Look { key: Arc<str>, id: AssignmentId, answers: usize, end: Option<WorkEnd> },
    Start { worker: usize, key: Arc<str>, id: AssignmentId, open: OpenRun },
    End { worker: usize, key: Arc<str>, id: AssignmentId, end: WorkEnd },
}

impl Act {
    fn is_of_leader(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Void { .. } | Self::Look { .. })
    }
}

/// A worker with one session, which has a name of its own.
struct Worker {
    name: Arc<str>,
    has_session: bool,
    has_job: bool,
    /// The assignments that the worker has begun, with `None` for one that it is done with.
    works: BTreeMap<(Arc<str>, AssignmentId), Option<Work>>,
    /// The times of the first attempts to start assignments.
    tried: BTreeMap<AssignmentId, u64>,
}

#[derive(PartialEq)]
enum Work {
    Asking,
    Executing,
}

/// The history of a run, of which the leader knows only what the nodes have.
struct Run {
    delivery: Delivery,
    /// The run as the leader plans it, without a record.
    planned: OpenRun,
    /// The generation, the assignment and the token of each start of a handler.
    starts: Vec<(u32, AssignmentId, FencingToken)>,
    executing: bool,
    done: bool,
    voided: BTreeSet<AssignmentId>,
    end: Option<RunOutcome>,
}

struct World {
    seed: u64,
    dice: Dice,
    now: u64,
    copies: Vec<Copy>,
    term: u64,
    writes: u64,
    dispatcher: Dispatcher,
    /// The last write of each run by the leader, acknowledged or not.
    map: BTreeMap<Arc<str>, (Stamp, OpenRun)>,
    to_add: Vec<Arc<str>>,
    fences: Vec<Arc<str>>,
    calls: Vec<Call>,
    workers: Vec<Worker>,
    runs: BTreeMap<Arc<str>, Run>,
    has_faults: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let header = Header::empty(Incarnation::default());
        let copies = (0..NODES).map(|_| Copy { header, runs: BTreeMap::new() }).collect();
        let runs = (0..RUNS).map(|number| {
            let delivery = [Delivery::AtMostOnce, Delivery::AtLeastOnce][number % 2];
            let due = dice.roll(6_000) as u64;
            let take_by = due + [1_500, 60_000][dice.roll(2)];
            let planned = OpenRun { not_before: wall(due), take_by: wall(take_by), ..open(delivery) };
            let (starts, voided) = (Vec::new(), BTreeSet::new());
            let run = Run { delivery, planned, starts, executing: false, done: false, voided, end: None };
            (Arc::from(format!("r{number}")), run)
        });
        let runs = runs.collect();
        let mut world = Self {
            seed,
            dice,
            now: 0,
            copies,
            term: 2,
            writes: 0,
            dispatcher: leader(2, Vec::new()),
            map: BTreeMap::new(),
            to_add: Vec::new(),
            fences: Vec::new(),
            calls: Vec::new(),
            workers: Vec::new(),
            runs,
            has_faults: true,
        };
        world.elect();
        world
    }

    /// Elects the next leader, which adopts the records of a majority.
    fn elect(&mut self) {
        self.term += 1;
        self.calls.retain(|call| !call.act.is_of_leader());
        (self.fences, self.map) = (Vec::new(), BTreeMap::new());
        let unread = self.dice.roll(NODES);
        let read = self.copies.iter().enumerate().filter(|(node, _)| *node != unread);
        let mut adopted: BTreeMap<Arc<str>, Stored> = BTreeMap::new();
        for (key, stored) in read.flat_map(|(_, copy)| copy.runs.clone()) {
            if adopted.get(&key).is_none_or(|other| other.entry.stamp < stored.entry.stamp) {
                adopted.insert(key, stored);
            }
        }
        let mut rows: BTreeMap<Arc<str>, WorkRow> = BTreeMap::new();
        for worker in &self.workers {
            if self.dice.roll(3) > 0 {
                let row = WorkRow { who: who(&worker.name, 3), runs: BTreeMap::new() };
                rows.insert(Arc::clone(&worker.name), row);
            }
        }
        for (key, Stored { open, .. }) in &adopted {
            let stamp = self.next_stamp();
            self.copies.iter_mut().for_each(|copy| copy.put(key, stamp, open.as_ref()));
            let Some(open) = open else { continue };
            self.map.insert(Arc::clone(key), (stamp, open.clone()));
            if let Some(to) = &open.to
                && let Some(row) = rows.get_mut(&to.session)
            {
                row.runs.insert(Arc::clone(key), WorkRun::new(to.id(), None));
            }
        }
        for copy in &mut self.copies {
            copy.runs.retain(|key, _| adopted.contains_key(key));
            copy.header.mark = Some(FencingToken::new(self.term));
        }
        self.dispatcher = leader(self.term, rows.into_iter().collect());
        self.to_add =
            self.runs.iter().filter(|(_, run)| run.end.is_none()).map(|(key, _)| Arc::clone(key)).collect();
    }

    fn next_stamp(&mut self) -> Stamp {
        self.writes += 1;
        Stamp { term: FencingToken::new(self.term), seq: self.writes }
    }

    /// Lets the leader take over or open one more run.
    fn add_one(&mut self) {
        if self.to_add.is_empty() {
            return;
        }
        let key = self.to_add.swap_remove(self.dice.roll(self.to_add.len()));
        let (open, stored) = match self.map.get(&key) {
            Some((_, open)) => (open.clone(), true),
            None => (self.runs[&key].planned.clone(), false),
        };
        self.dispatcher.add(&key, (job("j"), open), true, stored, ms(self.now).0);
    }

    fn dispatch(&mut self) {
        let mut out = Vec::new();
        self.dispatcher.step(ms(self.now), &mut out);
        self.carry_out(out);
        for (key, id) in self.dispatcher.looks(ms(self.now)) {
            self.call(Act::Look { key, id, answers: 0, end: None });
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Store { key, open } => {
                    let stamp = self.next_stamp();
                    self.map.insert(Arc::clone(&key), (stamp, open.clone()));
                    self.call(Act::Write { key, stamp, open, acknowledged: false });
                }
                Action::Void { key, id } => self.call(Act::Void { key, id }),
                Action::Fence { session } => self.fences.push(session),
                // The leader may end before it has closed the run.
                Action::End { .. } if self.has_faults && self.dice.one_in(8) => return self.elect(),
                Action::End { key, end, .. } => self.close(&key, end),
                Action::Row { .. } | Action::Reopen { .. } => {}
            }
        }
    }

    fn call(&mut self, act: Act) {
        self.calls.push(Call { act, pending: (0..NODES).collect(), replies: Vec::new() });
    }

    fn close(&mut self, key: &Arc<str>, end: RunOutcome) {
        let seed = self.seed;
        let run = self.runs.get_mut(key).unwrap();
        assert_eq!(run.end.replace(end), None, "seed {seed}: {key} ends twice");
        assert!(!run.executing, "seed {seed}: {key} ends as {end:?} while it is executed");
        assert!(end != RunOutcome::Done || run.done, "seed {seed}: {key} is not done");
        assert!(!end.is_skipped() || run.starts.is_empty(), "seed {seed}: {key} was started: {end:?}");
        let stamp = self.next_stamp();
        self.copies.iter_mut().for_each(|copy| copy.put(key, stamp, None));
        self.map.remove(key);
    }

    /// Delivers a request to one node. The reply may be lost.
    fn deliver(&mut self, at: usize) {
        let is_lost = self.has_faults && self.dice.one_in(8);
        let call = &mut self.calls[at];
        if !call.pending.is_empty() {
            let node = call.pending.swap_remove(self.dice.roll(call.pending.len()));
            let copy = &mut self.copies[node];
            let reply = match &mut call.act {
                Act::Write { key, stamp, open, .. } => {
                    copy.put(key, *stamp, Some(open));
                    Reply::Written
                }
                Act::Void { key, id } => copy.register(key, *id, Entry::void),
                Act::Start { key, id, .. } => copy.register(key, *id, Entry::start),
                Act::End { key, id, end, .. } => copy.end(key, *id, end),
                Act::Look { key, id, answers, end } => {
                    let stored = copy.runs.get(&*key).filter(|stored| stored.entry.assignment == Some(*id));
                    let found = stored.and_then(|stored| stored.end.clone());
                    if !is_lost {
                        *answers += 1;
                        *end = end.take().or(found);
                    }
                    Reply::Written
                }
            };
            match (&call.act, is_lost) {
                // The leader sends a write until all nodes have it.
                (Act::Write { .. }, true) => call.pending.push(node),
                (_, true) => {}
                (_, false) => call.replies.push(reply),
            }
        }
        self.conclude(at);
    }

    /// Passes the answers on if there are enough.
    fn conclude(&mut self, at: usize) {
        let call = &mut self.calls[at];
        let answers = Registered::counted(NODES, &call.replies);
        let is_over = answers.by_majority() || call.pending.is_empty();
        let (now, mut out) = (ms(self.now), Vec::new());
        match &mut call.act {
            Act::Write { key, acknowledged, .. } => {
                if answers.by_majority() && !std::mem::replace(acknowledged, true) {
                    self.dispatcher.stored(key, now.0);
                }
                if call.pending.is_empty() {
                    self.calls.swap_remove(at);
                }
            }
            Act::Look { key, id, answers, end } if *answers > NODES / 2 || call.pending.is_empty() => {
                let end = (*answers > NODES / 2).then(|| end.clone());
                self.dispatcher.looked(key, *id, end, now, &mut out);
                self.calls.swap_remove(at);
            }
            Act::Void { key, id } if is_over => {
                if answers.by_majority() {
                    self.runs.get_mut(key).unwrap().voided.insert(*id);
                }
                self.dispatcher.voided(key, *id, answers, now.0);
                self.calls.swap_remove(at);
            }
            Act::Start { .. } if is_over => {
                let Act::Start { worker, key, id, open } = self.calls.swap_remove(at).act else { return };
                self.tried(worker, key, id, open, answers);
            }
            Act::End { worker, key, id, .. } if is_over => {
                if answers.by_majority() || answers.is_over() || self.has_faults && self.dice.one_in(6) {
                    self.workers[*worker].works.insert((Arc::clone(key), *id), None);
                    self.calls.swap_remove(at);
                } else {
                    (call.pending, call.replies) = ((0..NODES).collect(), Vec::new());
                }
            }
            _ => {}
        }
        self.carry_out(out);
    }

    /// Handles the answers to a worker's start.
    fn tried(&mut self, at: usize, key: Arc<str>, id: AssignmentId, open: OpenRun, answers: Registered) {
        let worker = &mut self.workers[at];
        if !worker.has_session {
            return;
        }
        if answers.by_majority() {
            worker.works.insert((Arc::clone(&key), id), Some(Work::Executing));
            return self.begin(&key, id, &open);
        }
        let is_late = open.take_by < wall(self.now) || worker.tried[&id] + GIVE_BACK_AFTER < self.now;
        if answers.too_late > 0 || is_late {
            let end = WorkEnd::NotStarted { why: "late".into(), lacks_job: false };
            return self.call(Act::End { worker: at, key, id, end });
        }
        worker.works.remove(&(key, id));
    }

    /// Notes that the handler starts. Fails if it must not.
    fn begin(&mut self, key: &Arc<str>, id: AssignmentId, open: &OpenRun) {
        let seed = self.seed;
        let run = self.runs.get_mut(key).unwrap();
        let start = (open.generation, id, open.token);
        let before = &run.starts;
        let context = || format!("seed {seed}: {key} starts as {start:?} after {before:?}");
        assert!(!run.voided.contains(&id), "{}: a majority has voided it", context());
        assert_eq!(run.end, None, "{}: it has ended", context());
        assert!(!run.executing, "{}: it is being executed", context());
        assert!(run.delivery == Delivery::AtLeastOnce || before.is_empty(), "{}", context());
        assert!(before.iter().all(|(generation, ..)| *generation < open.generation), "{}", context());
        assert!(before.iter().all(|(.., token)| *token < open.token), "{}", context());
        run.starts.push(start);
        run.executing = true;
    }

    /// Lets a worker begin or end one of its runs, if there is one.
    fn work(&mut self, at: usize) {
        let worker = &self.workers[at];
        if !worker.has_session {
            return;
        }
        let executing = worker.works.iter().find(|(_, work)| **work == Some(Work::Executing));
        if let Some(((key, id), _)) = executing.filter(|_| self.dice.one_in(2)) {
            let (key, id) = (Arc::clone(key), *id);
            self.workers[at].works.insert((Arc::clone(&key), id), Some(Work::Asking));
            let run = self.runs.get_mut(&key).unwrap();
            run.executing = false;
            let end = (!self.has_faults || self.dice.roll(4) > 0).then_some(RunOutcome::Done);
            run.done |= end.is_some();
            return self.call(Act::End { worker: at, key, id, end: WorkEnd::Done(result(end)) });
        }
        let is_busy = |key: &Arc<str>| worker.works.iter().any(|((of, _), work)| of == key && work.is_some());
        let stored = self.copies.iter().flat_map(|copy| &copy.runs);
        let mut assigned = stored.filter_map(|(key, stored)| {
            let (open, id) = (stored.open.as_ref()?, stored.entry.assignment?);
            let is_mine = open.to.as_ref().is_some_and(|to| to.session == worker.name);
            let is_new = !worker.works.contains_key(&(Arc::clone(key), id)) && !is_busy(key);
            (is_mine && is_new && open.not_before <= wall(self.now))
                .then(|| (Arc::clone(key), id, open.clone()))
        });
        let Some((key, id, open)) = assigned.next_back() else { return };
        let lacks_job = !worker.has_job;
        let act = if lacks_job || open.cancel.is_some() {
            let end = WorkEnd::NotStarted { why: "not here".into(), lacks_job };
            Act::End { worker: at, key: Arc::clone(&key), id, end }
        } else {
            Act::Start { worker: at, key: Arc::clone(&key), id, open }
        };
        let worker = &mut self.workers[at];
        worker.works.insert((key, id), Some(Work::Asking));
        worker.tried.entry(id).or_insert(self.now);
        self.call(act);
    }

    fn join(&mut self, has_job: bool) {
        let name: Arc<str> = format!("w{}", self.workers.len()).into();
        let (works, tried) = (BTreeMap::new(), BTreeMap::new());
        self.workers.push(Worker { name, has_session: true, has_job, works, tried });
    }

    fn end_session(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        worker.has_session = false;
        for ((key, _), work) in std::mem::take(&mut worker.works) {
            if work == Some(Work::Executing) {
                self.runs.get_mut(&key).unwrap().executing = false;
            }
        }
    }

    /// Lets the leader learn of a worker, and see the state of a session.
    fn call_roll(&mut self, at: usize) {
        let Worker { name, has_session, .. } = &self.workers[at];
        let (name, has_session) = (Arc::clone(name), *has_session);
        self.dispatcher.announce(&name, who(&name, 3));
        let mut out = Vec::new();
        if self.dispatcher.sessions().contains(&name) {
            // A session may seem free although an extension of it is under way.
            let seems_free = !has_session || self.has_faults && self.dice.one_in(12);
            let seen = if seems_free { Seen::Free } else { Seen::Held };
            self.dispatcher.see(&name, seen, &mut out);
        }
        self.carry_out(out);
    }

    fn fence_one(&mut self) {
        if let Some(session) = self.fences.pop() {
            let ended = self.workers.iter().any(|worker| worker.name == session && !worker.has_session);
            self.dispatcher.fenced(&session, ended);
        }
    }

    /// Lets a node forget, and the leader copy everything to it.
    fn forget(&mut self, node: usize) {
        for call in self.calls.iter_mut().filter(|call| call.act.is_of_leader()) {
            let before = call.pending.len();
            call.pending.retain(|other| *other != node);
            if matches!(call.act, Act::Write { .. }) && call.pending.len() < before {
                call.replies.push(Reply::Written);
            }
        }
        let copy = &mut self.copies[node];
        let closed = copy.runs.clone().into_iter().filter(|(_, stored)| stored.open.is_none());
        (copy.header.mark, copy.runs) = (None, closed.collect());
        for (key, (stamp, open)) in &self.map {
            copy.put(key, *stamp, Some(open));
        }
        copy.header.mark = Some(FencingToken::new(self.term));
    }

    fn step(&mut self) {
        self.dispatch();
        let workers = self.workers.len();
        match self.dice.roll(60) {
            0 if self.term < 6 => self.elect(),
            1 if workers < 6 => {
                let has_job = self.dice.roll(4) > 0;
                self.join(has_job);
            }
            2 if workers > 0 && self.dice.one_in(2) => {
                let at = self.dice.roll(workers);
                self.end_session(at);
            }
            3 if self.forgets() => {
                let node = self.dice.roll(NODES);
                self.forget(node);
            }
            4 => {
                let key: Arc<str> = format!("r{}", self.dice.roll(RUNS)).into();
                match self.dice.roll(4) {
                    0 => self.dispatcher.cancel(&key, &"on request".into()),
                    1 => self.dispatcher.withdraw(&key, RunOutcome::SkippedPaused, &"paused".into()),
                    _ => {}
                }
            }
            5..=7 => self.add_one(),
            8..=12 if workers > 0 => {
                let at = self.dice.roll(workers);
                self.call_roll(at);
            }
            13..=14 => self.fence_one(),
            15..=24 if workers > 0 => {
                let at = self.dice.roll(workers);
                self.work(at);
            }
            25..=29 => self.now += self.dice.roll(500) as u64,
            _ if !self.calls.is_empty() => {
                let at = self.dice.roll(self.calls.len());
                self.deliver(at);
            }
            _ => {}
        }
    }

    fn forgets(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    /// Ends all faults. Every run must then end. If nodes have forgotten its registers or its end, this may take the end of
    /// the worker's session.
    fn settle(&mut self) {
        self.has_faults = false;
        self.join(true);
        for round in 0..6_000 {
            if self.runs.values().all(|run| run.end.is_some()) {
                return;
            }
            if round == 3_000 && self.forgets() {
                (0..self.workers.len()).for_each(|at| self.end_session(at));
                self.join(true);
            }
            self.add_one();
            self.dispatch();
            (0..self.workers.len()).for_each(|at| {
                self.call_roll(at);
                self.work(at);
            });
            self.fence_one();
            match self.calls.len() {
                0 => self.now += 250,
                calls => {
                    let at = self.dice.roll(calls);
                    self.deliver(at);
                    self.now += 5;
                }
            }
        }
        let left: Vec<_> = self.runs.iter().filter(|(_, run)| run.end.is_none()).collect();
        panic!("seed {}: {} runs do not end: {:#?}", self.seed, left.len(), self.dispatcher);
    }
}

fn leader(term: u64, rows: Vec<(Arc<str>, WorkRow)>) -> Dispatcher {
    Dispatcher::new(&"leader".into(), FencingToken::new(term), Roster::new(rows.into_iter(), TTL))
}

#[test]
fn no_history_starts_a_run_against_its_rules_and_every_run_ends() {
    let (mut starts, mut repeated, mut voided, mut terms) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed);
        (0..800).for_each(|_| world.step());
        world.settle();
        let runs = || world.runs.values();
        starts += runs().map(|run| run.starts.len()).sum::<usize>();
        repeated += runs().filter(|run| run.starts.len() > 1).count();
        voided += runs().map(|run| run.voided.len()).sum::<usize>();
        terms += world.term - 2;
    }
    // The histories must have what they are about.
    let counts = (starts, repeated, voided, terms);
    assert!(starts > 400 && repeated > 40 && voided > 400 && terms > 800, "{counts:?}");
}
