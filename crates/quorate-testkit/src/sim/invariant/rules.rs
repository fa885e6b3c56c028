use super::{Event, Invariant};
use crate::sim::{
    RuleRun, RuleStep,
    worker::{DoneTicks, EACH, FAILURES, FIRST, KEY_LIMIT, NEXT, RULES},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The longest TTL of the group.
const LONGEST_TTL: Duration = Duration::from_millis(2_500);

/// Requires of the third group that no more runs with its concurrency key are active than the limit permits, that a run
/// follows another one only after that one has succeeded, and once for each tick, that a run that requires a label starts
/// only on a worker that has it, and that a job for every worker runs a tick at most once on each, and only as the part of that
/// worker, and that a job is paused after its failed runs in a row, also if their leaders change.
///
/// Not judged are runs of a process that is paused or has just been resumed, or whose boot clock stood still, and runs that
/// began before the ledger was founded: the leader does not know them, and their sessions end within a TTL.
#[derive(Debug, Default)]
pub(super) struct Rules {
    founded: Duration,
    founded_again: Option<Duration>,
    done: DoneTicks,
    followed: BTreeSet<quorate::env::WallTime>,
    full: u64,
    /// The failed runs since the ledger was founded.
    failed: u32,
    paused: u64,
    labelled: u64,
    /// The parts that have run each tick of the job for every worker.
    each: BTreeSet<(quorate::env::WallTime, String)>,
}

impl Invariant for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        let followed = u64::try_from(self.followed.len()).unwrap_or(u64::MAX);
        vec![
            ("run that took the last of a key", self.full),
            ("run that follows another", followed),
            ("run that requires a label", self.labelled),
            ("tick that several workers ran", self.ticks_of_several()),
            ("job paused after failures", self.paused),
        ]
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Founded { group, .. } if *group == RULES => {
                self.founded_again = (self.founded > Duration::ZERO).then_some(now);
                (self.founded, self.failed) = (now, 0);
            }
            Event::Ruled(RuleRun { worker, job, tick, step }) => match step {
                RuleStep::Begins { beside } => {
                    let active = 1 + beside.iter().filter(|began| **began > self.founded).count();
                    self.full += u64::from(active == KEY_LIMIT);
                    if active > KEY_LIMIT {
                        return Err(format!(
                            "{worker} starts {job}, due at {tick:?}, as run {active} of the key"
                        ));
                    }
                }
                RuleStep::Done if *job == FIRST => drop(self.done.insert(*tick)),
                RuleStep::Done => {}
                RuleStep::Follows if !self.done.contains(tick) => {
                    return Err(format!("{worker} starts {NEXT} of {tick:?}, and {FIRST} has not succeeded"));
                }
                RuleStep::Follows if !self.followed.insert(*tick) => {
                    return Err(format!("{worker} starts {NEXT} of {tick:?} a second time"));
                }
                RuleStep::Follows => {}
                // A session of before the founding lasts for at most one TTL.
                RuleStep::Fails if self.founded_again.is_some_and(|at| now < at + LONGEST_TTL) => {}
                RuleStep::Fails if self.failed == FAILURES => {
                    return Err(format!("{worker} starts {job} of {tick:?} after {FAILURES} failed runs"));
                }
                RuleStep::Fails => {
                    self.failed += 1;
                    self.paused += u64::from(self.failed == FAILURES);
                }
                RuleStep::OnEvery { part } if **part != *format!("{EACH}@{worker}") => {
                    return Err(format!("{worker} starts {part} of {tick:?}, which is for another worker"));
                }
                RuleStep::OnEvery { part } if !self.each.insert((*tick, part.clone())) => {
                    return Err(format!("{worker} starts {part} of {tick:?} a second time"));
                }
                RuleStep::OnEvery { .. } => {}
                RuleStep::NeedsLabel { has_it: true } => self.labelled += 1,
                RuleStep::NeedsLabel { has_it: false } => {
                    return Err(format!("{worker} starts {job}, due at {tick:?}, without its label"));
                }
            },
            _ => {}
        }
        Ok(())
    }
}

impl Rules {
    fn ticks_of_several(&self) -> u64 {
        let mut counts = BTreeMap::<_, u64>::new();
        self.each.iter().for_each(|(tick, _)| *counts.entry(tick).or_default() += 1);
        counts.values().filter(|count| **count > 1).map(|_| 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::env::WallTime;

    #[test]
    fn runs_of_a_key_are_counted_and_each_success_is_followed_once() {
        let mut rules = Rules::default();
        let (ms, at) = (Duration::from_millis, WallTime::from_micros);
        let mut see = |now, job, tick, step| {
            let run = RuleRun { worker: "w".into(), job, tick: at(tick), step };
            rules.see(ms(now), &Event::Ruled(&run))
        };
        assert!(see(5, "led", 1, RuleStep::Begins { beside: vec![ms(1)] }).is_ok());
        assert!(see(6, "led", 1, RuleStep::Begins { beside: vec![ms(1), ms(5)] }).is_err());
        assert!(see(7, NEXT, 1, RuleStep::Follows).is_err(), "it has not ended");
        assert!(see(8, FIRST, 1, RuleStep::Done).is_ok() && see(8, NEXT, 1, RuleStep::Follows).is_ok());
        assert!(see(9, NEXT, 1, RuleStep::Follows).is_err(), "a second time");
        rules.see(ms(10), &Event::Founded { group: RULES, term: 1 }).unwrap();
        let run = RuleRun {
            worker: "w".into(),
            job: "led",
            tick: at(2),
            step: RuleStep::Begins { beside: vec![ms(9), ms(5)] },
        };
        assert!(rules.see(ms(11), &Event::Ruled(&run)).is_ok(), "the leader does not know runs of before");
        let run = |has_it| {
            let step = RuleStep::NeedsLabel { has_it };
            RuleRun { worker: "w".into(), job: "labelled", tick: at(3), step }
        };
        assert!(rules.see(ms(12), &Event::Ruled(&run(true))).is_ok());
        assert!(rules.see(ms(13), &Event::Ruled(&run(false))).is_err());
        let each = |worker: &str, part: &str, tick| {
            let step = RuleStep::OnEvery { part: part.to_owned() };
            RuleRun { worker: worker.into(), job: EACH, tick: at(tick), step }
        };
        assert!(rules.see(ms(14), &Event::Ruled(&each("w", "each@w", 4))).is_ok());
        assert!(rules.see(ms(15), &Event::Ruled(&each("v", "each@v", 4))).is_ok());
        assert!(rules.see(ms(16), &Event::Ruled(&each("v", "each@w", 5))).is_err(), "the part of another");
        assert!(rules.see(ms(17), &Event::Ruled(&each("w", "each@w", 4))).is_err(), "a second time");
        assert_eq!(rules.judged().into_iter().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1, 1, 1, 0]);
        let fails =
            |tick| RuleRun { worker: "w".into(), job: "failing", tick: at(tick), step: RuleStep::Fails };
        let mut fail = |now, tick| rules.see(ms(now), &Event::Ruled(&fails(tick)));
        assert!((0..FAILURES).all(|number| fail(20, u64::from(number) + 7).is_ok()));
        assert!(fail(21, 20).is_err());
        rules.see(ms(30), &Event::Founded { group: RULES, term: 2 }).unwrap();
        let mut fail = |now, tick| rules.see(ms(now), &Event::Ruled(&fails(tick)));
        assert!((0..=FAILURES).all(|_| fail(40, 30).is_ok()), "runs of before the founding are not judged");
        assert!((0..FAILURES).all(|number| fail(3_000, u64::from(number) + 40).is_ok()));
        assert!(fail(3_001, 50).is_err());
        assert_eq!(rules.judged().pop(), Some(("job paused after failures", 2)));
    }
}
