//! The invariant of the ticks of the first group of the simulation, which runs its jobs on its leader.

mod reports;

use super::{
    Event, Invariant, MAJORITY,
    closed_records::{ClosedRecords, CountedRecords},
    memories::Foundings,
    parsed,
};
use crate::sim::{
    Excuse, RunOutcome, Stored, TickStart,
    scenario::true_wall,
    worker::{GROUP, JobSpec, specs},
};
use quorate::{
    env::WallTime,
    internals::{JobRow, RunKey},
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
/// does not start while a majority stores *done*, on servers that are marked by the leader that wrote it. (The rule about *done* applies only to a worker whose clock
/// has not stood still since its term was last extended. Any other worker cannot know that the term has ended.)
///
/// Other requirements hold once there has been a leader in the fault-free phase for a while. Most of them
/// concern jobs whose misfire rule requires a catch-up run for every missed tick: every tick of an
/// `at_least_once` job since its registration has been started and has ended by itself. Every tick of an
/// `at_most_once` job since its registration has been started, or reported as lost. A job with any misfire
/// rule starts every tick of the fault-free phase.
///
/// A tick is reported as lost only under `at_most_once`, and only for a reason that is true:
///
/// * *a majority of the nodes has forgotten*: the ledger was founded since the tick.
/// * *it was started by*: a server received the record with which the named term started the tick.
///
/// There is one exception: a ledger that is founded may lack the records of the one before, and a leader may lack a row that
/// a majority stores and that was not counted, because a server of it was not marked. A registration may then begin again, and the ticks before the new registration are not judged. (A pause between the last check and the start is not
/// excused, because this simulation has no such pause.)
#[derive(Debug)]
pub(super) struct Ticks {
    jobs: &'static [JobSpec],
    ticks: BTreeMap<RunKey, Tick>,
    runs: BTreeMap<u64, RunKey>,
    registrations: BTreeMap<Arc<str>, Registration>,
    foundings: Foundings,
    closed: ClosedRecords,
    /// The rows of jobs, by job and `since`, and those that have counted. A later leader finds only these for certain.
    rows: CountedRecords<(Arc<str>, WallTime)>,
    counted: BTreeSet<(Arc<str>, WallTime)>,
    /// The number of ticks of `at_most_once` jobs that had to be started or reported as lost. `known` counts
    /// those that were started, and `lost` those that were reported as lost.
    known: u64,
    lost: u64,
}

/// The facts about one tick that the events so far have shown.
#[derive(Debug, Default)]
struct Tick {
    starts: u32,
    /// True once a run of the tick has ended by itself.
    ended: bool,
    /// For each term, the servers that ever received the record with which this term started the tick.
    started_on: BTreeMap<u64, BTreeSet<String>>,
    /// The true time at which closed records of one term counted.
    done_at: Option<WallTime>,
    /// True once a leader has reported, for a true reason, that it will not start the tick.
    lost: bool,
}

/// A job's registration: the time from which its ticks are due, according to the servers' records.
#[derive(Debug, Default)]
struct Registration {
    /// The servers that ever stored a row with this time.
    on: BTreeMap<WallTime, BTreeSet<String>>,
    /// The time that a majority has stored last, and the true time at which it had.
    since: Option<WallTime>,
    stored_at: WallTime,
    /// The earliest time from which ticks of the job were due.
    first: Option<WallTime>,
    /// Ticks before this time are not judged: the ledger was founded and lacked the registration. The later registration
    /// begins at this time.
    lost_until: WallTime,
}

impl Default for Ticks {
    fn default() -> Self {
        Self {
            jobs: specs(),
            ticks: BTreeMap::new(),
            runs: BTreeMap::new(),
            registrations: BTreeMap::new(),
            foundings: Foundings::default(),
            closed: ClosedRecords::default(),
            rows: CountedRecords::default(),
            counted: BTreeSet::new(),
            known: 0,
            lost: 0,
        }
    }
}

impl Invariant for Ticks {
    fn name(&self) -> &'static str {
        "ticks"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("at-most-once tick reckoned", self.known), ("at-most-once tick lost", self.lost)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        self.foundings.see(true_wall(now), GROUP, event);
        for key in self.closed.see(GROUP, event) {
            self.ticks.entry(key).or_default().done_at.get_or_insert(true_wall(now));
        }
        self.counted.extend(self.rows.see(GROUP, event));
        for stored in event.stored().into_iter().filter(|stored| stored.ledger == GROUP) {
            self.written(stored, true_wall(now))?;
        }
        match event {
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
    fn written(&mut self, stored: Stored<'_>, now: WallTime) -> Result<(), String> {
        let Stored { node, key, value, term, .. } = stored;
        if let Some(job) = key.strip_prefix("job/") {
            let since = JobRow::parse(value).map_err(|error| format!("{key} is spoilt: {error}"))?.since;
            let row = |since| (Arc::from(job), since);
            if self.rows.add(&row(since), term, node) {
                self.counted.insert(row(since));
            }
            let registration = self.registrations.entry(job.into()).or_default();
            let has_counted = registration.since.is_some_and(|known| self.counted.contains(&row(known)));
            let is_lost = !has_counted || self.foundings.any_since(registration.stored_at);
            return registration.written(node, since, now, is_lost).map_err(|why| format!("{job} {why}"));
        }
        let key = RunKey::parse(key).map_err(|error| error.to_string())?;
        let Some(key) = key else { return Ok(()) };
        let tick = self.ticks.entry(key.clone()).or_default();
        let written = parsed::run_record(value);
        let record = written.as_ref().as_ref().map_err(Clone::clone)?;
        if record.is_closed() {
            if self.closed.add(&key, term, node) {
                tick.done_at.get_or_insert(now);
            }
        } else if record.term().get() == term {
            // A later leader that copies the record does not start the tick.
            tick.started_on.entry(record.term().get()).or_default().insert(node.to_owned());
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
        let done_at = tick.done_at;
        let is_forgotten = || done_at.is_some_and(|done_at| self.foundings.any_since(done_at));
        self.runs.insert(start.run, key);
        let wrong = if !start.valid {
            "though its term is over".to_owned()
        } else if start.true_wall + CARRIED < *at
            && !Excuse::TicksAhead.excuses(*at <= start.true_wall + start.ahead + CARRIED)
        {
            format!("in truth at {:?}, with servers' clocks {:?} ahead at most", start.true_wall, start.ahead)
        } else if delivery == Delivery::AtMostOnce && started_on < MAJORITY {
            format!("with its start on {started_on} servers")
        } else if done_at.is_some()
            && !Excuse::TicksForgotten.excuses(is_forgotten())
            && !Excuse::TicksClock.excuses(start.clock_stood)
        {
            "though a majority has its end".to_owned()
        } else {
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
            // Until the ledger was founded, it may have waited for a server.
            let fault_free = served_since.max(since).max(self.foundings.last());
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
    /// Notes that a server stored a row at the true time `now`. `is_lost` is true if the registration has never counted, or
    /// the ledger was founded since it was stored.
    fn written(&mut self, node: &str, since: WallTime, now: WallTime, is_lost: bool) -> Result<(), String> {
        let on = self.on.entry(since).or_default();
        on.insert(node.to_owned());
        if on.len() < MAJORITY || self.since.is_some_and(|known| since <= known) {
            return Ok(());
        }
        if self.since.is_some() {
            if !is_lost {
                return Err("is registered again, though the ledger has its registration".to_owned());
            }
            self.lost_until = since;
        }
        (self.since, self.stored_at) = (Some(since), now);
        self.first = self.first.or(Some(since));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
