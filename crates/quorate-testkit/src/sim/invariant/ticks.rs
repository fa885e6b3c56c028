//! The invariant of the ticks of the first group of the simulation, which runs its jobs on its leader.

mod reports;

use super::{Event, Invariant, MAJORITY, memories::Memories, parsed};
use crate::sim::{
    Excuse, RunOutcome, TickStart,
    scenario::true_wall,
    worker::{GROUP, JobSpec, specs},
};
use quorate::{
    env::WallTime,
    internals::{JobRow, RunKey},
    node::{Record, Reply, Request},
    scheduler::Delivery,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The largest error of a wall clock: the `max_clock_offset` that all workers agree on.
const OFFSET: Duration = Duration::from_secs(1);
/// The largest amount by which a worker's estimate of the servers' clocks may be ahead of these clocks. For up
/// to ten seconds without an answer, the worker estimates the servers' time with its own boot clock, whose rate
/// differs a little.
const CARRIED: Duration = Duration::from_millis(100);
/// The age from which a due tick must have started. A younger tick may still be in the future by the servers'
/// clocks, or may wait to start.
const YOUNG: Duration = Duration::from_secs(1);

/// Requires that the ticks of the first group start as their jobs' delivery rules say.
///
/// Under both delivery rules, a run starts under a valid term. The clocks of a majority of the servers decide
/// when it is due, whatever the worker's own wall clock shows. So it may start early, but by no more than
/// these clocks were ahead of the true time. Under `at_most_once`, a tick never starts before a majority stores
/// *started*. (The invariant *tick history* judges that it never starts twice.) Under `at_least_once`, a tick
/// does not start while a majority stores *done*. (The rule about *done* applies only to a worker whose clock
/// has not stood still since its term was last extended. Any other worker cannot know that the term has ended.)
/// If the servers'
/// answers to a leader's seal show that a tick has ended, the tick does not start under that leader's term.
///
/// Other requirements hold once there has been a leader in the fault-free phase for a while. Most of them
/// concern jobs whose misfire rule requires a catch-up run for every missed tick: every tick of an
/// `at_least_once` job since its registration has been started and has ended by itself. Every tick of an
/// `at_most_once` job since its registration has been started, or reported as lost. A job with any misfire
/// rule starts every tick of the fault-free phase.
///
/// A tick is reported as lost only under `at_most_once`, and only for a reason that is true:
///
/// * *too few nodes remember*: the servers that answered the reporting leader's seal and remember the time of
///   the tick are fewer than a majority of all servers. One server that forgot is not a sufficient reason if
///   a majority of the other servers answered.
/// * *too few nodes can remember a record*: fewer than a majority of all servers remember the time of the
///   tick.
/// * *it was started by*: a server received the record with which the named term started the tick.
/// * *another record stands*: a server received a record of another term, or a record that ended the tick.
///
/// There are two exceptions. A server that forgot no longer counts for stored records. A registration may
/// begin again if none of the servers that answered the leader's seal stored it. In this case the ticks
/// before the new registration are not judged. (A pause between the last check and the start is not excused,
/// because this simulation has no such pause.)
#[derive(Debug)]
pub(super) struct Ticks {
    jobs: &'static [JobSpec],
    ticks: BTreeMap<RunKey, Tick>,
    runs: BTreeMap<u64, RunKey>,
    registrations: BTreeMap<Arc<str>, Registration>,
    memories: Memories,
    /// For each term, the data that each server had when it accepted the seal of this term.
    taken: BTreeMap<u64, BTreeMap<String, SealedData>>,
    /// The data in the last snapshot of each server.
    saved: BTreeMap<String, SealedData>,
    /// For each term, the answers to the seal on which its leader bases its decisions.
    sealed: BTreeMap<u64, Vec<SealedData>>,
    /// The number of ticks of `at_most_once` jobs that had to be started or reported as lost. `known` counts
    /// those that were started, and `lost` those that were reported as lost.
    known: u64,
    lost: u64,
    /// The number of reports with the reason *too few nodes remember* although a majority of all servers
    /// remembered the time of the tick. These reports are correct if some of these servers had not answered the
    /// leader's seal.
    unanswered: u64,
}

/// The data of one server when it accepted a seal.
#[derive(Clone, Debug, Default)]
struct SealedData {
    /// The time at which the server's memory began.
    memory: WallTime,
    /// The registrations that the server stores: for each job, the time from which its ticks are due.
    registered: BTreeMap<Arc<str>, WallTime>,
    /// The server's records of ticks: the term of each record, and whether the record closes the tick.
    records: BTreeMap<RunKey, (u64, bool)>,
}

/// The facts about one tick that the events so far have shown.
#[derive(Debug, Default)]
struct Tick {
    starts: u32,
    /// True once a run of the tick has ended by itself.
    ended: bool,
    /// For each term, the servers that ever received the record with which this term started the tick.
    started_on: BTreeMap<u64, BTreeSet<String>>,
    /// The record that each server stores: its term, and whether it closes the tick.
    records: BTreeMap<String, (u64, bool)>,
    /// For each term, the servers that received the closed record of this term and have not lost it since.
    /// Once these servers are a majority, the end of the tick is final: before a later leader acts on the
    /// end, it writes the end under its own term.
    done_on: BTreeMap<u64, BTreeSet<String>>,
    /// As `done_on`, and with the servers that have lost the record since.
    was_done_on: BTreeMap<u64, BTreeSet<String>>,
    /// True once any server has received a closed record of the tick.
    closed: bool,
    /// True once a leader has reported, for a true reason, that it will not start the tick.
    lost: bool,
}

/// A job's registration: the time from which its ticks are due, according to the servers' records.
#[derive(Debug, Default)]
struct Registration {
    stands: BTreeMap<WallTime, BTreeSet<String>>,
    since: Option<WallTime>,
    /// The earliest time from which ticks of the job were due.
    first: Option<WallTime>,
    /// The newest term that wrote the job's registration.
    term: u64,
    /// Ticks before this time are not judged, because a majority of the servers lost the registration. The
    /// later registration begins at this time.
    lost_until: WallTime,
}

impl Default for Ticks {
    fn default() -> Self {
        Self {
            jobs: specs(),
            ticks: BTreeMap::new(),
            runs: BTreeMap::new(),
            registrations: BTreeMap::new(),
            memories: Memories::default(),
            taken: BTreeMap::new(),
            saved: BTreeMap::new(),
            sealed: BTreeMap::new(),
            known: 0,
            lost: 0,
            unanswered: 0,
        }
    }
}

impl Invariant for Ticks {
    fn name(&self) -> &'static str {
        "ticks"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("at-most-once tick reckoned", self.known),
            ("at-most-once tick lost", self.lost),
            ("tick unknown for want of an answer", self.unanswered),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.memories.see(true_wall(now), event);
        match event {
            Event::Forgot { node } => {
                self.forget(node);
                Ok(())
            }
            Event::Saved { node } => {
                self.saved.insert((*node).to_owned(), self.taken(node));
                Ok(())
            }
            Event::Restored { node } => {
                self.restore(node);
                Ok(())
            }
            Event::Ran {
                node,
                request: Request::Write { ledger, key, record, .. },
                reply: Reply::Written,
            } if **ledger == *GROUP => self.written(node, key, record),
            Event::Ran {
                node,
                request: Request::Seal { ledger, term, after: None },
                reply: Reply::Ledger(_),
            } if **ledger == *GROUP => {
                let taken = self.taken(node);
                self.taken.entry(term.get()).or_default().insert((*node).to_owned(), taken);
                Ok(())
            }
            Event::Sealed { term, nodes } => self.sealed(*term, nodes),
            Event::TickLost { job, tick, term, reason } => {
                self.lost(job, tick, *term, reason, true_wall(now))
            }
            Event::TickStarted(start) => self.started(start),
            Event::TickEnded { run, end } => {
                self.ended(*run, *end);
                Ok(())
            }
            Event::Reckoned { served_since, now } => self.check_due_ticks(*served_since, *now),
            _ => Ok(()),
        }
    }
}

impl Ticks {
    fn forget(&mut self, node: &str) {
        for tick in self.ticks.values_mut() {
            tick.records.remove(node);
            for on in tick.done_on.values_mut() {
                on.remove(node);
            }
        }
        for registration in self.registrations.values_mut() {
            for on in registration.stands.values_mut() {
                on.remove(node);
            }
        }
    }

    /// Gives a server that has forgotten everything the data of its last snapshot again. The ends of ticks in
    /// the snapshot do not count as final, because other servers may have forgotten newer records since.
    fn restore(&mut self, node: &str) {
        let Some(saved) = self.saved.get(node) else { return };
        for (key, record) in &saved.records {
            self.ticks.entry(key.clone()).or_default().records.insert(node.to_owned(), *record);
        }
        for (job, since) in &saved.registered {
            let registration = self.registrations.entry(Arc::clone(job)).or_default();
            registration.stands.entry(*since).or_default().insert(node.to_owned());
        }
    }

    /// Returns the data that a server has now.
    fn taken(&self, node: &str) -> SealedData {
        let registered = self.registrations.iter().filter_map(|(job, registration)| {
            let since = registration.stands.iter().find(|(_, on)| on.contains(node))?.0;
            Some((Arc::clone(job), *since))
        });
        let records =
            self.ticks.iter().filter_map(|(key, tick)| Some((key.clone(), *tick.records.get(node)?)));
        SealedData {
            memory: self.memories.began(node).unwrap_or_default(),
            registered: registered.collect(),
            records: records.collect(),
        }
    }

    /// Checks the servers whose answers a leader says it used. They must be a majority, and each of them must
    /// have accepted the leader's seal.
    fn sealed(&mut self, term: u64, nodes: &[&str]) -> Result<(), String> {
        let taken = self.taken.get(&term);
        let answer = |node: &&str| taken.and_then(|taken| taken.get(*node)).cloned();
        let Some(answers) = nodes.iter().map(answer).collect::<Option<Vec<_>>>() else {
            return Err(format!("the term {term} goes by {nodes:?}, of which some never took its seal"));
        };
        if BTreeSet::from_iter(nodes).len() < MAJORITY {
            return Err(format!("the term {term} goes by {nodes:?}, which are no majority"));
        }
        self.sealed.insert(term, answers);
        Ok(())
    }

    fn written(&mut self, node: &str, key: &str, record: &Record) -> Result<(), String> {
        if let Some(job) = key.strip_prefix("job/") {
            let since =
                JobRow::parse(&record.value).map_err(|error| format!("{key} is spoilt: {error}"))?.since;
            let answers = self.sealed.get(&record.term.get()).map(Vec::as_slice).unwrap_or_default();
            let found: BTreeSet<WallTime> =
                answers.iter().filter_map(|answer| answer.registered.get(job).copied()).collect();
            if found.first().is_some_and(|first| *first < since) && !found.contains(&since) {
                return Err(format!(
                    "{job} is registered again under {}, whose leader found its registration when it sealed",
                    record.term.get()
                ));
            }
            let registration = self.registrations.entry(job.into()).or_default();
            return registration
                .written(node, record.term.get(), since)
                .map_err(|why| format!("{job} {why}"));
        }
        let key = RunKey::parse(key).map_err(|error| error.to_string())?;
        let Some(key) = key else { return Ok(()) };
        let tick = self.ticks.entry(key).or_default();
        let written = parsed::run_record(&record.value);
        let is_closed = written.as_ref().as_ref().map_err(Clone::clone)?.is_closed();
        tick.records.insert(node.to_owned(), (record.term.get(), is_closed));
        if is_closed {
            tick.done_on.entry(record.term.get()).or_default().insert(node.to_owned());
            tick.was_done_on.entry(record.term.get()).or_default().insert(node.to_owned());
            tick.closed = true;
        } else {
            tick.started_on.entry(record.term.get()).or_default().insert(node.to_owned());
        }
        Ok(())
    }

    fn started(&mut self, start: &TickStart) -> Result<(), String> {
        let TickStart { worker, job, at, token, .. } = start;
        let spec = self.jobs.iter().find(|spec| *spec.name == **job);
        let delivery = spec.ok_or_else(|| format!("there is no job {job}"))?.delivery;
        let key = RunKey::new(job, *at);
        let tick = self.ticks.entry(key.clone()).or_default();
        tick.starts += 1;
        let started_on = tick.started_on.get(token).map_or(0, BTreeSet::len);
        let answers = self.sealed.get(token).map(Vec::as_slice).unwrap_or_default();
        let most =
            |on: &BTreeMap<u64, BTreeSet<String>>| on.values().map(BTreeSet::len).max().unwrap_or_default();
        let (done_on, was_done_on) = (most(&tick.done_on), most(&tick.was_done_on));
        // Of the records that the leader received, the one of the highest term decides.
        let decides = answers.iter().filter_map(|answer| answer.records.get(&key)).max();
        let ended = decides.is_some_and(|(_, closed)| *closed);
        self.runs.insert(start.run, key);
        let wrong = if !start.valid {
            "though its term is over".to_owned()
        } else if start.true_wall + CARRIED < *at
            && !Excuse::TicksAhead.excuses(*at <= start.true_wall + start.ahead + CARRIED)
        {
            format!("in truth at {:?}, with servers' clocks {:?} ahead at most", start.true_wall, start.ahead)
        } else if delivery == Delivery::AtMostOnce && started_on < MAJORITY {
            format!("with its start on {started_on} servers")
        } else if done_on >= MAJORITY && !Excuse::TicksClock.excuses(start.clock_stood) {
            format!("though it is done on {done_on} servers")
        } else if ended {
            "though the servers reported to its leader, when it sealed, that it has ended".to_owned()
        } else {
            Excuse::TicksForgotten.excuses(done_on < MAJORITY && was_done_on >= MAJORITY);
            return Ok(());
        };
        Err(format!("{worker} starts {job}, due at {at:?}, under {token}, {wrong}"))
    }

    fn ended(&mut self, run: u64, end: RunOutcome) {
        let Some(key) = self.runs.remove(&run) else { return };
        self.ticks.entry(key).or_default().ended |= end == RunOutcome::Itself;
    }

    /// Checks every tick that is due by `now`.
    fn check_due_ticks(&mut self, served_since: WallTime, now: WallTime) -> Result<(), String> {
        let until = now - YOUNG;
        let (mut known, mut lost) = (0, 0);
        for spec in self.jobs {
            let registration = self.registrations.get(spec.name);
            let since = registration.and_then(|known| known.since.map(|since| since.max(known.lost_until)));
            let since = since.ok_or_else(|| format!("{} was never registered", spec.name))?;
            let fault_free = served_since.max(since);
            self.count_unjudged(spec, fault_free);
            let from = if spec.makes_up_all() { since } else { fault_free };
            let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= until);
            for at in std::iter::successors(after(&from), after) {
                let key = RunKey::new(spec.name, at);
                if spec.delivery == Delivery::AtMostOnce && spec.makes_up_all() {
                    let is_lost = self.ticks.get(&key).is_some_and(|tick| tick.lost);
                    *if is_lost { &mut lost } else { &mut known } += 1;
                }
                if let Some(why) = self.missing(spec, &key, at > fault_free) {
                    return Err(format!("{}, due at {at:?}, {why}", spec.name));
                }
            }
        }
        (self.known, self.lost) = (self.known + known, self.lost + lost);
        Ok(())
    }

    /// Counts the due ticks that are not judged, and have not started.
    fn count_unjudged(&self, spec: &JobSpec, fault_free: WallTime) {
        let registration = self.registrations.get(spec.name);
        let Some((first, lost_until)) = registration.and_then(|known| Some((known.first?, known.lost_until)))
        else {
            return;
        };
        let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= fault_free);
        for at in std::iter::successors(after(&first), after) {
            let started = self.ticks.get(&RunKey::new(spec.name, at)).is_some_and(|tick| tick.starts > 0);
            let is_lost = !started && at <= lost_until;
            if !Excuse::TicksRegistration.excuses(is_lost) {
                Excuse::TicksMisfire.excuses(!started && !spec.makes_up_all());
            }
        }
    }

    /// Returns the requirement that a due tick does not meet, or `None` if the tick meets all requirements.
    /// `fault_free` is true if the tick was due in the fault-free phase.
    fn missing(&self, spec: &JobSpec, key: &RunKey, fault_free: bool) -> Option<&'static str> {
        let nothing = Tick::default();
        let tick = self.ticks.get(key).unwrap_or(&nothing);
        match spec.delivery {
            _ if fault_free => (tick.starts == 0).then_some("was not started in the fault-free phase"),
            Delivery::AtLeastOnce if tick.starts == 0 => Some("was never started"),
            Delivery::AtLeastOnce => (!tick.ended).then_some("was started and never ended"),
            Delivery::AtMostOnce => (tick.starts == 0 && !Excuse::TicksLost.excuses(tick.lost))
                .then_some("was neither started nor reported as lost"),
        }
    }
}

impl Registration {
    fn written(&mut self, node: &str, term: u64, since: WallTime) -> Result<(), String> {
        // A leader may write a registration with a later time. When it then finds an earlier registration, it
        // writes the earlier time. The first of these writes may reach a server last. Therefore only a write
        // of a later term counts as a new registration.
        let later = term > self.term;
        if self.since == Some(since) {
            self.term = self.term.max(term);
        }
        let stood =
            self.since.filter(|stood| later && *stood < since).and_then(|stood| self.stands.get(&stood));
        if let Some(on) = stood.filter(|on| on.len() >= MAJORITY) {
            return Err(format!(
                "is registered again, though its registration is stored on {} servers",
                on.len()
            ));
        }
        for on in self.stands.values_mut() {
            on.remove(node);
        }
        // A leader that registers the job with a later time has found no registration when it sealed. The
        // ticks between the two times are not judged.
        if later && self.since.is_some_and(|known| known < since) {
            self.lost_until = self.lost_until.max(since);
        }
        let on = self.stands.entry(since).or_default();
        on.insert(node.to_owned());
        if on.len() >= MAJORITY {
            self.term = self.term.max(term);
            self.since = Some(since);
            self.first = self.first.min(Some(since)).or(Some(since));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
