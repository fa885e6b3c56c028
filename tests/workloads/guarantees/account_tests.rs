//! Journals by hand: each check finds what it is for, and nothing else.

use super::*;

const SECOND: u64 = 1_000_000;

fn at(ms: u64) -> BootTime {
    BootTime::from_nanos(ms * 1_000_000)
}

fn who(member: usize) -> Who {
    Who { member, run: 1 }
}

/// The wall clock is as the boot clock. The tick number `n` is due at `n` seconds. Two leaders: the first under term 7
/// from 500 ms on, the second under 8 from `change` on. Ticks 1 to 5 of each job start 5 ms after they are due, and are done
/// 10 ms later, by whoever leads then.
struct Doctored(Story);

impl Doctored {
    fn sound() -> Self {
        let mut story = Self(Story {
            lines: vec![
                (who(0), line(500, Event::Leads { term: 7 })),
                (who(1), line(3500, Event::Leads { term: 8 })),
            ],
            changes: vec![Change { kind: Kind::Killed, who: who(0), term: 7, at: at(3400) }],
            clocks: (WallTime::from_micros(0), at(0)),
            until: WallTime::from_micros(5 * SECOND),
        });
        for kind in JOBS {
            for n in 1..=5 {
                let (member, term) = if n <= 3 { (0, 7) } else { (1, 8) };
                story = story.start(kind.name, n, member, term, n * 1000 + 5).done(
                    kind.name,
                    n,
                    member,
                    term,
                    n * 1000 + 15,
                );
            }
        }
        story
    }

    fn start(mut self, job: &str, n: u64, member: usize, term: u64, ms: u64) -> Self {
        let event = Event::Start { job: job.into(), tick: n * SECOND, term, made_up: false };
        self.0.lines.push((who(member), line(ms, event)));
        self
    }

    fn done(mut self, job: &str, n: u64, member: usize, term: u64, ms: u64) -> Self {
        let event = Event::Done { job: job.into(), tick: n * SECOND, term };
        self.0.lines.push((who(member), line(ms, event)));
        self
    }

    fn cut(mut self, job: &str, n: u64, member: usize, term: u64, ms: u64) -> Self {
        let event = Event::Cut { job: job.into(), tick: n * SECOND, term };
        self.0.lines.push((who(member), line(ms, event)));
        self
    }

    /// Without what was written of a tick, or only without its end.
    fn without(mut self, job: &str, n: u64, start_too: bool) -> Self {
        self.0.lines.retain(|(_, entry)| match &entry.event {
            Event::Start { job: of, tick, .. } if start_too => !(&**of == job && *tick == n * SECOND),
            Event::Done { job: of, tick, .. } => !(&**of == job && *tick == n * SECOND),
            _ => true,
        });
        self
    }

    fn fault_at(mut self, ms: u64) -> Self {
        self.0.changes[0].at = at(ms);
        self
    }

    /// What is found, but for the words after the colon.
    fn found(&self) -> Vec<String> {
        let words = self.0.judge().violations;
        words.iter().map(|words| words.split(':').next().unwrap_or_default().to_owned()).collect()
    }
}

fn line(ms: u64, event: Event) -> Entry {
    Entry { at: ms * 1_000_000, event }
}

#[test]
fn a_sound_story_has_no_fault_and_all_its_figures() {
    let verdict = Doctored::sound().0.judge();
    assert_eq!(verdict.violations, Vec::<String>::new());
    for kind in JOBS {
        let account = Account { due: 5, done: 5, again: 0, named: Vec::new() };
        assert_eq!(verdict.jobs[kind.name], account);
    }
    assert_eq!((verdict.late(50), verdict.late(99), verdict.worst_gap_ms), (5, 5, 1000));
    assert_eq!(number_of_terms(&Doctored::sound().0.lines), 2);
}

#[test]
fn a_second_start_is_found_where_there_may_be_none() {
    let twice = |job| Doctored::sound().fault_at(3010).start(job, 3, 1, 8, 3600).done(job, 3, 1, 8, 3610);
    assert_eq!(twice("most-quick").found(), ["started twice"]);
    assert!(twice("least-quick").found().is_empty(), "the fault came between the start and the record");
    assert_eq!(twice("least-quick").0.judge().jobs["least-quick"].again, 1);
    let without_cause =
        Doctored::sound().start("least-quick", 2, 1, 8, 3600).done("least-quick", 2, 1, 8, 3610);
    assert_eq!(without_cause.found(), ["started again"]);
}

/// A run that was cut may start again, but only if its term has ended.
#[test]
fn a_run_that_is_cut_although_its_term_goes_on_is_found() {
    let cut = |fault| {
        let again = Doctored::sound().without("least-quick", 3, false).cut("least-quick", 3, 0, 7, 3100);
        again.fault_at(fault).start("least-quick", 3, 1, 8, 3600).done("least-quick", 3, 1, 8, 3610)
    };
    assert_eq!(cut(3050).found(), Vec::<String>::new(), "cut after the fault");
    assert_eq!(cut(3300).found(), Vec::<String>::new(), "its leader fell by itself, which is noticed later");
    let mut goes_on = cut(3050);
    goes_on.0.changes.clear();
    assert_eq!(goes_on.found(), ["started again"]);
}

#[test]
fn a_tick_that_is_never_done_is_lost_or_named_by_what_caught_it() {
    for start_too in [true, false] {
        let gone = |job, n, fault| Doctored::sound().without(job, n, start_too).fault_at(fault);
        assert_eq!(gone("least-quick", 3, 3010).found(), ["lost"], "no fault excuses it");
        assert_eq!(gone("most-quick", 2, 3400).found(), ["in the dark"], "the fault came long after");
        let named = gone("most-quick", 3, 3010).0.judge();
        assert_eq!(named.violations, Vec::<String>::new());
        assert!(named.jobs["most-quick"].named[0].contains("SIGKILL"), "{named:?}");
        // The second leader was not hit at all.
        assert_eq!(gone("most-quick", 5, 3400).found(), ["in the dark"]);
    }
}

#[test]
fn a_leader_that_wakes_up_late_and_starts_something_is_found() {
    let late = Doctored::sound().without("least-quick", 3, true).start("least-quick", 3, 0, 7, 3600);
    assert_eq!(late.done("least-quick", 3, 0, 7, 3610).found(), ["late start"]);
}

#[test]
fn what_is_done_past_its_window_is_found() {
    let mut late = Doctored::sound().without("least-quick", 4, true);
    late = late.start("least-quick", 4, 1, 8, 65_000).done("least-quick", 4, 1, 8, 65_100);
    assert_eq!(late.found(), ["too late"]);
}

#[test]
fn terms_that_go_back_ends_without_a_start_and_ticks_that_are_none_are_found() {
    let mut back = Doctored::sound();
    back.0.lines.push((who(2), line(6000, Event::Leads { term: 6 })));
    assert_eq!(back.found(), ["terms"]);
    assert_eq!(Doctored::sound().done("most-quick", 9, 2, 8, 6000).found(), ["most-quick"]);
    let mut odd = Doctored::sound();
    let event = Event::Start { job: "most-quick".into(), tick: SECOND + 1, term: 7, made_up: false };
    odd.0.lines.push((who(0), line(1001, event)));
    assert_eq!(odd.found(), ["most-quick"]);
    let silent = JOBS[0].name;
    let mut none = Doctored::sound();
    none.0.lines.retain(|(_, entry)| !matches!(&entry.event, Event::Start { job, .. } | Event::Done { job, .. } if &**job == silent));
    assert_eq!(none.found(), [silent]);
}
