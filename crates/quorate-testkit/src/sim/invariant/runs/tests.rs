use super::{super::pool_log::made, *};
use crate::sim::HandlerEnd;

/// Returns an invariant for which every job is registered at 0 s and has run each of its ticks up to 20 s,
/// except those for which `leaves` returns `true`.
fn history(leaves: impl Fn(&str, u64) -> bool) -> Runs {
    let mut runs = Runs::default();
    let specs: Vec<PoolSpec> = runs.log.specs().cloned().collect();
    let mut run = 0;
    for spec in specs {
        made::written(&mut runs, POOL, &JobRow::key(spec.name), &made::row(0, false), 3).unwrap();
        for at in spec.schedule.upcoming(made::at(0), 60).take_while(|at| *at <= made::at(20_000)) {
            run += 1;
            let due = (at.as_micros() - made::at(0).as_micros()) / 1_000;
            if !leaves(spec.name, due) {
                made::ran(&mut runs, &made::start(run, spec.name, due)).unwrap();
            }
        }
    }
    runs
}

fn settle(runs: &mut Runs) -> Result<(), String> {
    made::see(runs, 21_000, &Event::Settled { since: made::at(15_000), until: made::at(21_000) })
}

#[test]
fn a_run_has_a_valid_hold_and_is_due() {
    let mut runs = Runs::default();
    let good = made::start(1, "any-each", 1_500);
    let mut starts = |start: RunStart| made::started(&mut runs, 0, &start);
    assert_eq!(starts(good.clone()), Ok(()));
    assert!(starts(RunStart { valid: false, ..good.clone() }).unwrap_err().contains("hold is over"));
    let early = RunStart { true_wall: made::at(1_200), ..good };
    assert!(starts(early.clone()).unwrap_err().contains("in truth"));
    assert!(starts(RunStart { ahead: Duration::from_millis(200), ..early.clone() }).is_ok());
    let cause = quorate::scheduler::RunCause::Triggered { id: made::id(1) };
    assert!(starts(RunStart { cause, ..early }).is_ok(), "what is asked for is due at once");
}

#[test]
fn a_job_does_not_run_beside_itself() {
    let beside = |job, change: &dyn Fn(&mut Beside)| {
        let mut runs = Runs::default();
        made::started(&mut runs, 0, &made::start(1, job, 0)).unwrap();
        let mut other = Beside {
            run: 1,
            same_process: false,
            awake_for: Some(Duration::from_secs(9)),
            clock_stood: false,
        };
        change(&mut other);
        made::started(&mut runs, 1, &RunStart { beside: vec![other], ..made::start(2, job, 1) })
    };
    let same = |other: &mut Beside| other.same_process = true;
    assert!(beside("any-each", &same).is_err());
    assert!(beside("any-each", &|_| {}).is_err(), "another worker's");
    assert!(beside("led", &|_| {}).is_err());
    assert!(beside("any-allow", &same).is_ok());
    assert!(beside("led", &|other| other.awake_for = None).is_ok(), "its process is paused");
    assert!(beside("led", &|other| other.clock_stood = true).is_ok());
}

#[test]
fn every_tick_is_accounted_for() {
    assert_eq!(settle(&mut history(|_, _| false)), Ok(()));
    let lacks = |job: &'static str, tick| settle(&mut history(move |name, due| name == job && due == tick));
    assert!(lacks("any-each", 2_500).unwrap_err().contains("never started"));
    assert!(lacks("led", 3_200).unwrap_err().contains("never started"));
    assert!(lacks("led-once", 5_200).unwrap_err().contains("neither started nor entered"));
    assert!(lacks("any-once", 4_300).unwrap_err().contains("neither started nor entered"));
    assert!(lacks("any-skip", 3_400).is_ok(), "it skips what was missed");
    assert!(lacks("led", 17_600).unwrap_err().contains("after the faults"));
    let mut asleep =
        history(|name, due| name == "any-skip" && due == 17_000 || name == "any-each" && due == 2_500);
    assert_eq!((settle(&mut asleep), asleep.asleep), (Ok(()), 1), "any-worker jobs do not run at all");
    assert!(settle(&mut Runs::default()).unwrap_err().contains("never registered"));
}

#[test]
fn a_tick_that_was_started_comes_to_an_end() {
    let ends = |ends: &[HandlerEnd]| {
        let mut runs = history(|name, due| name == "any-each" && due == 2_500);
        for (run, end) in (1_000..).zip(ends) {
            made::started(&mut runs, 2_500, &made::start(run, "any-each", 2_500)).unwrap();
            made::ended(&mut runs, 2_501, run, *end).unwrap();
        }
        settle(&mut runs)
    };
    use HandlerEnd::{Done, Dropped, Failed, Interrupted};
    assert!(ends(&[Dropped]).unwrap_err().contains("never came to an end"));
    assert!(ends(&[Interrupted, Dropped]).is_err());
    assert!(ends(&[Dropped, Done]).is_ok() && ends(&[Failed]).is_ok());
}
