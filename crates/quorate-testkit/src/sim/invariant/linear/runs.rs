use super::{Event, Moments, judge};
use crate::{
    history::{AtLeastOnce, AtMostOnce, Findings, History, Moment, Operation, TickCall},
    sim::{
        RunStart,
        invariant::{Invariant, pool_log::RunOf},
        worker::pool_specs,
    },
};
use quorate::scheduler::Delivery;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Requires that the runs of the second group are linearizable as ticks of their job's delivery rule: those of its
/// schedule, and those of requests. So no run of an at-most-once job starts twice, across all workers, and across
/// crashes and losses of data. No clock matters for that.
#[derive(Debug, Default)]
pub(in super::super) struct RunHistory {
    moments: Moments,
    at_most_once: History<AtMostOnce>,
    at_least_once: History<AtLeastOnce>,
    /// The active runs, by number.
    active: BTreeMap<u64, (Active, Moment)>,
    findings: Findings,
}

#[derive(Clone, Debug)]
struct Active {
    name: Arc<str>,
    worker: Arc<str>,
    delivery: Delivery,
}

impl Invariant for RunHistory {
    fn name(&self) -> &'static str {
        "run history"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        super::judged!(self.findings, "runs")
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let at = self.moments.next(now);
        match event {
            Event::RunStarted(start) => self.started(start, at),
            Event::RunEnded { run, .. } => {
                if let Some((active, since)) = self.active.remove(run) {
                    let call = TickCall::Ended { run: *run };
                    self.push(&active, Operation::during(&active.worker, call, since, at));
                }
            }
            Event::Over => {
                // A run that has not ended, such as that of a crashed worker, does nothing any more.
                for (run, (active, since)) in std::mem::take(&mut self.active) {
                    self.push(&active, Operation::open(&active.worker, TickCall::Ended { run }, since));
                }
                let found = judge(&self.at_most_once, &mut self.findings);
                return judge(&self.at_least_once, &mut self.findings).and(found);
            }
            _ => {}
        }
        Ok(())
    }
}

impl RunHistory {
    fn started(&mut self, start: &RunStart, at: Moment) {
        let Some(spec) = pool_specs().iter().find(|spec| *spec.name == *start.job) else { return };
        let RunOf { job, tick, request } = RunOf::started(start);
        let name = match request {
            Some(request) => format!("{job}, request {request}, {tick:?}"),
            None => format!("{job}, {tick:?}"),
        };
        let active = Active { name: name.into(), worker: Arc::clone(&start.worker), delivery: spec.delivery };
        self.push(&active, Operation::at(&active.worker, TickCall::Started { run: start.run }, at));
        self.active.insert(start.run, (active, at));
    }

    fn push(&mut self, of: &Active, operation: Operation<TickCall>) {
        match of.delivery {
            Delivery::AtMostOnce => self.at_most_once.push(&of.name, operation),
            _ => self.at_least_once.push(&of.name, operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::pool_log::made::{id, start},
        *,
    };
    use quorate::scheduler::RunCause;

    fn judge_starts(starts: &[RunStart]) -> Result<(), String> {
        let mut runs = RunHistory::default();
        for start in starts {
            runs.see(Duration::from_secs(start.run), &Event::RunStarted(start))?;
        }
        runs.see(Duration::from_secs(9), &Event::Over)
    }

    #[test]
    fn only_an_at_least_once_run_starts_again() {
        let run = |job, ticks: &[u64]| {
            let starts: Vec<_> = (1..).zip(ticks).map(|(number, due)| start(number, job, *due)).collect();
            judge_starts(&starts)
        };
        for job in ["any-once", "led-once", "any-each"] {
            assert_eq!(run(job, &[1_000, 2_000]), Ok(()), "another tick of {job}");
        }
        assert_eq!(run("any-each", &[1_000, 1_000]), Ok(()));
        for job in ["any-once", "led-once"] {
            assert!(run(job, &[1_000, 1_000]).unwrap_err().contains("none of 2 can be next"));
        }
        assert!(RunHistory::default().is_timeless());
    }

    #[test]
    fn each_request_has_a_run_of_its_own() {
        let on_request = |run, request| {
            let cause = RunCause::Triggered { id: id(request) };
            RunStart { cause, ..start(run, "any-once", 1_000) }
        };
        let once = [start(1, "any-once", 1_000), on_request(2, 1), on_request(3, 2)];
        assert_eq!(judge_starts(&once), Ok(()), "two requests at one moment, beside the schedule");
        assert!(judge_starts(&[once.to_vec(), vec![on_request(4, 1)]].concat()).is_err());
    }
}
