use super::{super::pool_log::made, *};
use quorate::{
    internals::RunRecord,
    node::{FencingToken, Reply},
    scheduler::RunOutcome as End,
};

/// The wall time at which these tests begin, in microseconds. A tick of every job is due at this time.
/// `BEGAN` is the same moment, as a time since the simulation began.
const EPOCH: u64 = 1_700_001_072_000_000;
const BEGAN: Duration = Duration::from_secs(1_072);
const NODES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];

fn at(ms: u64) -> WallTime {
    WallTime::from_micros(EPOCH + ms * 1_000)
}

/// A history in which every job is registered from the time 0 on. Each test adds correct or wrong events to it.
struct History(Ticks, u64);

impl History {
    fn new() -> Self {
        let mut history = Self(Ticks::default(), 0);
        for job in specs() {
            (0..3).for_each(|node| history.registered(node, job.name, 0).unwrap());
        }
        history
    }

    /// Reports that a server stores a record that the leader of `term` has written.
    fn written(&mut self, node: usize, term: u64, key: &str, value: Arc<str>) -> Result<(), String> {
        let request = made::put(GROUP, term, key, value);
        self.0.see(BEGAN, &Event::Ran { node: NODES[node], request: &request, reply: &Reply::Written })
    }

    fn registered(&mut self, node: usize, job: &str, since: u64) -> Result<(), String> {
        let row = JobRow { since: at(since), ..JobRow::default() };
        self.written(node, 1 + since, &JobRow::key(job), row.to_value())
    }

    /// Reports that the first `servers` servers store the *started* record of a tick, or its closed record if
    /// `last` is true.
    fn stands(&mut self, job: &str, due: u64, term: u64, last: bool, servers: usize) {
        (0..servers).for_each(|node| self.stores(node, (job, due), term, &record(term, last)));
    }

    /// Reports that a server, which the leader of `term` has marked, stores a record of a tick that this leader has written.
    fn stores(&mut self, node: usize, (job, due): (&str, u64), term: u64, record: &RunRecord) {
        let mark = made::mark(GROUP, term);
        let marked = Event::Ran { node: NODES[node], request: &mark, reply: &Reply::Written };
        self.0.see(BEGAN, &marked).unwrap();
        self.written(node, term, &RunKey::new(job, at(due)).key(), record.to_value()).unwrap();
    }

    fn start(&mut self, start: &TickStart) -> Result<(), String> {
        self.0.see(Duration::ZERO, &Event::TickStarted(start))
    }

    /// Reports a correct run of a tick, from its record to its end.
    fn run(&mut self, job: &str, due: u64, term: u64) -> Result<(), String> {
        self.stands(job, due, term, false, 3);
        self.1 += 1;
        self.start(&TickStart { run: self.1, ..tick(job, due, term) })?;
        self.end(self.1, RunOutcome::Itself)
    }

    fn end(&mut self, run: u64, end: RunOutcome) -> Result<(), String> {
        self.0.see(Duration::ZERO, &Event::TickEnded { run, end })
    }

    fn check_due_ticks(&mut self, served_since: u64, now: u64) -> Result<(), String> {
        let reckoned = Event::Reckoned { served_since: at(served_since), now: at(now) };
        self.0.see(Duration::ZERO, &reckoned)
    }

    /// Reports a correct run of every tick of every job, except the ticks in `but`.
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

    /// Reports that the leader of `term` founds the ledger of `group`.
    fn founded(&mut self, group: &str, ms: u64, term: u64) {
        self.0.see(BEGAN + Duration::from_millis(ms), &Event::Founded { group, term }).unwrap();
    }

    /// Reports to the invariant that the leader declares the tick lost, for this reason.
    fn lost(&mut self, job: &str, due: u64, term: u64, reason: &str) -> Result<(), String> {
        let spec = specs().iter().find(|spec| spec.name == job).unwrap();
        let tick = spec.schedule.format(at(due));
        let lost = Event::TickLost { job, tick: &tick, term, reason };
        self.0.see(BEGAN + Duration::from_secs(9), &lost)
    }
}

/// Returns the *started* record of the leader of `term`, or its closed record if `last` is true.
fn record(term: u64, last: bool) -> RunRecord {
    let under = (FencingToken::new(term), at(0));
    match last {
        true => RunRecord::closed("w", (End::Done, ""), Some(Duration::ZERO), under),
        false => RunRecord::started("w", under),
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
fn an_at_most_once_tick_never_starts_without_a_majority() {
    let mut history = History::new();
    history.stands("once", 500, 1, false, 3);
    assert!(history.start(&tick("once", 500, 1)).is_ok());
    history.stands("once", 1_000, 2, false, 2);
    assert!(history.start(&tick("once", 1_000, 2)).is_err(), "on two servers");
    history.stores(2, ("once", 1_000), 3, &record(2, false));
    assert!(history.start(&tick("once", 1_000, 2)).is_err(), "the next leader copied it to the third");
    history.stores(2, ("once", 1_000), 2, &record(2, false));
    assert!(history.start(&tick("once", 1_000, 2)).is_ok());
}

#[test]
fn at_least_once_is_over_when_it_is_done_on_a_majority() {
    let mut history = History::new();
    history.run("each", 700, 1).unwrap();
    history.run("each", 700, 2).unwrap();
    history.stands("each", 700, 2, true, 3);
    assert!(history.run("each", 700, 3).is_err());
    history.stands("each", 1_400, 2, true, 2);
    history.stores(4, ("each", 1_400), 3, &record(3, true));
    assert!(history.run("each", 1_400, 4).is_ok(), "no leader stored its record on a majority");
    let stood = TickStart { clock_stood: true, ..tick("each", 700, 1) };
    assert!(history.start(&stood).is_ok(), "a worker whose clock stood still does not know");
    history.founded("another", 800, 4);
    assert!(history.run("each", 700, 4).is_err(), "the ledger goes on");
    history.founded(GROUP, 800, 4);
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
fn every_due_tick_is_accounted_for() {
    let check_due_ticks = |but: &[(&str, u64)], then: &dyn Fn(&mut History)| {
        let mut history = History::new();
        history.run_all_but(9_000, but);
        then(&mut history);
        history.check_due_ticks(6_000, 9_000)
    };
    let nothing = |_: &mut History| {};
    assert_eq!(check_due_ticks(&[], &nothing), Ok(()));
    assert!(check_due_ticks(&[("each", 700)], &nothing).is_err(), "a tick of a job that catches up all");
    assert!(check_due_ticks(&[("once", 500)], &nothing).is_err(), "neither started nor reported");
    let founded = |history: &mut History| history.founded(GROUP, 8_000, 2);
    assert!(check_due_ticks(&[("once", 500)], &founded).is_err(), "the ledger was founded, and not reported");
    let written = |history: &mut History| history.stands("once", 500, 1, false, 1);
    assert!(check_due_ticks(&[("once", 500)], &written).is_err(), "written, neither started nor reported");
    let reported = |history: &mut History| {
        written(history);
        history.lost("once", 500, 1, STARTED).unwrap();
    };
    assert!(check_due_ticks(&[("once", 500)], &reported).is_ok());
    for missed in [("latest", 1_100), ("fresh", 900), ("cron", 2_000)] {
        assert!(check_due_ticks(&[missed], &nothing).is_ok(), "{missed:?} was before the peace");
    }
    for missed in [("once", 6_500), ("latest", 6_600), ("fresh", 6_300), ("cron", 8_000)] {
        assert!(check_due_ticks(&[missed], &nothing).is_err(), "{missed:?} in peace");
        let (job, due) = missed;
        let written = check_due_ticks(&[missed], &|history| history.stands(job, due, 1, false, 3));
        assert!(written.is_err(), "{missed:?} was written and not started");
    }
    assert!(check_due_ticks(&[("each", 8_400)], &nothing).is_ok(), "that may be yet to come");
}

#[test]
fn an_interrupted_tick_runs_again_until_it_ends() {
    let mut history = History::new();
    history.run_all_but(9_000, &[("each", 700)]);
    history.stands("each", 700, 1, false, 3);
    history.start(&TickStart { run: 1_000, ..tick("each", 700, 1) }).unwrap();
    history.end(1_000, RunOutcome::Torn).unwrap();
    assert!(history.check_due_ticks(6_000, 9_000).is_err());
    history.run("each", 700, 2).unwrap();
    assert_eq!(history.check_due_ticks(6_000, 9_000), Ok(()));
}

const UNKNOWN: &str = "a majority of the nodes has forgotten whether an earlier leader started it";
const STARTED: &str = "it was started by w0, who left no word of its end";

/// Checks when a leader may report a tick as unknown: only if the ledger was founded since the tick.
#[test]
fn a_tick_is_unknown_only_if_the_ledger_was_founded_since() {
    let report = |group: &str, founded: u64, due: u64| {
        let mut history = History::new();
        history.founded(group, founded, 2);
        history.lost("once", due, 2, UNKNOWN)
    };
    assert!(History::new().lost("once", 500, 2, UNKNOWN).is_err(), "it was not founded");
    assert_eq!(report(GROUP, 800, 500), Ok(()));
    assert_eq!(report(GROUP, 800, 1_500), Ok(()), "clocks may differ by a second");
    assert!(report(GROUP, 800, 2_000).is_err(), "it was founded before");
    assert!(report("another", 800, 500).is_err(), "the ledger of another group");
}

#[test]
fn a_tick_reported_as_lost_was_started_by_the_reported_term() {
    let mut history = History::new();
    assert!(history.lost("once", 500, 1, STARTED).is_err(), "no term wrote that it started");
    history.stands("once", 500, 1, false, 1);
    assert!(history.lost("once", 500, 1, STARTED).is_ok());
    assert!(history.lost("once", 500, 2, STARTED).is_err(), "another term");
    assert!(history.lost("once", 500, 1, "bad luck").is_err(), "no reason");
    history.stands("each", 700, 1, false, 1);
    assert!(history.lost("each", 700, 1, STARTED).is_err(), "at least once");
    let never = Event::TickLost { job: "once", tick: "1970-01-01", term: 1, reason: STARTED };
    assert!(history.0.see(BEGAN, &never).is_err(), "it was never due");
}

#[test]
fn a_registration_begins_again_only_after_a_founding() {
    let begins_again = |founded: &[&str], servers: usize| {
        let mut history = History::new();
        history.run_all_but(9_000, &[("each", 700)]);
        founded.iter().for_each(|group| history.founded(group, 800, 2));
        (0..servers).try_for_each(|node| history.registered(node, "each", 5_000))?;
        history.check_due_ticks(6_000, 9_000)
    };
    let why = begins_again(&[], 3).unwrap_err();
    assert!(why.contains("is registered again"), "{why}");
    assert!(begins_again(&["another"], 3).unwrap_err().contains("is registered again"));
    assert_eq!(begins_again(&[GROUP], 3), Ok(()), "no leader must account for earlier ticks");
    let why = begins_again(&[GROUP], 2).unwrap_err();
    assert!(why.contains("was never started"), "the earlier registration counts: {why}");
    let mut uncounted = History::new();
    (0..3).for_each(|node| uncounted.registered(node, "each", 5_000).unwrap());
    let mut never = History(Ticks::default(), 0);
    assert!(never.check_due_ticks(0, 9_000).is_err(), "in the fault-free phase a leader registers its jobs");
}
