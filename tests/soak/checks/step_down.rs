use super::{Check, HORIZON};
use crate::{
    journal::{Entry, Event},
    settings::TERM,
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, time::Duration};

/// A process that did not run shortly before cannot have stopped its work in time.
const EXCUSED: Duration = Duration::from_millis(300);

/// Work ends before the next holder begins, and is told to before its lease ends; for processes that run.
#[derive(Debug, Default)]
pub(crate) struct StepDown {
    terms: BTreeMap<u64, Work>,
    /// Until when each lease that is being watched would be valid.
    until: BTreeMap<(String, u64), BootTime>,
}

#[derive(Debug)]
struct Work {
    who: Who,
    from: BootTime,
    last: BootTime,
}

impl Check for StepDown {
    fn take(&mut self, who: Who, entry: &Entry, truth: &Truth) -> Vec<String> {
        let at = entry.at();
        match &entry.event {
            Event::Held { res, token, until, .. } => {
                self.until.insert((res.to_string(), *token), BootTime::from_nanos(*until));
                if &**res == TERM {
                    self.terms.insert(*token, Work { who, from: at, last: at });
                }
            }
            Event::Look { res, token, until } => {
                if let Some(stands) = self.until.get_mut(&(res.to_string(), *token)) {
                    *stands = BootTime::from_nanos(*until);
                }
            }
            Event::Told { res, token } => {
                let until = self.until.get(&(res.to_string(), *token)).copied();
                if let Some(until) = until.filter(|until| *until < at)
                    && !truth.was_stalled(who, at, EXCUSED)
                {
                    let late = until.until(at);
                    return vec![format!(
                        "step-down: {res}: {who:?} was told {late:?} after the end of validity"
                    )];
                }
            }
            Event::TickStart { term, .. } | Event::TickDone { term, .. } => {
                if let Some(work) = self.terms.get_mut(term) {
                    work.last = work.last.max(at);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        self.until.retain(|_, until| *until + HORIZON > now);
        // A term is judged once the next has been there for a while.
        while let Some((&term, &Work { who, last, .. })) = self.terms.first_key_value() {
            let Some(next) = self.terms.values().nth(1) else { break };
            if next.from + HORIZON > now || truth.is_stopped(who) {
                break;
            }
            if last > next.from && !truth.was_stalled(who, last, EXCUSED) {
                let (late, next) = (next.from.until(last), next.who);
                found.push(format!("step-down: {who:?} worked for term {term} {late:?} after {next:?} led"));
            }
            self.terms.remove(&term);
        }
        found
    }

    fn watching(&self) -> usize {
        self.terms.len() + self.until.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, judge, line, who},
        *,
    };

    fn leads(ms: u64, token: u64) -> Entry {
        line(ms, Event::Held { res: TERM.into(), token, asked: 0, until: (ms + 2000) * 1_000_000 })
    }

    fn works(ms: u64, term: u64) -> Entry {
        line(ms, Event::TickDone { job: "j".into(), tick: 1, term })
    }

    fn told(ms: u64, token: u64) -> Entry {
        line(ms, Event::Told { res: TERM.into(), token })
    }

    fn found(truth: &Truth, lines: &[(usize, Entry)]) -> usize {
        judge(&mut StepDown::default(), truth, lines).len()
    }

    #[test]
    fn work_after_the_next_leader_is_found_unless_the_process_did_not_run() {
        let good = [(0, leads(1000, 1)), (0, works(2900, 1)), (1, leads(3000, 2))];
        assert_eq!(found(&Truth::default(), &good), 0);
        let bad = [(0, leads(1000, 1)), (1, leads(3000, 2)), (0, works(3001, 1))];
        assert_eq!(found(&Truth::default(), &bad), 1);
        let mut paused = Truth::default();
        paused.stopped(who(0), at(1500));
        paused.went_on(who(0), at(2990));
        assert_eq!(found(&paused, &bad), 0);
        let mut long_ago = Truth::default();
        long_ago.stalled(who(0), at(1500), at(2500));
        assert_eq!(found(&long_ago, &bad), 1);
    }

    #[test]
    fn a_step_down_after_the_end_is_found() {
        assert_eq!(found(&Truth::default(), &[(0, leads(1000, 1)), (0, told(2600, 1))]), 0);
        assert_eq!(found(&Truth::default(), &[(0, leads(1000, 1)), (0, told(3001, 1))]), 1);
    }
}
