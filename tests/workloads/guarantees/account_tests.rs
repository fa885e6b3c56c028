//! Tests of [`Story::judge`] with journals that are written by hand. Each kind of error in a journal must
//! cause its own violation, and no other one.

use super::*;
use crate::checks::testing::{acquired, at, done, line, started, who};

const SECOND: u64 = 1_000_000;

/// A correct story that a test edits. The wall clock equals the boot clock. The tick number `n` is due at `n`
/// seconds. The first leader leads term 7 from 500 ms on. A fault hits it at 3400 ms, and the second leader
/// leads term 8 from 3500 ms on. Ticks 1 to 5 of each job start 5 ms after they are due, on the leader of that
/// time, and are done 10 ms later.
struct Edited(Story);

impl Edited {
    fn sound() -> Self {
        let mut story = Self(Story {
            lines: vec![(who(0), acquired(500, TERM, 7, 0)), (who(1), acquired(3500, TERM, 8, 0))],
            changes: vec![Change { kind: Kind::Killed, who: who(0), term: 7, at: at(3400) }],
            clocks: (WallTime::from_micros(0), at(0)),
            until: WallTime::from_micros(5 * SECOND),
        });
        for kind in GUARANTEES {
            for n in 1..=5 {
                let leader = if n <= 3 { (0, 7) } else { (1, 8) };
                story =
                    story.start(kind.name, n, leader, n * 1000 + 5).done(kind.name, n, leader, n * 1000 + 15);
            }
        }
        story
    }

    fn add(mut self, member: usize, entry: Entry) -> Self {
        self.0.lines.push((who(member), entry));
        self
    }

    fn start(self, job: &str, n: u64, (member, term): (usize, u64), ms: u64) -> Self {
        self.add(member, started(ms, job, n * SECOND, term))
    }

    fn done(self, job: &str, n: u64, (member, term): (usize, u64), ms: u64) -> Self {
        self.add(member, done(ms, job, n * SECOND, term))
    }

    fn interrupted(self, job: &str, n: u64, (member, term): (usize, u64), ms: u64) -> Self {
        self.add(member, line(ms, Event::RunInterrupted { job: job.into(), tick: n * SECOND, term }))
    }

    /// Removes the end of a tick. If `start_too` is true, also removes its start.
    fn without(mut self, job: &str, n: u64, start_too: bool) -> Self {
        self.0.lines.retain(|(_, entry)| match &entry.event {
            Event::RunStarted { job: of, tick, .. } if start_too => !(&**of == job && *tick == n * SECOND),
            Event::RunDone { job: of, tick, .. } => !(&**of == job && *tick == n * SECOND),
            _ => true,
        });
        self
    }

    fn fault_at(mut self, ms: u64) -> Self {
        self.0.changes[0].at = at(ms);
        self
    }

    /// Returns the beginnings of the violations, each up to its first colon.
    fn found(&self) -> Vec<String> {
        let violations = self.0.judge().violations;
        violations.iter().map(|text| text.split(':').next().unwrap_or_default().to_owned()).collect()
    }
}

#[test]
fn a_sound_story_has_no_violation_and_all_its_figures() {
    let verdict = Edited::sound().0.judge();
    assert_eq!(verdict.violations, Vec::<String>::new());
    for kind in GUARANTEES {
        let account = Account { due: 5, done: 5, again: 0, explained: Vec::new() };
        assert_eq!(verdict.jobs[kind.name], account);
    }
    let late = [500, 990].map(|per_mille| verdict.late.quantile(per_mille).unwrap().as_millis());
    assert_eq!((late, verdict.longest_gap), ([5, 5], Duration::from_secs(1)));
    assert_eq!(terms(&Edited::sound().0.lines).len(), 2);
}

#[test]
fn a_second_start_is_found_that_no_fault_explains() {
    let twice = |job| Edited::sound().fault_at(3010).start(job, 3, (1, 8), 3600).done(job, 3, (1, 8), 3610);
    assert!(twice("least-quick").found().is_empty(), "the fault came between the start and the record");
    assert_eq!(twice("least-quick").0.judge().jobs["least-quick"].again, 1);
    let without_cause =
        Edited::sound().start("least-quick", 2, (1, 8), 3600).done("least-quick", 2, (1, 8), 3610);
    assert_eq!(without_cause.found(), ["started again"]);
}

/// Checks that an interrupted run may start again only if its term has ended.
#[test]
fn a_run_that_is_interrupted_although_its_term_goes_on_is_found() {
    let job = "least-quick";
    let interrupted = |fault| {
        let again = Edited::sound().without(job, 3, false).interrupted(job, 3, (0, 7), 3100);
        again.fault_at(fault).start(job, 3, (1, 8), 3600).done(job, 3, (1, 8), 3610)
    };
    assert_eq!(interrupted(3050).found(), Vec::<String>::new(), "interrupted after the fault");
    assert_eq!(interrupted(3300).found(), Vec::<String>::new(), "its leader fell by itself, noticed later");
    let mut goes_on = interrupted(3050);
    goes_on.0.changes.clear();
    assert_eq!(goes_on.found(), ["started again"]);
}

#[test]
fn a_tick_that_is_never_done_is_a_violation_or_explained_by_a_fault() {
    for start_too in [true, false] {
        let gone = |job, n, fault| Edited::sound().without(job, n, start_too).fault_at(fault);
        assert_eq!(gone("least-quick", 3, 3010).found(), ["lost"], "no fault excuses it");
        assert_eq!(gone("most-quick", 2, 3400).found(), ["unexplained"], "the fault came long after");
        let explained = gone("most-quick", 3, 3010).0.judge();
        assert_eq!(explained.violations, Vec::<String>::new());
        assert!(explained.jobs["most-quick"].explained[0].contains("SIGKILL"), "{explained:?}");
        // Nothing explains this tick, because no fault hit the second leader.
        assert_eq!(gone("most-quick", 5, 3400).found(), ["unexplained"]);
    }
}

#[test]
fn a_leader_that_resumes_late_and_starts_a_tick_is_found() {
    let late = Edited::sound().without("least-quick", 3, true).start("least-quick", 3, (0, 7), 3600);
    assert_eq!(late.done("least-quick", 3, (0, 7), 3610).found(), ["late start"]);
}

#[test]
fn a_tick_that_is_done_past_its_window_is_found() {
    let late = Edited::sound().without("least-quick", 4, true).start("least-quick", 4, (1, 8), 65_000);
    assert_eq!(late.done("least-quick", 4, (1, 8), 65_100).found(), ["too late"]);
}

#[test]
fn ends_without_a_start_wrong_ticks_and_silent_jobs_are_found() {
    assert_eq!(Edited::sound().done("most-quick", 9, (2, 8), 6000).found(), ["most-quick"]);
    let odd = Edited::sound().add(0, started(1001, "most-quick", SECOND + 1, 7));
    assert_eq!(odd.found(), ["most-quick"]);
    let (silent, mut none) = (GUARANTEES[0].name, Edited::sound());
    let of_silent = |event: &Event| matches!(event, Event::RunStarted { job, .. } | Event::RunDone { job, .. } if &**job == silent);
    none.0.lines.retain(|(_, entry)| !of_silent(&entry.event));
    assert_eq!(none.found(), [silent]);
}
