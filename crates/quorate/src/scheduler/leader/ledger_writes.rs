//! Watches whether the leader can write its ledger. A leader that cannot write starts no run, although its lease may be
//! extended: servers without free memory refuse new data and extend what they have. Such a leader gives up the lead, so
//! that another worker may lead, which perhaps can write.

use crate::{
    election::Term,
    env::BootTime,
    ledger::{WAITING_FIX, WriteObserver},
    measure::CopyMeasures,
    vote::NoMajority,
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The time without a successful write after which the failure is reported: a node that restarts is no reason to alarm
/// anybody.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// The observer of the writes of one term.
#[derive(Debug)]
pub(super) struct LedgerWrites {
    term: Term,
    /// The time without a successful write after which the leader gives up the lead.
    limit: Duration,
    copies: CopyMeasures,
    state: Mutex<State>,
}

impl LedgerWrites {
    pub(super) fn new(term: &Term, limit: Duration, copies: &CopyMeasures) -> Self {
        Self { term: term.clone(), limit, copies: copies.clone(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteObserver for LedgerWrites {
    fn written(&self) {
        if self.state().written() {
            tracing::info!(group = &**self.term.group(), "the ledger is written again");
        }
        // An earlier term of this worker may have ended with an impediment.
        self.term.set_impediment(None);
    }

    fn not_written(&self, report: &NoMajority) {
        // A ledger of which too few nodes have a complete copy waits for another node. Another leader would wait too.
        let limit = (!report.waits_for_copies()).then_some(self.limit);
        let step = self.state().not_written(self.term.env().now(), limit);
        let (group, term) = (&**self.term.group(), self.term.unchecked_token().get());
        let why = || format!("the ledger cannot be written: {report}");
        match step {
            Step::Report => {
                match limit {
                    Some(limit) => tracing::warn!(
                        group,
                        term,
                        "no run starts, and the leader gives up the lead in {limit:?} unless this ends: {}",
                        why()
                    ),
                    None => {
                        tracing::warn!(
                            group,
                            term,
                            "no run starts until this ends: {}; {WAITING_FIX}",
                            why()
                        );
                    }
                }
                self.term.set_impediment(Some(why().into()));
            }
            Step::GiveUp => {
                tracing::warn!(group, term, "gives up the lead after {:?}: {}", self.limit, why());
                self.term.set_impediment(Some(why().into()));
                self.term.give_up();
            }
            Step::Wait => {}
        }
    }

    fn copies(&self, copies: &[(bool, usize)]) {
        self.copies.set(copies.iter().copied());
    }
}

impl Drop for LedgerWrites {
    fn drop(&mut self) {
        self.copies.reset();
    }
}

/// The reaction to a write that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Report,
    Wait,
    GiveUp,
}

/// The writes of one term. This type performs no I/O.
#[derive(Debug, Default)]
struct State {
    /// The time of the first write that failed since the last one that succeeded.
    failing_since: Option<BootTime>,
    /// True once this failure was reported.
    is_reported: bool,
    given_up: bool,
}

impl State {
    /// Notes a write that succeeded. Returns whether a failure was reported before.
    fn written(&mut self) -> bool {
        self.failing_since = None;
        std::mem::take(&mut self.is_reported)
    }

    /// Notes a write that failed at `now`. The lead is given up after `limit`, if there is one.
    fn not_written(&mut self, now: BootTime, limit: Option<Duration>) -> Step {
        let failing = self.failing_since.get_or_insert(now).until(now);
        if limit.is_some_and(|limit| failing >= limit) && !self.given_up {
            (self.is_reported, self.given_up) = (true, true);
            return Step::GiveUp;
        }
        if failing >= limit.map_or(REPORT_AFTER, |limit| REPORT_AFTER.min(limit / 2)) && !self.is_reported {
            self.is_reported = true;
            return Step::Report;
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_once_and_the_lead_is_given_up_after_the_limit() {
        let (mut state, limit) = (State::default(), Duration::from_secs(3));
        let fails = |state: &mut State, ms| {
            state.not_written(BootTime::default() + Duration::from_millis(ms), Some(limit))
        };
        assert!(!state.written());
        assert_eq!(fails(&mut state, 100), Step::Wait, "it may end at once");
        assert!(!state.written());
        assert_eq!(fails(&mut state, 200), Step::Wait);
        assert_eq!(fails(&mut state, 1_199), Step::Wait);
        assert_eq!(fails(&mut state, 1_200), Step::Report);
        assert_eq!(fails(&mut state, 3_199), Step::Wait);
        assert!(state.written() && !state.written(), "the time counts from the last success");
        assert_eq!(fails(&mut state, 3_200), Step::Wait);
        assert_eq!(fails(&mut state, 4_200), Step::Report);
        assert_eq!(fails(&mut state, 6_199), Step::Wait);
        assert_eq!(fails(&mut state, 6_200), Step::GiveUp);
        assert_eq!(fails(&mut state, 9_000), Step::Wait, "only once");
    }

    #[test]
    fn a_ledger_that_waits_for_a_copy_is_reported_and_the_lead_is_kept() {
        let mut state = State::default();
        let waits =
            |state: &mut State, ms| state.not_written(BootTime::default() + Duration::from_millis(ms), None);
        assert_eq!(waits(&mut state, 100), Step::Wait);
        assert_eq!(waits(&mut state, 1_100), Step::Report);
        assert_eq!(waits(&mut state, 60_000), Step::Wait);
    }
}
