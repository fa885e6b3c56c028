use super::{Check, HORIZON};
use crate::{
    journal::{Entry, Event},
    settings::{AT_LEAST_ONCE, AT_MOST_ONCE, MAJORITY, MAKE_UP, TERM, TICK_EVERY},
    truth::Truth,
};
use quorate::env::{BootTime, WallTime};
use quorate_tests::support::Who;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A tick that is older than its misfire window by this will not start any more.
const SETTLED: Duration = Duration::from_secs(30);
/// How long before a tick a node must have forgotten for it to be known of no more.
const UNKNOWN: Duration = Duration::from_secs(5);
/// A process that did not run shortly before may start a tick late.
const EXCUSED: Duration = Duration::from_millis(300);
/// From the moment in which a leader may begin a tick until it has begun: the ticks that it makes up before, the seal,
/// and the rest of its lease where it is cut off, on a busy machine.
const TO_BEGIN: Duration = Duration::from_secs(5);
/// A leader leads a little longer than its last line says.
const LAST_WORD: Duration = Duration::from_millis(500);

/// An at-most-once tick starts once or not at all, whatever happens. An at-least-once tick is done, unless a
/// majority forgot, and does not start again once that is known to be recorded.
///
/// An at-most-once tick that never starts was recorded as started by a leader whose term then ended, within
/// [`TO_BEGIN`] of when it could begin the tick; or some node forgot, so that it may have been unknown. (Which nodes
/// answered the leader's seal is not known here: one of a bare majority is enough. The simulation judges that.) That
/// anything else was disturbed is no excuse.
#[derive(Debug)]
pub(crate) struct Ticks {
    /// The wall clock and the boot clock at one moment.
    clocks: (WallTime, BootTime),
    jobs: BTreeMap<Arc<str>, BTreeMap<u64, Tick>>,
    /// Judged up to here, by job.
    judged: BTreeMap<Arc<str>, u64>,
    counts: BTreeMap<Arc<str>, Counts>,
    /// From when to when each term is known to have lasted.
    terms: BTreeMap<u64, (BootTime, BootTime)>,
    /// Starts after a recorded end. That a process did not run is in a later line, and excuses it.
    suspects: Vec<(Who, BootTime, String)>,
}

#[derive(Clone, Debug, Default)]
struct Tick {
    starts: Vec<(u64, Who, BootTime)>,
    done: Option<(u64, BootTime)>,
    /// When its term went on to another tick: by then its end was recorded.
    recorded: Option<BootTime>,
}

/// What became of a job's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    /// Ticks that were due and have been judged.
    pub(crate) due: usize,
    /// Of these, begun at least once.
    pub(crate) started: usize,
    /// Begun more than once.
    pub(crate) again: usize,
    /// Ended at least once.
    pub(crate) done: usize,
    /// Never begun, with an excuse.
    pub(crate) left_out: usize,
}

impl Ticks {
    pub(crate) fn new(wall: WallTime, boot: BootTime) -> Self {
        let (jobs, judged, counts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let terms = BTreeMap::new();
        Self { clocks: (wall, boot), jobs, judged, counts, terms, suspects: Vec::new() }
    }

    /// What became of the ticks that have been judged.
    pub(crate) fn counts(&self) -> &BTreeMap<Arc<str>, Counts> {
        &self.counts
    }

    /// Whether what was due by `when` has been decided on: ticks run in their order, and a later one is done.
    pub(crate) fn past(&self, when: BootTime) -> bool {
        let when = self.wall(when);
        let done = |ticks: &BTreeMap<u64, Tick>| ticks.range(when..).any(|(_, tick)| tick.done.is_some());
        [AT_MOST_ONCE, AT_LEAST_ONCE].iter().all(|job| self.jobs.get(*job).is_some_and(done))
    }

    /// At the end: judges all ticks that were due by `when`.
    pub(crate) fn finish(&mut self, when: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = self.convict(BootTime::from_nanos(u64::MAX), truth);
        found.extend(self.judge(self.wall(when), truth));
        found
    }

    /// Judges the suspects from before `until`, once.
    fn convict(&mut self, until: BootTime, truth: &Truth) -> Vec<String> {
        let ripe = self.suspects.extract_if(.., |(_, at, _)| *at < until);
        ripe.filter(|(who, at, _)| !truth.was_stalled(*who, *at, EXCUSED)).map(|(_, _, what)| what).collect()
    }

    fn wall(&self, at: BootTime) -> u64 {
        (self.clocks.0 + self.clocks.1.until(at)).as_micros()
    }

    /// Judges the ticks before `until`, once.
    fn judge(&mut self, until: u64, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        for (job, ticks) in &self.jobs {
            let Some((&first, _)) = ticks.first_key_value() else { continue };
            let from = self.judged.get(job).copied().unwrap_or(first);
            let counts = self.counts.entry(Arc::clone(job)).or_default();
            let mut next = from;
            for at in due(from, until) {
                next = at + TICK_EVERY.as_micros() as u64;
                let tick = ticks.get(&at).cloned().unwrap_or_default();
                let begun: BTreeSet<u64> = tick.starts.iter().map(|(term, _, _)| *term).collect();
                counts.due += 1;
                counts.started += usize::from(!begun.is_empty());
                counts.again += usize::from(tick.starts.len() > 1);
                counts.done += usize::from(tick.done.is_some());
                let boot = boot(self.clocks, at);
                let forgotten = truth.losses(boot - UNKNOWN, boot + MAKE_UP) >= MAJORITY;
                let excused = if &**job == AT_MOST_ONCE {
                    let unknown = truth.losses(boot - UNKNOWN, boot + MAKE_UP) > 0;
                    unknown || caught(&self.terms, boot)
                } else {
                    forgotten
                };
                counts.left_out += usize::from(begun.is_empty() && excused);
                let missed = if &**job == AT_MOST_ONCE { begun.is_empty() } else { tick.done.is_none() };
                if missed && !excused {
                    found.push(format!("ticks: {job}: the tick {at} was passed over; begun under {begun:?}"));
                }
            }
            self.judged.insert(Arc::clone(job), next);
        }
        found
    }

    fn led(&mut self, term: u64, at: BootTime) {
        let (from, last) = self.terms.entry(term).or_insert((at, at));
        (*from, *last) = (at.min(*from), at.max(*last));
    }

    fn start(&mut self, job: &Arc<str>, at: u64, start: (u64, Who, BootTime), truth: &Truth) -> Vec<String> {
        let boot = boot(self.clocks, at);
        let (term, who, now) = start;
        let ticks = self.jobs.entry(Arc::clone(job)).or_default();
        // One tick of a job runs at a time: what this term has done before is recorded.
        for tick in ticks.values_mut().filter(|tick| tick.recorded.is_none()) {
            if tick.done.is_some_and(|(by, when)| by == term && when < now) {
                tick.recorded = Some(now);
            }
        }
        let tick = ticks.entry(at).or_default();
        let mut found = Vec::new();
        if &**job == AT_MOST_ONCE && !tick.starts.is_empty() {
            let starts = &tick.starts;
            found.push(format!("ticks: {job}: the tick {at} started twice: {starts:?} and {start:?}"));
        }
        if let (Some((by, done)), Some(recorded)) = (tick.done, tick.recorded)
            && recorded < now
            && truth.losses(boot.min(done) - UNKNOWN, now) == 0
        {
            let what = format!(
                "ticks: {job}: the tick {at} started at {now:?} under {term}, was done at {done:?} under {by}, and \
                 that was recorded by {recorded:?}"
            );
            self.suspects.push((who, now, what));
        }
        tick.starts.push(start);
        found
    }
}

impl Check for Ticks {
    fn take(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String> {
        let leads = match &entry.event {
            Event::Held { res, token, .. }
            | Event::Look { res, token, .. }
            | Event::Told { res, token }
            | Event::Over { res, token }
            | Event::Ending { res, token } => (&**res == TERM).then_some(*token),
            Event::TickStart { term, .. } | Event::TickDone { term, .. } => Some(*term),
            _ => None,
        };
        leads.into_iter().for_each(|term| self.led(term, entry.at()));
        match &entry.event {
            Event::TickStart { job, tick, term } => self.start(job, *tick, (*term, who, entry.at()), truth),
            Event::TickDone { job, tick, term } => {
                let ticks = self.jobs.entry(Arc::clone(job)).or_default();
                ticks.entry(*tick).or_default().done.get_or_insert((*term, entry.at()));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = self.convict(now - HORIZON, truth);
        found.extend(self.judge(self.wall(now - MAKE_UP - SETTLED), truth));
        self.terms.retain(|_, (_, last)| *last + MAKE_UP * 4 > now);
        // At-most-once ticks that start again much later are to be found as well.
        let old = self.wall(now - MAKE_UP * 4);
        for ticks in self.jobs.values_mut() {
            let last = ticks.last_key_value().map(|(at, _)| *at).unwrap_or_default();
            ticks.retain(|at, _| *at >= old || *at == last);
        }
        found
    }

    fn watching(&self) -> usize {
        self.jobs.values().map(BTreeMap::len).sum::<usize>() + self.suspects.len()
    }
}

/// Whether a term ended when its leader may just have recorded that it starts a tick due at `due`.
fn caught(terms: &BTreeMap<u64, (BootTime, BootTime)>, due: BootTime) -> bool {
    terms.values().any(|(from, last)| {
        let begins = due.max(*from);
        *last <= due + MAKE_UP && begins <= *last + LAST_WORD && *last <= begins + TO_BEGIN
    })
}

/// A tick's time on the boot clock.
fn boot((wall, boot): (WallTime, BootTime), tick: u64) -> BootTime {
    boot + wall.until(WallTime::from_micros(tick))
}

/// The ticks from `first` on that are due before `until`.
fn due(first: u64, until: u64) -> impl Iterator<Item = u64> {
    (first..until).step_by(TICK_EVERY.as_micros() as usize)
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, line, who},
        *,
    };

    const SECOND: u64 = 1_000_000;

    /// The wall clock is as the boot clock. The tick number `n` is due at `n` seconds.
    fn ticks() -> Ticks {
        Ticks::new(WallTime::from_micros(0), at(0))
    }

    fn start(ms: u64, job: &str, n: u64, term: u64) -> Entry {
        line(ms, Event::TickStart { job: job.into(), tick: n * SECOND, term })
    }

    fn done(ms: u64, job: &str, n: u64, term: u64) -> Entry {
        line(ms, Event::TickDone { job: job.into(), tick: n * SECOND, term })
    }

    fn found(truth: &Truth, lines: &[Entry]) -> usize {
        let mut check = ticks();
        let at_once: usize = lines.iter().map(|line| check.take(who(0), line, truth).len()).sum();
        at_once + check.settle(at(5001) + HORIZON, truth).len()
    }

    #[test]
    fn a_second_start_is_found_only_where_there_may_be_none() {
        let twice = |job| [start(1000, job, 1, 7), start(5000, job, 1, 8)];
        assert_eq!(found(&Truth::default(), &twice(AT_MOST_ONCE)), 1);
        assert_eq!(found(&Truth::default(), &twice(AT_LEAST_ONCE)), 0);
        let mut forgot = Truth::default();
        (0..5).for_each(|node| forgot.forgot(node, at(3000)));
        assert_eq!(found(&forgot, &twice(AT_MOST_ONCE)), 1, "not even then");
    }

    #[test]
    fn what_is_recorded_as_done_does_not_start_again_unless_a_node_forgot() {
        let job = AT_LEAST_ONCE;
        let lines =
            [start(1000, job, 1, 7), done(1030, job, 1, 7), start(2000, job, 2, 7), start(5000, job, 1, 8)];
        assert_eq!(found(&Truth::default(), &lines), 1);
        let unrecorded = [lines[0].clone(), lines[1].clone(), lines[3].clone()];
        assert_eq!(
            found(&Truth::default(), &unrecorded),
            0,
            "it may have been killed before it could say so"
        );
        let mut forgot = Truth::default();
        forgot.forgot(4, at(3000));
        assert_eq!(found(&forgot, &lines), 0);
        // That the process did not run is said after the start that it excuses.
        let (mut check, mut stalled) = (ticks(), Truth::default());
        lines.iter().for_each(|line| assert!(check.take(who(0), line, &stalled).is_empty()));
        assert!(check.settle(at(5000) + HORIZON, &stalled).is_empty(), "too early");
        stalled.stalled(who(0), at(4000), at(5200));
        assert!(check.settle(at(5001) + HORIZON, &stalled).is_empty());
    }

    #[test]
    fn a_tick_passed_over_is_found_unless_excused() {
        let lines = |job| {
            [start(1000, job, 1, 7), done(1030, job, 1, 7), start(3000, job, 3, 7), done(3030, job, 3, 7)]
        };
        let judge = |job, truth: &Truth| {
            let mut check = ticks();
            // The leader leads on.
            check.led(7, at(60_000));
            lines(job).iter().for_each(|line| drop(check.take(who(0), line, truth)));
            (check.finish(at(3500), truth).len(), check.counts()[job])
        };
        let counts = Counts { due: 3, started: 2, again: 0, done: 2, left_out: 0 };
        assert_eq!(judge(AT_LEAST_ONCE, &Truth::default()), (1, counts));
        assert_eq!(judge(AT_MOST_ONCE, &Truth::default()), (1, counts));
        let mut forgot = Truth::default();
        forgot.disturb(at(1500));
        assert_eq!(judge(AT_MOST_ONCE, &forgot), (1, counts), "that something was disturbed is no excuse");
        forgot.forgot(0, at(1500));
        assert_eq!(judge(AT_MOST_ONCE, &forgot), (0, Counts { left_out: 1, ..counts }));
        assert_eq!(judge(AT_LEAST_ONCE, &forgot), (1, counts));
        (0..3).for_each(|node| forgot.forgot(node, at(1500)));
        assert_eq!(judge(AT_LEAST_ONCE, &forgot), (0, Counts { left_out: 1, ..counts }));
    }

    #[test]
    fn an_at_most_once_tick_is_passed_over_only_where_its_leader_fell() {
        let job = AT_MOST_ONCE;
        let leads = |ms, token| line(ms, Event::Look { res: TERM.into(), token, until: 0 });
        // The tick of 20 s is never begun. The first leader fell at `fell`, and the second came 2 s later.
        let judge = |fell: u64| {
            let mut check = ticks();
            let mut lines = vec![leads(500, 7), leads(fell, 7), leads(fell + 2000, 8), leads(60_000, 8)];
            for n in (1..=40).filter(|n| *n != 20) {
                let term = if n * 1000 <= fell { 7 } else { 8 };
                let began = (n * 1000).max(if term == 8 { fell + 2000 } else { 0 });
                lines.extend([start(began, job, n, term), done(began + 10, job, n, term)]);
            }
            lines.iter().for_each(|line| drop(check.take(who(0), line, &Truth::default())));
            check.finish(at(40_500), &Truth::default()).len()
        };
        assert_eq!(judge(20_100), 0, "recorded as started, and its leader fell");
        assert_eq!(judge(19_900), 0, "its last line came just before");
        assert_eq!(judge(19_000), 1, "the leader that came afterwards had to make it up");
        assert_eq!(judge(27_000), 1, "the leader had seven seconds to begin it");
    }

    #[test]
    fn a_tick_that_began_and_never_ended_is_found_where_it_must_end() {
        let mut check = ticks();
        for entry in [start(1000, AT_LEAST_ONCE, 1, 7), start(2000, AT_LEAST_ONCE, 2, 7)] {
            check.take(who(0), &entry, &Truth::default());
        }
        assert!(!check.past(at(2500)));
        assert_eq!(check.finish(at(2500), &Truth::default()).len(), 2);
        assert!(check.finish(at(2500), &Truth::default()).is_empty(), "once");
    }

    #[test]
    fn what_is_old_is_judged_and_forgotten() {
        let mut check = ticks();
        for n in 1..2000 {
            check.take(who(0), &start(n * 1000, AT_LEAST_ONCE, n, 7), &Truth::default());
            check.take(who(0), &done(n * 1000 + 30, AT_LEAST_ONCE, n, 7), &Truth::default());
            assert!(check.settle(at(n * 1000), &Truth::default()).is_empty());
        }
        assert!(check.watching() < 300, "{}", check.watching());
        assert!(check.counts()[AT_LEAST_ONCE].due > 1800);
    }
}
