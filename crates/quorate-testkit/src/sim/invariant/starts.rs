//! The invariant of the at-most-once jobs of the second group of the simulation, also called the pool. Most
//! of its jobs run on any worker.

use super::{Event, Invariant, pool_log::RunOf};
use crate::sim::{
    RunStart,
    worker::{PoolSpec, pool_specs},
};
use quorate::scheduler::Delivery;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

/// Requires that no run of an at-most-once job starts twice. This holds for the run of a tick, and for each
/// of the runs of a request.
///
/// The guarantee holds across all workers, and across crashes and losses of data. It does not depend on any
/// worker's clock.
#[derive(Debug)]
pub(super) struct Starts {
    jobs: BTreeMap<&'static str, &'static PoolSpec>,
    started: BTreeMap<RunOf, u64>,
}

impl Default for Starts {
    fn default() -> Self {
        let jobs = pool_specs().iter().map(|spec| (spec.name, spec)).collect();
        Self { jobs, started: BTreeMap::new() }
    }
}

impl Invariant for Starts {
    fn name(&self) -> &'static str {
        "starts"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("at-most-once run judged", self.started.len() as u64)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::RunStarted(start) = event else { return Ok(()) };
        let RunStart { run, worker, job, at, cause, .. } = start;
        let spec = self.jobs.get(&**job).ok_or_else(|| format!("there is no job {job}"))?;
        if spec.delivery != Delivery::AtMostOnce {
            return Ok(());
        }
        match self.started.entry(RunOf::started(start)) {
            Entry::Vacant(place) => {
                place.insert(*run);
                Ok(())
            }
            Entry::Occupied(first) => Err(format!(
                "{worker} starts run {run} of {job}, due at {at:?} ({cause}), which run {} has started before",
                first.get()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pool_log::made, *};
    use quorate::scheduler::RunCause;

    #[test]
    fn an_at_most_once_run_starts_once_and_others_again() {
        let mut starts = Starts::default();
        for job in ["any-once", "led-once", "any-each"] {
            assert_eq!(made::started(&mut starts, 0, &made::start(1, job, 1_000)), Ok(()), "{job}");
            assert_eq!(made::started(&mut starts, 0, &made::start(2, job, 2_000)), Ok(()), "another tick");
        }
        assert!(made::started(&mut starts, 0, &made::start(3, "any-each", 1_000)).is_ok());
        assert!(made::started(&mut starts, 0, &made::start(4, "led-once", 1_000)).is_err());
        let why = made::started(&mut starts, 0, &made::start(5, "any-once", 1_000)).unwrap_err();
        assert!(why.contains("run 1 has started before"), "{why}");
        // Two requests at the same moment make two different runs, so both may start.
        let on_request = |run, id| {
            let cause = RunCause::Triggered { id: made::id(id) };
            RunStart { cause, ..made::start(run, "any-once", 1_000) }
        };
        assert!(made::started(&mut starts, 0, &on_request(6, 1)).is_ok());
        assert!(made::started(&mut starts, 0, &on_request(7, 2)).is_ok());
        assert!(made::started(&mut starts, 0, &on_request(8, 1)).is_err());
        assert!(starts.is_timeless());
    }
}
