use super::{Event, Moments, judge};
use crate::{
    history::{AtLeastOnce, AtMostOnce, Findings, History, Moment, Operation, TickCall},
    sim::{
        Excuse, Stored, TickStart,
        invariant::{Invariant, closed_records::ClosedRecords, memories::Foundings, parsed::run_record},
        scenario::true_wall,
        worker::{GROUP, specs},
    },
};
use quorate::{
    env::WallTime,
    internals::{RunKey, RunRecord},
    scheduler::Delivery,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Requires that the ticks of the first group are linearizable as their job's delivery rule says.
#[derive(Debug, Default)]
pub(in super::super) struct TickHistory {
    moments: Moments,
    at_most_once: History<AtMostOnce>,
    at_least_once: History<AtLeastOnce>,
    /// The active runs, by number.
    active: BTreeMap<u64, (RunKey, Arc<str>, Moment)>,
    /// The stored ends of at-least-once ticks.
    ends: BTreeMap<RunKey, Ends>,
    foundings: Foundings,
    closed: ClosedRecords,
    findings: Findings,
}

/// The closed records of a tick.
#[derive(Debug, Default)]
struct Ends {
    /// The moment at which a server first received one.
    first: Option<Moment>,
    /// The true time at which those of one term counted.
    recorded_at: Option<WallTime>,
    forgotten: bool,
}

impl Invariant for TickHistory {
    fn name(&self) -> &'static str {
        "tick history"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        super::judged!(self.findings, "ticks")
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let at = self.moments.next(now);
        self.foundings.see(true_wall(now), GROUP, event);
        for key in self.closed.see(GROUP, event) {
            self.recorded(&key, true_wall(now), at);
        }
        for stored in event.stored().into_iter().filter(|stored| stored.ledger == GROUP) {
            self.written(stored, true_wall(now), at);
        }
        match event {
            Event::Founded { .. } => self.note_founding(at),
            Event::TickStarted(start) => self.started(start, at),
            Event::TickEnded { run, .. } => {
                if let Some((key, worker, since)) = self.active.remove(run) {
                    let call = TickCall::Ended { run: *run };
                    self.push(&key, Operation::during(&worker, call, since, at));
                }
            }
            Event::Over => {
                // A run that has not ended, such as that of a crashed worker, does nothing any more.
                for (run, (key, worker, since)) in std::mem::take(&mut self.active) {
                    self.push(&key, Operation::open(&worker, TickCall::Ended { run }, since));
                }
                let found = judge(&self.at_most_once, &mut self.findings);
                return judge(&self.at_least_once, &mut self.findings).and(found);
            }
            _ => {}
        }
        Ok(())
    }
}

impl TickHistory {
    fn started(&mut self, start: &TickStart, at: Moment) {
        let key = RunKey::new(&start.job, start.at);
        if delivery(&key) != Delivery::AtMostOnce && Excuse::TickHistoryClock.excuses(start.clock_stood) {
            return;
        }
        self.push(&key, Operation::at(&start.worker, TickCall::Started { run: start.run }, at));
        self.active.insert(start.run, (key, Arc::clone(&start.worker), at));
    }

    /// Notes that a server received a record. Once closed records of a tick count, its end is recorded.
    fn written(&mut self, stored: Stored<'_>, now: WallTime, at: Moment) {
        let Stored { node, key, value, term, .. } = stored;
        let Ok(Some(key)) = RunKey::parse(key) else { return };
        let run = || run_record(value);
        if delivery(&key) == Delivery::AtMostOnce || !run().as_ref().as_ref().is_ok_and(RunRecord::is_closed)
        {
            return;
        }
        self.ends.entry(key.clone()).or_default().first.get_or_insert(at);
        if self.closed.add(&key, term, node) {
            self.recorded(&key, now, at);
        }
    }

    /// Notes that closed records of a tick count from now on.
    fn recorded(&mut self, key: &RunKey, now: WallTime, at: Moment) {
        let ends = self.ends.entry(key.clone()).or_default();
        let Some(first) = ends.first.filter(|_| ends.recorded_at.is_none()) else { return };
        ends.recorded_at = Some(now);
        self.push(key, Operation::during(&"the leader".into(), TickCall::Recorded, first, at));
    }

    /// Notes the ends that the ledger may have lost, because it was founded since they were recorded.
    fn note_founding(&mut self, at: Moment) {
        let lost = |ends: &Ends| ends.recorded_at.is_some_and(|recorded| self.foundings.any_since(recorded));
        let lost = self.ends.iter().filter(|(_, ends)| !ends.forgotten && lost(ends));
        let keys: Vec<RunKey> = lost.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.ends.entry(key.clone()).or_default().forgotten = true;
            Excuse::HistoryForgotten.count();
            self.push(&key, Operation::open(&"a founding".into(), TickCall::Forgotten, at));
        }
    }

    fn push(&mut self, key: &RunKey, operation: Operation<TickCall>) {
        let name = key.key();
        match delivery(key) {
            Delivery::AtMostOnce => self.at_most_once.push(&name, operation),
            _ => self.at_least_once.push(&name, operation),
        }
    }
}

/// Returns the delivery rule of the key's job. A job that does not exist is judged by the stricter rule.
fn delivery(key: &RunKey) -> Delivery {
    specs().iter().find(|spec| *spec.name == *key.job).map_or(Delivery::AtMostOnce, |spec| spec.delivery)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::invariant::pool_log::made;
    use quorate::{
        node::{FencingToken, Reply},
        scheduler::RunOutcome,
    };

    struct Story(TickHistory, u64);

    impl Story {
        fn new() -> Self {
            Self(TickHistory::default(), 0)
        }

        fn see(&mut self, event: &Event<'_>) -> Result<(), String> {
            self.1 += 1;
            self.0.see(Duration::from_millis(self.1), event)
        }

        fn start(&mut self, run: u64, job: &str, clock_stood: bool) {
            let at = WallTime::from_micros(5_000_000);
            let (worker, job, ahead) = ("a".into(), job.into(), Duration::ZERO);
            let start = TickStart {
                run,
                worker,
                job,
                at,
                token: run,
                valid: true,
                true_wall: at,
                ahead,
                clock_stood,
            };
            self.see(&Event::TickStarted(&start)).unwrap();
        }

        fn done_on(&mut self, node: &str, job: &str, term: u64) {
            let at = WallTime::from_micros(5_000_000);
            let end = (RunOutcome::Done, "");
            let record = RunRecord::closed("a", end, Some(Duration::ZERO), (FencingToken::new(term), at));
            let mark = made::mark(GROUP, term);
            self.see(&Event::Ran { node, request: &mark, reply: &Reply::Written }).unwrap();
            let request = made::put(GROUP, term, &RunKey::new(job, at).key(), record.to_value());
            self.see(&Event::Ran { node, request: &request, reply: &Reply::Written }).unwrap();
        }
    }

    #[test]
    fn an_at_most_once_tick_that_starts_twice_is_found() {
        for (job, holds) in [("once", false), ("each", true)] {
            let mut story = Story::new();
            story.start(1, job, false);
            story.start(2, job, true);
            assert_eq!(story.see(&Event::Over).is_ok(), holds, "{job}");
        }
    }

    #[test]
    fn a_tick_starts_again_after_its_recorded_end_only_if_the_ledger_was_founded_since() {
        let run = |before: &str, after: &str, terms: [u64; 3]| {
            let mut story = Story::new();
            story.see(&Event::Founded { group: before, term: 1 }).unwrap();
            story.start(1, "each", false);
            for (node, term) in ["n0", "n1", "n2"].into_iter().zip(terms) {
                story.done_on(node, "each", term);
            }
            story.see(&Event::Forgot { node: "n1" }).unwrap();
            story.see(&Event::Founded { group: after, term: 2 }).unwrap();
            story.start(2, "each", false);
            story.see(&Event::Over)
        };
        assert_eq!(run(GROUP, GROUP, [1, 1, 1]), Ok(()));
        assert!(run(GROUP, "another", [1, 1, 1]).is_err());
        assert_eq!(run(GROUP, "another", [1, 1, 2]), Ok(()), "no leader stored the end on a majority");
    }
}
