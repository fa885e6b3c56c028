use super::*;
use quorate::{
    internals::RunRecord,
    node::{FencingToken, LedgerState},
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

    /// Reports that the first `servers` servers store the *started* record of a tick, or its closed record if
    /// `last` is true.
    fn stands(&mut self, job: &str, due: u64, term: u64, last: bool, servers: usize) {
        let written = if last { RunRecord::done("w", Duration::ZERO, "") } else { RunRecord::started("w") };
        let record = written.into_record(at(due), FencingToken::new(term));
        let key = RunKey::new(job, at(due)).key();
        (0..servers).for_each(|node| self.written(node, &key, &record).unwrap());
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

    /// Reports that a server received a marker. According to the marker, the server's memory begins at
    /// `since`.
    fn marked(&mut self, node: usize, since: u64) {
        let marker = format!("quorate-marker 3\nrun=r\nsince_us={}\nvotes_us=0", at(since).as_micros());
        let request = Request::Mark { expect: None, marker: marker.into() };
        let ran = Event::Ran { node: NODES[node], request: &request, reply: &Reply::Marked };
        self.0.see(Duration::ZERO, &ran).unwrap();
    }

    /// Reports that all servers accept the seal of `term`, and that the leader uses only the answers of the
    /// servers `answered`.
    fn sealed(&mut self, term: u64, answered: &[usize]) -> Result<(), String> {
        (0..NODES.len()).for_each(|node| self.takes_seal(node, term));
        self.goes_by(term, answered)
    }

    fn takes_seal(&mut self, node: usize, term: u64) {
        let request = Request::Seal { ledger: "g".into(), term: FencingToken::new(term), after: None };
        let reply = Reply::Ledger(LedgerState::default().into());
        let ran = Event::Ran { node: NODES[node], request: &request, reply: &reply };
        self.0.see(BEGAN, &ran).unwrap();
    }

    fn goes_by(&mut self, term: u64, answered: &[usize]) -> Result<(), String> {
        let nodes: Vec<&str> = answered.iter().map(|node| NODES[*node]).collect();
        self.0.see(BEGAN, &Event::Sealed { term, nodes: &nodes })
    }

    /// Reports to the invariant that the leader declares the tick lost, for this reason.
    fn lost(&mut self, job: &str, due: u64, term: u64, reason: &str) -> Result<(), String> {
        let spec = specs().iter().find(|spec| spec.name == job).unwrap();
        let tick = spec.schedule.format(at(due));
        let lost = Event::TickLost { job, tick: &tick, term, reason };
        self.0.see(BEGAN + Duration::from_secs(9), &lost)
    }

    fn save(&mut self, node: usize) {
        self.0.see(BEGAN, &Event::Saved { node: NODES[node] }).unwrap();
    }

    fn restore(&mut self, node: usize) {
        self.0.see(BEGAN, &Event::Restored { node: NODES[node] }).unwrap();
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
fn an_at_most_once_tick_never_starts_without_a_majority() {
    let mut history = History::new();
    history.stands("once", 500, 1, false, 3);
    assert!(history.start(&tick("once", 500, 1)).is_ok());
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
    history.stands("each", 1_400, 2, true, 2);
    let other = RunRecord::done("w", Duration::ZERO, "").into_record(at(1_400), FencingToken::new(3));
    history.written(4, &RunKey::new("each", at(1_400)).key(), &other).unwrap();
    assert!(history.run("each", 1_400, 4).is_ok(), "no leader stored its record on a majority");
    let stood = TickStart { clock_stood: true, ..tick("each", 700, 1) };
    assert!(history.start(&stood).is_ok(), "a worker whose clock stood still does not know");
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
    let forgot = |history: &mut History| (0..5).for_each(|node| history.marked(node, 400));
    assert!(check_due_ticks(&[("once", 500)], &forgot).is_err(), "unknown to all, and not reported");
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

const UNKNOWN: &str = "too few nodes remember that time, and the job is at-most-once";
const FORGOTTEN: &str = "not started: too few nodes can remember a record of that time: n0: …";
const STARTED: &str = "it was started by w0, who left no word of its end";
const STANDING: &str = "not started: another record stands: …";

/// Checks when a leader may report a tick as unknown: only if fewer than a majority of all servers both
/// answered the leader's seal and remember the time of the tick.
#[test]
fn a_tick_is_unknown_only_where_no_majority_of_the_answers_remembers_it() {
    let report = |forgot: &[usize], answered: &[usize], due| {
        let mut history = History::new();
        forgot.iter().for_each(|node| history.marked(*node, 400));
        history.sealed(2, answered).unwrap();
        history.lost("once", due, 2, UNKNOWN)
    };
    assert!(report(&[4], &[0, 1, 2, 3, 4], 500).is_err(), "four of five remember");
    assert!(report(&[3, 4], &[0, 1, 2, 3, 4], 500).is_err(), "three of five remember");
    assert!(report(&[4], &[0, 1, 4], 500).is_ok(), "a bare majority answered, and one of it forgot");
    assert!(report(&[4], &[0, 1, 2], 500).is_err(), "one that did not answer forgot");
    assert!(report(&[2, 3, 4], &[0, 1, 2, 3, 4], 500).is_ok(), "two of five remember");
    assert!(report(&[2, 3, 4], &[0, 1, 2, 3, 4], 1_500).is_err(), "and of this all would know");
    let mut unsealed = History::new();
    (0..5).for_each(|node| unsealed.marked(node, 400));
    assert!(unsealed.lost("once", 500, 2, UNKNOWN).is_err(), "its leader has not sealed");
}

#[test]
fn no_write_is_forgotten_while_a_majority_remembers() {
    let mut history = History::new();
    history.marked(4, 400);
    history.marked(3, 400);
    assert!(history.lost("once", 500, 2, FORGOTTEN).is_err(), "three of five remember");
    history.marked(2, 400);
    assert!(history.lost("once", 500, 2, FORGOTTEN).is_ok(), "two of five remember");
    assert!(history.lost("once", 1_500, 2, FORGOTTEN).is_err(), "and of this all would know");
}

#[test]
fn a_tick_reported_as_lost_was_written_by_another_term() {
    let mut history = History::new();
    assert!(history.lost("once", 500, 1, STARTED).is_err(), "no term wrote that it started");
    assert!(history.lost("once", 500, 2, STANDING).is_err(), "nothing is stored");
    history.stands("once", 500, 1, false, 1);
    assert!(history.lost("once", 500, 1, STARTED).is_ok());
    assert!(history.lost("once", 500, 2, STANDING).is_ok());
    assert!(history.lost("once", 500, 1, STANDING).is_err(), "its own record");
    assert!(history.lost("once", 500, 1, "bad luck").is_err(), "no reason");
    history.stands("each", 700, 1, false, 1);
    assert!(history.lost("each", 700, 1, STARTED).is_err(), "at least once");
    let never = Event::TickLost { job: "once", tick: "1970-01-01", term: 1, reason: STARTED };
    assert!(history.0.see(BEGAN, &never).is_err(), "it was never due");
}

#[test]
fn a_leader_uses_a_majority_that_accepted_its_seal() {
    let mut history = History::new();
    (0..3).for_each(|node| history.takes_seal(node, 2));
    assert!(history.goes_by(2, &[0, 1, 2]).is_ok());
    assert!(history.goes_by(2, &[0, 1, 3]).is_err(), "n3 never took it");
    assert!(history.goes_by(2, &[0, 1]).is_err(), "no majority");
    assert!(history.goes_by(2, &[0, 1, 1]).is_err(), "one twice");
    assert!(history.goes_by(3, &[0, 1, 2]).is_err(), "another term");
}

/// Checks that the record of one server is enough to show that a tick has ended.
#[test]
fn a_tick_that_a_leader_knows_to_have_ended_does_not_start() {
    let start = |answered: &[usize]| {
        let mut history = History::new();
        history.stands("each", 700, 1, true, 1);
        history.sealed(2, answered).unwrap();
        history.stands("each", 700, 2, false, 3);
        history.start(&tick("each", 700, 2))
    };
    assert!(start(&[1, 2, 3]).is_ok(), "the one that knows did not answer");
    assert!(start(&[0, 2, 3]).is_err());
}

/// Checks that a server which starts again with its last snapshot reports the records in the snapshot. Here
/// the later *started* record in the snapshot decides, although another server has an earlier end.
#[test]
fn a_server_reports_the_records_of_its_last_snapshot() {
    let starts = |saves: bool| {
        let mut history = History::new();
        history.stands("each", 700, 1, true, 1);
        let key = RunKey::new("each", at(700)).key();
        let later = RunRecord::started("w").into_record(at(700), FencingToken::new(2));
        history.written(1, &key, &later).unwrap();
        if saves {
            history.save(1);
        }
        history.forget(1, 900);
        history.restore(1);
        history.sealed(3, &[0, 1, 2]).unwrap();
        history.start(&tick("each", 700, 3))
    };
    assert!(starts(true).is_ok());
    assert!(starts(false).unwrap_err().contains("when it sealed"));
}

#[test]
fn a_registration_that_a_leader_found_is_not_repeated() {
    let anew = |answered: &[usize]| {
        let mut history = History::new();
        history.forget(0, 800);
        history.sealed(5_001, answered).unwrap();
        history.registered(0, "each", 5_000)
    };
    assert!(anew(&[0, 3, 4]).is_ok(), "none of those that answered has it");
    assert!(anew(&[0, 1, 3]).is_err(), "n1 has it");
}

#[test]
fn a_registration_may_be_lost_with_a_majority_only() {
    let mut history = History::new();
    assert!(history.registered(3, "each", 5_000).is_err(), "three servers know");
    let mut history = History::new();
    history.run_all_but(9_000, &[("each", 700)]);
    history.forget(0, 800);
    history.registered(0, "each", 5_000).unwrap();
    assert_eq!(history.check_due_ticks(6_000, 9_000), Ok(()), "no leader must account for earlier ticks");
    let mut never = History(Ticks::default(), 0);
    assert!(never.check_due_ticks(0, 9_000).is_err(), "in the fault-free phase a leader registers its jobs");
}
