//! Checks of the reports in which a leader says that a tick is lost. The reason in the report must be true.

use super::{OFFSET, Ticks};
use quorate::{env::WallTime, internals::RunKey, scheduler::Delivery};
use std::time::Duration;

/// The longest time after a tick in which a leader may report it as lost. It is longer than any run of the
/// simulation.
const REPORTED_WITHIN: Duration = Duration::from_secs(120);

impl Ticks {
    /// Checks a leader's report that it will not start a tick.
    pub(super) fn lost(
        &mut self,
        job: &str,
        shown: &str,
        term: u64,
        reason: &str,
        now: WallTime,
    ) -> Result<(), String> {
        let wrong =
            |what: &str| Err(format!("{job}, due at {shown}, is reported as lost under {term}: {what}"));
        let Some(spec) = self.jobs.iter().find(|spec| *spec.name == *job) else {
            return wrong("there is no such job");
        };
        if spec.delivery != Delivery::AtMostOnce {
            return wrong("a tick of this job starts again until it is done");
        }
        let next = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= now + OFFSET);
        // Most reports are about a recent tick, and the text of a tick takes time.
        let due: Vec<WallTime> = std::iter::successors(next(&(now - REPORTED_WITHIN)), next).collect();
        let Some(at) = due.into_iter().rev().find(|at| spec.schedule.format(*at) == shown) else {
            return wrong("it was never due");
        };
        let tick = self.ticks.entry(RunKey::new(spec.name, at)).or_default();
        let wrong_because = if reason.starts_with("a majority of the nodes has forgotten") {
            let is_founded = self.foundings.any_since(at - OFFSET);
            (!is_founded).then(|| "the ledger was not founded since".to_owned())
        } else if reason.starts_with("it was started by") {
            (!tick.started_on.contains_key(&term))
                .then(|| "no server received a record that it started".to_owned())
        } else {
            Some(format!("that is no reason: {reason:?}"))
        };
        match wrong_because {
            Some(why) => wrong(&format!("{reason:?}, but {why}")),
            None => {
                tick.lost = true;
                Ok(())
            }
        }
    }
}
