use super::{Event, Moments, judge};
use crate::{
    history::{AtLeastOnce, AtMostOnce, Findings, History, Moment, Operation, TickCall},
    sim::{
        Excuse, TickStart,
        invariant::{Invariant, MAJORITY, parsed::run_record},
        worker::{GROUP, specs},
    },
};
use quorate::{
    internals::{RunKey, RunRecord},
    node::{Record, Reply, Request},
    scheduler::Delivery,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

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
    findings: Findings,
}

/// The servers that store the end of a tick, for each term that wrote it, with the moment of the first of them.
#[derive(Debug, Default)]
struct Ends {
    by_term: BTreeMap<u64, (Moment, BTreeSet<String>)>,
}

impl Ends {
    fn are_recorded(&self) -> bool {
        self.by_term.values().any(|(_, on)| on.len() >= MAJORITY)
    }
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
        match event {
            Event::TickStarted(start) => self.started(start, at),
            Event::TickEnded { run, .. } => {
                if let Some((key, worker, since)) = self.active.remove(run) {
                    let call = TickCall::Ended { run: *run };
                    self.push(&key, Operation::during(&worker, call, since, at));
                }
            }
            Event::Ran {
                node,
                request: Request::Write { ledger, key, record, .. },
                reply: Reply::Written,
            } if **ledger == *GROUP => self.written(node, key, record, at),
            Event::Forgot { node } => self.forgot(node, at),
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

    /// Notes that a server stores the end of a tick. Once a majority does, the end is recorded.
    fn written(&mut self, node: &str, key: &str, record: &Record, at: Moment) {
        let Ok(Some(key)) = RunKey::parse(key) else { return };
        let run = || run_record(&record.value);
        if delivery(&key) == Delivery::AtMostOnce || !run().as_ref().as_ref().is_ok_and(RunRecord::is_closed)
        {
            return;
        }
        let ends = self.ends.entry(key.clone()).or_default();
        let recorded = ends.are_recorded();
        let term = record.term.get();
        let (first, on) = ends.by_term.entry(term).or_insert_with(|| (at, BTreeSet::new()));
        on.insert(node.to_owned());
        let first = *first;
        if !recorded && ends.are_recorded() {
            let leader: Arc<str> = format!("the leader of {term}").into();
            self.push(&key, Operation::during(&leader, TickCall::Recorded, first, at));
        }
    }

    fn forgot(&mut self, node: &str, at: Moment) {
        let mut forgotten = Vec::new();
        for (key, ends) in &mut self.ends {
            let recorded = ends.are_recorded();
            for (_, on) in ends.by_term.values_mut() {
                on.remove(node);
            }
            if recorded && !ends.are_recorded() {
                forgotten.push(key.clone());
            }
        }
        let node: Arc<str> = node.into();
        for key in forgotten {
            Excuse::HistoryForgotten.count();
            self.push(&key, Operation::open(&node, TickCall::Forgotten, at));
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
    use quorate::{env::WallTime, node::FencingToken};

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

        fn done_on(&mut self, node: &str, job: &str) {
            let at = WallTime::from_micros(5_000_000);
            let record = RunRecord::done("a", Duration::ZERO, "").into_record(at, FencingToken::new(1));
            self.1 += 1;
            let moment = Moment::from_nanos(self.1 * 1_000_000);
            self.0.written(node, &RunKey::new(job, at).key(), &record, moment);
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
    fn a_tick_starts_again_after_its_recorded_end_only_if_servers_forgot() {
        let run = |forgets: bool| {
            let mut story = Story::new();
            story.start(1, "each", false);
            for node in ["n0", "n1", "n2"] {
                story.done_on(node, "each");
            }
            if forgets {
                story.see(&Event::Forgot { node: "n1" }).unwrap();
            }
            story.start(2, "each", false);
            story.see(&Event::Over)
        };
        assert_eq!(run(true), Ok(()));
        assert!(run(false).is_err());
    }
}
