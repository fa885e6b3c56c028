use super::{Event, Invariant, MAJORITY};
use crate::sim::{
    TickEnd, TickStart,
    scenario::true_wall,
    worker::{JobSpec, specs},
};
use quorate::{
    env::WallTime,
    node::{Record, Reply, Request},
    schedule::{Delivery, JobRow, TickKey},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How far a wall clock may be from the truth: the `max_clock_offset` that everybody agrees on.
const OFFSET: Duration = Duration::from_secs(1);
/// How far ahead of the servers' clocks a worker may take them to be that has not heard from them for ten seconds: it
/// carries them on by its own boot clock.
const CARRIED: Duration = Duration::from_millis(100);
/// Ticks younger than this may be yet to come, by the servers' clocks and for want of a turn.
const YOUNG: Duration = Duration::from_secs(1);
/// A leader that was interrupted so often in one tick leaves it to the next.
const INTERRUPTED: u32 = 4;

/// Each tick starts at most once, or again until it is recorded done.
///
/// Whatever the rule, a run starts under a valid term, and before it is due in truth by no more than the clocks of a
/// majority of the servers have ever been ahead, whatever the worker's own wall clock shows. `at_most_once`: never
/// twice, by anybody, and not before *started* stands on a majority. `at_least_once`: not while *done* stands on a
/// majority (by a worker whose clock has not stood still since its term was last extended: another cannot know that
/// it has ended); and once there has been a leader in peace for a while, every tick since the job's registration has
/// been started and has come to an end of its own, where the misfire rule makes up all. A tick of an `at_most_once` job that
/// makes up all has been started, or something of it was written, or it was unknown to the last leader: when that
/// one sealed the ledger, some server that took the seal did not remember that time, or, where the tick came due
/// later, forgot it afterwards. (The leader may have heard from a bare majority.) A job of any rule starts every
/// tick in peace.
///
/// Excuses, from *tick once*: "ticks that a node has forgotten are treated as unknown", so a server that forgot
/// counts no more for what stands; a registration that a majority lost begins anew, and ticks before that are
/// nobody's. (A pause between the last look and the start is not excused: in this simulation there is none.)
#[derive(Debug)]
pub(super) struct Ticks {
    jobs: Vec<JobSpec>,
    ticks: BTreeMap<TickKey, Tick>,
    runs: BTreeMap<u64, (TickKey, u64)>,
    registrations: BTreeMap<Arc<str>, Registration>,
    /// From when on each server says that it remembers: that is about when somebody marked it, which may be much
    /// later than when it forgot.
    memories: BTreeMap<String, WallTime>,
    sealed: Sealed,
    /// How many ticks of an `at_most_once` job had to be started, and how many might have been unknown.
    known: u64,
    unknown: u64,
}

/// What the servers could remember for the newest term that sealed the ledger.
#[derive(Debug, Default)]
struct Sealed {
    term: u64,
    /// When the first of them took the seal, in true time.
    at: WallTime,
    /// From when on each that took it remembered when it did.
    memories: BTreeMap<String, WallTime>,
    /// Memories that began afterwards.
    later: Vec<WallTime>,
}

/// What is known of one tick.
#[derive(Debug, Default)]
struct Tick {
    starts: u32,
    /// A run ended by itself.
    ended: bool,
    /// How often it was torn, by term.
    torn: BTreeMap<u64, u32>,
    /// Which servers have ever written that a term started it.
    started_on: BTreeMap<u64, BTreeSet<String>>,
    /// Where a final record stands.
    done_on: BTreeSet<String>,
}

/// From when on a job's ticks are due, by what stands on the servers.
#[derive(Debug, Default)]
struct Registration {
    stands: BTreeMap<WallTime, BTreeSet<String>>,
    since: Option<WallTime>,
    /// The newest term that wrote it.
    term: u64,
    /// Up to here ticks are nobody's: a majority lost the registration.
    lost_until: WallTime,
}

impl Default for Ticks {
    fn default() -> Self {
        Self {
            jobs: specs(),
            ticks: BTreeMap::new(),
            runs: BTreeMap::new(),
            registrations: BTreeMap::new(),
            memories: BTreeMap::new(),
            sealed: Sealed::default(),
            known: 0,
            unknown: 0,
        }
    }
}

impl Invariant for Ticks {
    fn name(&self) -> &'static str {
        "ticks"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("at-most-once tick reckoned", self.known), ("at-most-once tick unknown", self.unknown)]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Forgot { node } => {
                self.forget(node);
                Ok(())
            }
            Event::Ran { node, request: Request::Write { key, record, .. }, reply: Reply::Written } => {
                self.written(node, key, record)
            }
            Event::Ran { node, request: Request::Mark { marker, .. }, reply: Reply::Marked } => {
                self.marked(node, marker);
                Ok(())
            }
            Event::Ran { node, request: Request::Seal { term, .. }, reply: Reply::Ledger(_) } => {
                self.sealed(node, term.get(), true_wall(now));
                Ok(())
            }
            Event::TickStarted(start) => self.started(start),
            Event::TickEnded { run, end } => {
                self.ended(*run, *end);
                Ok(())
            }
            Event::Reckoned { served_since, now } => self.reckon(*served_since, *now),
            _ => Ok(()),
        }
    }
}

impl Ticks {
    fn forget(&mut self, node: &str) {
        for tick in self.ticks.values_mut() {
            tick.done_on.remove(node);
        }
        for registration in self.registrations.values_mut() {
            for on in registration.stands.values_mut() {
                on.remove(node);
            }
        }
    }

    fn marked(&mut self, node: &str, marker: &str) {
        let Some(since) = memory_since(marker) else { return };
        // Who admits a server writes its memory as it was.
        if self.memories.insert(node.to_owned(), since) != Some(since) {
            self.sealed.later.push(since);
        }
    }

    fn sealed(&mut self, node: &str, term: u64, now: WallTime) {
        if term > self.sealed.term {
            self.sealed = Sealed { term, at: now, ..Sealed::default() };
        }
        if term == self.sealed.term {
            let since = self.memories.get(node).copied().unwrap_or_default();
            self.sealed.memories.insert(node.to_owned(), since);
        }
    }

    fn written(&mut self, node: &str, key: &str, record: &Record) -> Result<(), String> {
        if let Some(job) = key.strip_prefix("job/") {
            let since =
                JobRow::parse(&record.value).map_err(|error| format!("{key} is spoilt: {error}"))?.since;
            let registration = self.registrations.entry(job.into()).or_default();
            return registration
                .written(node, record.term.get(), since)
                .map_err(|why| format!("{job} {why}"));
        }
        let key = TickKey::parse(key).map_err(|error| error.to_string())?;
        let Some(key) = key else { return Ok(()) };
        let tick = self.ticks.entry(key).or_default();
        if record.last {
            tick.done_on.insert(node.to_owned());
        } else {
            tick.started_on.entry(record.term.get()).or_default().insert(node.to_owned());
        }
        Ok(())
    }

    fn started(&mut self, start: &TickStart) -> Result<(), String> {
        let TickStart { worker, job, at, token, .. } = start;
        let spec = self.jobs.iter().find(|spec| *spec.name == **job);
        let delivery = spec.ok_or_else(|| format!("there is no job {job}"))?.delivery;
        let key = TickKey::new(job, *at);
        let tick = self.ticks.entry(key.clone()).or_default();
        tick.starts += 1;
        self.runs.insert(start.run, (key, *token));
        let started_on = tick.started_on.get(token).map_or(0, BTreeSet::len);
        let wrong = if !start.valid {
            "though its term is over".to_owned()
        } else if start.true_wall + start.ahead + CARRIED < *at {
            format!("in truth at {:?}, with servers' clocks {:?} ahead at most", start.true_wall, start.ahead)
        } else if delivery == Delivery::AtMostOnce && tick.starts > 1 {
            format!("for the {}. time", tick.starts)
        } else if delivery == Delivery::AtMostOnce && started_on < MAJORITY {
            format!("with its start on {started_on} servers")
        } else if !start.clock_stood && tick.done_on.len() >= MAJORITY {
            format!("though it is done on {} servers", tick.done_on.len())
        } else {
            return Ok(());
        };
        Err(format!("{worker} starts {job}, due at {at:?}, under {token}, {wrong}"))
    }

    fn ended(&mut self, run: u64, end: TickEnd) {
        let Some((key, token)) = self.runs.remove(&run) else { return };
        let tick = self.ticks.entry(key).or_default();
        match end {
            TickEnd::Itself => tick.ended = true,
            TickEnd::Torn => *tick.torn.entry(token).or_default() += 1,
        }
    }

    /// Accounts for every tick that is due.
    fn reckon(&mut self, served_since: WallTime, now: WallTime) -> Result<(), String> {
        let until = now - YOUNG;
        let (mut known, mut unknown) = (0, 0);
        for spec in &self.jobs {
            let registration = self.registrations.get(spec.name);
            let since = registration.and_then(|known| known.since.map(|since| since.max(known.lost_until)));
            let since = since.ok_or_else(|| format!("{} was never registered", spec.name))?;
            let peace = served_since.max(since);
            let from = if spec.makes_up_all() { since } else { peace };
            let after = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= until);
            for at in std::iter::successors(after(&from), after) {
                let key = TickKey::new(spec.name, at);
                if spec.delivery == Delivery::AtMostOnce && spec.makes_up_all() {
                    *if self.sealed.may_not_know(at) { &mut unknown } else { &mut known } += 1;
                }
                if let Some(why) = self.wants(spec, &key, at > peace) {
                    return Err(format!("{}, due at {at:?}, {why}", spec.name));
                }
            }
        }
        (self.known, self.unknown) = (self.known + known, self.unknown + unknown);
        Ok(())
    }

    /// What is missing from a tick that is due.
    fn wants(&self, spec: &JobSpec, key: &TickKey, peace: bool) -> Option<&'static str> {
        let nothing = Tick::default();
        let tick = self.ticks.get(key).unwrap_or(&nothing);
        let given_up = tick.torn.values().any(|times| *times >= INTERRUPTED);
        match spec.delivery {
            _ if peace => (tick.starts == 0).then_some("was not started, in peace"),
            Delivery::AtLeastOnce if tick.starts == 0 => Some("was never started"),
            Delivery::AtLeastOnce => {
                (!tick.ended && !given_up).then_some("was started and never came to an end")
            }
            Delivery::AtMostOnce => {
                let written = !tick.started_on.is_empty();
                let unknown = self.sealed.may_not_know(key.tick);
                (tick.starts == 0 && !written && !unknown).then_some("was neither started nor unknown")
            }
        }
    }
}

impl Sealed {
    /// Whether the tick due at `tick` may have been unknown to the leader, by the leader's own rule: a server
    /// remembers from its beginning on, plus what its clock may be off.
    fn may_not_know(&self, tick: WallTime) -> bool {
        let forgot = |since: &WallTime| *since + OFFSET > tick;
        // What was due before was decided on by what answered the seal; a leader's clock is off as well.
        let afterwards = tick + OFFSET > self.at && self.later.iter().any(forgot);
        afterwards || self.memories.values().any(forgot)
    }
}

/// From when on a server remembers, by the marker that it was given.
fn memory_since(marker: &str) -> Option<WallTime> {
    let since = marker.lines().find_map(|line| line.strip_prefix("since_us="))?;
    since.parse().ok().map(WallTime::from_micros)
}

impl Registration {
    fn written(&mut self, node: &str, term: u64, since: WallTime) -> Result<(), String> {
        // A leader that learns of an earlier registration writes that, and its first attempt may arrive after.
        let later = term > self.term;
        if self.since == Some(since) {
            self.term = self.term.max(term);
        }
        let stood =
            self.since.filter(|stood| later && *stood < since).and_then(|stood| self.stands.get(&stood));
        if let Some(on) = stood.filter(|on| on.len() >= MAJORITY) {
            return Err(format!(
                "is registered anew, though its registration stands on {} servers",
                on.len()
            ));
        }
        for on in self.stands.values_mut() {
            on.remove(node);
        }
        // Whoever registers a job later than it was must have found nothing: what lies between is nobody's.
        if later && self.since.is_some_and(|known| known < since) {
            self.lost_until = self.lost_until.max(since);
        }
        let on = self.stands.entry(since).or_default();
        on.insert(node.to_owned());
        if on.len() >= MAJORITY {
            self.term = self.term.max(term);
            self.since = Some(since);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::node::{FencingToken, LedgerState};

    /// When every job is due at once, and what is the true time then.
    const EPOCH: u64 = 1_700_001_072_000_000;
    const BEGAN: Duration = Duration::from_secs(1_072);
    const NODES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];

    fn at(ms: u64) -> WallTime {
        WallTime::from_micros(EPOCH + ms * 1_000)
    }

    /// A history in which `job` is registered from 0 on, which the tests make good or bad.
    struct History(Ticks, u64);

    impl History {
        fn new() -> Self {
            let mut history = Self(Ticks::default(), 0);
            for job in specs() {
                (0..3).for_each(|node| history.registered(node, job.name, 0).unwrap());
            }
            history
        }

        fn written(&mut self, node: usize, key: &str, record: &Record) -> Result<(), String> {
            let request = Request::Write {
                ledger: "g".into(),
                term: record.term,
                key: key.into(),
                seen: None,
                record: record.clone(),
            };
            let ran = Event::Ran { node: NODES[node], request: &request, reply: &Reply::Written };
            self.0.see(Duration::ZERO, &ran)
        }

        fn registered(&mut self, node: usize, job: &str, since: u64) -> Result<(), String> {
            let value = at(since).as_micros().to_string().into();
            let record = Record { at: 0, term: FencingToken::new(1 + since), last: false, value };
            self.written(node, &format!("job/{job}"), &record)
        }

        /// *Started*, or the last word, on so many servers.
        fn stands(&mut self, job: &str, due: u64, term: u64, last: bool, servers: usize) {
            let record =
                Record { at: at(due).as_micros(), term: FencingToken::new(term), last, value: "".into() };
            let key = TickKey::new(job, at(due)).key();
            (0..servers).for_each(|node| self.written(node, &key, &record).unwrap());
        }

        fn start(&mut self, start: &TickStart) -> Result<(), String> {
            self.0.see(Duration::ZERO, &Event::TickStarted(start))
        }

        /// A good run from its record to its end.
        fn run(&mut self, job: &str, due: u64, term: u64) -> Result<(), String> {
            self.stands(job, due, term, false, 3);
            self.1 += 1;
            self.start(&TickStart { run: self.1, ..tick(job, due, term) })?;
            self.end(self.1, TickEnd::Itself)
        }

        fn end(&mut self, run: u64, end: TickEnd) -> Result<(), String> {
            self.0.see(Duration::ZERO, &Event::TickEnded { run, end })
        }

        fn reckon(&mut self, served_since: u64, now: u64) -> Result<(), String> {
            let reckoned = Event::Reckoned { served_since: at(served_since), now: at(now) };
            self.0.see(Duration::ZERO, &reckoned)
        }

        /// Every tick of every job runs, but for some.
        fn run_all_but(&mut self, until: u64, but: &[(&str, u64)]) {
            for job in specs() {
                let next = |tick: &WallTime| job.schedule.next_after(*tick).filter(|tick| *tick <= at(until));
                for tick in std::iter::successors(next(&at(0)), next) {
                    let due = (tick.as_micros() - EPOCH) / 1_000;
                    if !but.contains(&(job.name, due)) {
                        self.run(job.name, due, 1).unwrap();
                    }
                }
            }
        }

        fn marked(&mut self, since: u64) {
            let marker = format!("quorate-marker 1\nrun=r\nsince_us={}\nvotes_us=0", at(since).as_micros());
            let request = Request::Mark { expect: None, marker: marker.into() };
            let ran = Event::Ran { node: NODES[4], request: &request, reply: &Reply::Marked };
            self.0.see(Duration::ZERO, &ran).unwrap();
        }

        fn sealed(&mut self, term: u64, now: u64) {
            let request = Request::Seal { ledger: "g".into(), term: FencingToken::new(term), after: None };
            let reply = Reply::Ledger(LedgerState::default().into());
            for node in NODES {
                let ran = Event::Ran { node, request: &request, reply: &reply };
                self.0.see(BEGAN + Duration::from_millis(now), &ran).unwrap();
            }
        }

        fn forget(&mut self, node: usize, now: u64) {
            self.0.see(BEGAN + Duration::from_millis(now), &Event::Forgot { node: NODES[node] }).unwrap();
        }
    }

    fn tick(job: &str, due: u64, token: u64) -> TickStart {
        TickStart {
            run: 0,
            worker: "w".into(),
            job: job.into(),
            at: at(due),
            token,
            valid: true,
            true_wall: at(due),
            ahead: Duration::ZERO,
            clock_stood: false,
        }
    }

    #[test]
    fn at_most_once_is_never_twice_and_never_without_a_majority() {
        let mut history = History::new();
        history.run("once", 500, 1).unwrap();
        history.stands("once", 500, 2, false, 5);
        assert!(history.start(&tick("once", 500, 2)).is_err(), "by another leader");
        history.stands("once", 1_000, 2, false, 2);
        assert!(history.start(&tick("once", 1_000, 2)).is_err(), "on two servers");
    }

    #[test]
    fn at_least_once_is_over_when_it_is_done_on_a_majority() {
        let mut history = History::new();
        history.run("each", 700, 1).unwrap();
        history.run("each", 700, 2).unwrap();
        history.stands("each", 700, 2, true, 3);
        assert!(history.run("each", 700, 3).is_err());
        let stood = TickStart { clock_stood: true, ..tick("each", 700, 1) };
        assert!(history.start(&stood).is_ok(), "whose clock stood still does not know");
        history.forget(0, 800);
        assert!(history.run("each", 700, 4).is_ok(), "a majority can no longer know");
    }

    #[test]
    fn nothing_starts_too_early_or_under_an_old_term() {
        let mut history = History::new();
        let good = tick("each", 700, 1);
        assert!(history.start(&good).is_ok());
        assert!(history.start(&TickStart { valid: false, ..good.clone() }).is_err());
        let (early, ahead) = (at(499), Duration::from_millis(100));
        assert!(history.start(&TickStart { true_wall: early, ahead, ..good.clone() }).is_err());
        let (early, ahead) = (at(500), Duration::from_millis(100));
        let ok = history.start(&TickStart { true_wall: early, ahead, ..good.clone() });
        assert!(ok.is_ok(), "a majority of the servers are ahead");
        assert!(history.start(&TickStart { job: "none".into(), ..good }).is_err());
    }

    #[test]
    fn what_is_due_is_accounted_for() {
        let reckon = |but: &[(&str, u64)], then: &dyn Fn(&mut History)| {
            let mut history = History::new();
            history.run_all_but(9_000, but);
            then(&mut history);
            history.reckon(6_000, 9_000)
        };
        let nothing = |_: &mut History| {};
        assert_eq!(reckon(&[], &nothing), Ok(()));
        assert!(reckon(&[("each", 700)], &nothing).is_err(), "one that all are made up of");
        assert!(reckon(&[("once", 500)], &nothing).is_err(), "neither started nor unknown");
        assert!(
            reckon(&[("once", 500)], &|history| history.forget(4, 400)).is_err(),
            "who forgot has no vote"
        );
        assert!(reckon(&[("once", 500)], &|history| history.marked(400)).is_ok(), "it was marked anew");
        assert!(reckon(&[("once", 4_500)], &|history| history.marked(400)).is_err(), "long before");
        let before =
            |since: u64| move |history: &mut History| (history.marked(since), history.sealed(2, 4_000)).0;
        let after =
            |since: u64| move |history: &mut History| (history.sealed(2, 4_000), history.marked(since)).1;
        assert!(reckon(&[("once", 500)], &before(400)).is_ok(), "the last leader could not know");
        assert!(reckon(&[("once", 1_500)], &before(400)).is_err(), "and of this it could");
        assert!(reckon(&[("once", 500)], &after(4_100)).is_err(), "the last leader had decided on it");
        assert!(
            reckon(&[("once", 4_500)], &after(4_100)).is_ok(),
            "due after the seal, forgotten in the term"
        );
        assert!(reckon(&[("once", 500)], &|history| history.stands("once", 500, 1, false, 1)).is_ok());
        for missed in [("latest", 1_100), ("fresh", 900), ("cron", 2_000)] {
            assert!(reckon(&[missed], &nothing).is_ok(), "{missed:?} was before the peace");
        }
        for missed in [("once", 6_500), ("latest", 6_600), ("fresh", 6_300), ("cron", 8_000)] {
            assert!(reckon(&[missed], &nothing).is_err(), "{missed:?} in peace");
            let (job, due) = missed;
            let written = reckon(&[missed], &|history| history.stands(job, due, 1, false, 3));
            assert!(written.is_err(), "{missed:?} was written and not started");
        }
        assert!(reckon(&[("each", 8_400)], &nothing).is_ok(), "that may be yet to come");
    }

    #[test]
    fn what_was_torn_runs_again_until_it_ends() {
        let torn = |times: u64| {
            let mut history = History::new();
            history.run_all_but(9_000, &[("each", 700)]);
            history.stands("each", 700, 1, false, 3);
            for run in 1_000..1_000 + times {
                history.start(&TickStart { run, ..tick("each", 700, 1) }).unwrap();
                history.end(run, TickEnd::Torn).unwrap();
            }
            history
        };
        assert!(torn(1).reckon(6_000, 9_000).is_err());
        assert!(torn(4).reckon(6_000, 9_000).is_ok(), "left to the next leader");
        let mut again = torn(1);
        again.run("each", 700, 2).unwrap();
        assert_eq!(again.reckon(6_000, 9_000), Ok(()));
    }

    #[test]
    fn a_registration_may_be_lost_with_a_majority_only() {
        let mut history = History::new();
        assert!(history.registered(3, "each", 5_000).is_err(), "three servers know");
        let mut history = History::new();
        history.run_all_but(9_000, &[("each", 700)]);
        history.forget(0, 800);
        history.registered(0, "each", 5_000).unwrap();
        assert_eq!(history.reckon(6_000, 9_000), Ok(()), "what was before is nobody's");
        let mut never = History(Ticks::default(), 0);
        assert!(never.reckon(0, 9_000).is_err(), "in peace a leader registers its jobs");
    }
}
