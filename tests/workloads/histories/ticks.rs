use super::{moment, process};
use crate::{
    checks::HORIZON,
    harness::{Entry, Event, Truth},
};
use quorate::{env::BootTime, scheduler::Delivery};
use quorate_testkit::history::{
    AtLeastOnce, AtMostOnce, Findings, History, Limits, Moment, Operation, TickCall,
};
use quorate_tests::support::Who;
use std::sync::Arc;

/// The runs of ticks.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Returns the delivery rule of a job, by its name.
    delivery: fn(&str) -> Delivery,
    at_most_once: History<AtMostOnce>,
    at_least_once: History<AtLeastOnce>,
    active: Vec<Run>,
    /// The runs that have ended. The lines that show a pause of their process may not have arrived.
    ended: Vec<(Run, BootTime)>,
    runs: u64,
}

#[derive(Clone, Debug)]
struct Run {
    number: u64,
    who: Who,
    job: Arc<str>,
    tick: u64,
    term: u64,
    began: BootTime,
}

impl Runs {
    pub(crate) fn new(delivery: fn(&str) -> Delivery) -> Self {
        let (at_most_once, at_least_once) = (History::default(), History::default());
        Self { delivery, at_most_once, at_least_once, active: Vec::new(), ended: Vec::new(), runs: 0 }
    }

    pub(crate) fn on_event(&mut self, who: Who, entry: &Entry) {
        let at = entry.at();
        match &entry.event {
            Event::Ready => {
                let dead = |run: &mut Run| run.who.member == who.member && run.who.run < who.run;
                let dead: Vec<Run> = self.active.extract_if(.., dead).collect();
                dead.into_iter().for_each(|run| self.end(&run, run.began, Some(moment(at))));
            }
            Event::RunStarted { job, tick, term } => {
                self.runs += 1;
                let (number, job) = (self.runs, Arc::clone(job));
                let run = Run { number, who, job, tick: *tick, term: *term, began: at };
                self.push(&run, Operation::at(&process(who), TickCall::Started { run: number }, moment(at)));
                self.active.push(run);
            }
            Event::RunDone { job, tick, term } | Event::RunInterrupted { job, tick, term } => {
                let of = |run: &Run| (run.who, &run.job, run.tick, run.term) == (who, job, *tick, *term);
                if let Some(found) = self.active.iter().position(of) {
                    self.ended.push((self.active.remove(found), at));
                }
            }
            _ => {}
        }
    }

    /// Adds the ends of runs that are old enough that all pauses of their processes are known.
    pub(crate) fn settle(&mut self, now: BootTime, truth: &Truth) {
        let old: Vec<_> = self.ended.extract_if(.., |(_, at)| *at + HORIZON < now).collect();
        for (run, at) in old {
            let paused = truth.was_paused(run.who, run.began, at);
            self.end(&run, if paused { run.began } else { at }, Some(moment(at)));
        }
    }

    /// Checks the history, after all lines have arrived.
    pub(crate) fn finish(mut self, truth: &Truth) -> Findings {
        let last = self.ended.iter().map(|(_, at)| *at).max().unwrap_or_default();
        self.settle(last + HORIZON * 2, truth);
        for run in std::mem::take(&mut self.active) {
            self.end(&run, run.began, None);
        }
        let mut found = self.at_most_once.check(&Limits::default());
        found.merge(self.at_least_once.check(&Limits::default()));
        found
    }

    fn end(&mut self, run: &Run, from: BootTime, end: Option<Moment>) {
        let (process, call) = (process(run.who), TickCall::Ended { run: run.number });
        self.push(run, Operation { process, call, begin: moment(from), end });
    }

    fn push(&mut self, run: &Run, operation: Operation<TickCall>) {
        let name: Arc<str> = format!("{} {}", run.job, run.tick).into();
        match (self.delivery)(&run.job) {
            Delivery::AtMostOnce => self.at_most_once.push(&name, operation),
            _ => self.at_least_once.push(&name, operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{at, done, line, started, truth, who};

    fn delivery(job: &str) -> Delivery {
        if job == "most" { Delivery::AtMostOnce } else { Delivery::AtLeastOnce }
    }

    fn found(truth: &Truth, lines: &[(Who, Entry)]) -> usize {
        let mut runs = Runs::new(delivery);
        lines.iter().for_each(|(who, entry)| runs.on_event(*who, entry));
        let found = runs.finish(truth);
        assert!(found.undecided.is_empty(), "{found:?}");
        found.violations.len()
    }

    #[test]
    fn an_at_most_once_tick_starts_once() {
        for (job, violations) in [("most", 1), ("least", 0)] {
            let lines = [(who(0), started(1000, job, 7, 1)), (who(0), done(1100, job, 7, 1))];
            assert_eq!(found(&truth(), &lines), 0);
            let again = [(who(1), started(1200, job, 7, 2))];
            assert_eq!(found(&truth(), &[lines.to_vec(), again.to_vec()].concat()), violations, "{job}");
        }
    }

    #[test]
    fn two_active_runs_of_a_tick_are_found_unless_a_process_was_stopped_or_killed() {
        let begin = [(who(0), started(1000, "least", 7, 1)), (who(1), started(1500, "least", 7, 2))];
        let lines = [begin.to_vec(), vec![(who(0), done(1600, "least", 7, 1))]].concat();
        assert_eq!(found(&truth(), &lines), 1);
        let mut truth = truth();
        truth.stopped(who(0), at(1100));
        truth.resumed(who(0), at(1550));
        assert_eq!(found(&truth, &lines), 0);
        let killed = [begin.to_vec(), vec![(Who { run: 2, ..who(0) }, line(1900, Event::Ready))]].concat();
        assert_eq!(found(&truth, &killed), 0);
    }
}
