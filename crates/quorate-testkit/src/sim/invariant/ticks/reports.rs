//! Checks of the reports in which a leader says that a tick is lost. The reason in the report must be true.

use super::{MAJORITY, OFFSET, SealedData, Ticks};
use crate::sim::{Excuse, worker::JobSpec};
use quorate::{env::WallTime, internals::RunKey, scheduler::Delivery};
use std::time::Duration;

/// The beginnings of the reasons with which a leader records a tick as skipped.
const SKIPPED: [&str; 3] = ["it came due while", "it waited for longer", "they were missed"];
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
        let was_skipped = SKIPPED.iter().any(|skipped| reason.starts_with(skipped));
        if spec.delivery != Delivery::AtMostOnce && !was_skipped {
            return wrong("a tick of this job starts again until it is done");
        }
        let next = |at: &WallTime| spec.schedule.next_after(*at).filter(|at| *at <= now + OFFSET);
        // Most reports are about a recent tick, and the text of a tick takes time.
        let due: Vec<WallTime> = std::iter::successors(next(&(now - REPORTED_WITHIN)), next).collect();
        let Some(at) = due.into_iter().rev().find(|at| spec.schedule.format(*at) == shown) else {
            return wrong("it was never due");
        };
        let forgets_skip = was_skipped && self.forgets_skip(spec, at, term);
        let tick = self.ticks.entry(RunKey::new(spec.name, at)).or_default();
        let of_all = self.memories.remembering(at, OFFSET);
        let wrong_because = if reason.starts_with("too few nodes remember") {
            self.unanswered += u64::from(of_all >= MAJORITY);
            let answers = self.sealed.get(&term).map(Vec::as_slice).unwrap_or_default();
            let count = answers.iter().filter(|answer| answer.memory + OFFSET <= at).count();
            (answers.is_empty() || count >= MAJORITY)
                .then(|| format!("of the servers that answered its seal {count} remember that time"))
        } else if reason.starts_with("not started: too few nodes can remember") {
            (of_all >= MAJORITY).then(|| format!("{of_all} servers remember that time"))
        } else if was_skipped {
            (!forgets_skip).then(|| {
                "every later leader that sealed remembers the tick, or it was not recorded".to_owned()
            })
        } else if reason.starts_with("it was started by") {
            (!tick.started_on.contains_key(&term))
                .then(|| "no server received a record that it started".to_owned())
        } else if reason.starts_with("not started: another record stands") {
            let others = tick.closed || tick.started_on.keys().any(|other| *other != term);
            (!others).then(|| "no other term has written of it".to_owned())
        } else {
            Some(format!("that is no reason: {reason:?}"))
        };
        match wrong_because {
            Some(why) => wrong(&format!("{reason:?}, but {why}")),
            None => {
                tick.lost = true;
                let answers_lack = reason.starts_with("too few nodes remember") && of_all >= MAJORITY;
                Excuse::TicksUnanswered.excuses(answers_lack);
                Excuse::TicksSkipForgotten.excuses(was_skipped && spec.delivery != Delivery::AtMostOnce);
                Ok(())
            }
        }
    }

    /// Returns `true` if the leader of `term` recorded the tick as skipped, alone or with later ticks, and the answers to
    /// the seal of a later leader do not remember the tick. Another leader may then have started it (rule R2b).
    fn forgets_skip(&self, spec: &JobSpec, at: WallTime, term: u64) -> bool {
        let forgets = |answers: &Vec<SealedData>| {
            answers.iter().filter(|answer| answer.memory + OFFSET <= at).count() < MAJORITY
        };
        let mut records =
            self.ticks.range(RunKey::new(spec.name, at)..).take_while(|(key, _)| *key.job == *spec.name);
        self.sealed.range(term + 1..).any(|(_, answers)| forgets(answers))
            && records.any(|(_, tick)| tick.closed)
    }
}
