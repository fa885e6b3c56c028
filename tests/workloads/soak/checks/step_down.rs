use super::{Check, HORIZON};
use crate::{
    journal::{Entry, Event},
    settings::{TERM, TO_BE_TOLD},
    truth::Truth,
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A process that did not run shortly before cannot have stopped its work in time.
const EXCUSED: Duration = Duration::from_millis(300);

/// Work ends before the next holder begins, is told to before its lease ends, and is told at all; for processes
/// that run.
#[derive(Debug, Default)]
pub(crate) struct StepDown {
    terms: BTreeMap<u64, Work>,
    leases: BTreeMap<(Arc<str>, u64), Watched>,
    /// When each process last wrote.
    heard: BTreeMap<Who, BootTime>,
}

#[derive(Debug)]
struct Work {
    who: Who,
    from: BootTime,
    last: BootTime,
}

/// A lease, by the words of the process that holds it.
#[derive(Debug)]
struct Watched {
    who: Who,
    /// Until when it would be valid.
    until: BootTime,
    /// When its work was told, and `until` then.
    told: Option<(BootTime, BootTime)>,
    /// When it was found to be over.
    over: Option<BootTime>,
    last: BootTime,
}

impl Watched {
    fn fault(&self, res: &str, heard: BootTime, truth: &Truth) -> Option<String> {
        let who = self.who;
        match (self.told, self.over) {
            (Some((at, until)), _) if until < at && !truth.was_stalled(who, at, EXCUSED) => {
                let late = until.until(at);
                Some(format!("step-down: {res}: {who:?} was told {late:?} after the end of validity"))
            }
            // One that did not live to be told proves nothing.
            (None, Some(over)) if heard > over + TO_BE_TOLD => {
                let stalled = truth.was_stalled(who, over + TO_BE_TOLD, TO_BE_TOLD + EXCUSED);
                (!stalled)
                    .then(|| format!("step-down: {res}: {who:?} found it over at {over:?}, and was not told"))
            }
            _ => None,
        }
    }
}

impl Check for StepDown {
    fn take(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let at = entry.at();
        let heard = self.heard.entry(who).or_default();
        *heard = at.max(*heard);
        match &entry.event {
            Event::Held { res, token, until, .. } => {
                let until = BootTime::from_nanos(*until);
                let watched = Watched { who, until, told: None, over: None, last: at };
                self.leases.insert((Arc::clone(res), *token), watched);
                if &**res == TERM {
                    self.terms.insert(*token, Work { who, from: at, last: at });
                }
            }
            Event::Look { res, token, until } => {
                self.lease(res, *token, at, |lease| lease.until = BootTime::from_nanos(*until));
            }
            Event::Told { res, token } => {
                self.lease(res, *token, at, |lease| lease.told = Some((at, lease.until)));
            }
            Event::Over { res, token } => self.lease(res, *token, at, |lease| lease.over = Some(at)),
            Event::TickStart { term, .. } | Event::TickDone { term, .. } => {
                if let Some(work) = self.terms.get_mut(term) {
                    work.last = work.last.max(at);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// That a process did not run is in a line after those that it excuses.
    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        let Self { leases, heard, .. } = self;
        leases.retain(|(res, _), lease| {
            let ripe = lease.last + HORIZON < now && !truth.is_stopped(lease.who);
            if ripe {
                found.extend(lease.fault(res, heard.get(&lease.who).copied().unwrap_or_default(), truth));
            }
            !ripe
        });
        heard.retain(|who, at| *at + HORIZON * 2 > now || truth.is_stopped(*who));
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
        self.terms.len() + self.leases.len()
    }
}

impl StepDown {
    fn lease(&mut self, res: &Arc<str>, token: u64, at: BootTime, note: impl FnOnce(&mut Watched)) {
        if let Some(lease) = self.leases.get_mut(&(Arc::clone(res), token)) {
            lease.last = at.max(lease.last);
            note(lease);
        }
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
    fn a_step_down_after_the_end_is_found_unless_the_process_did_not_run() {
        assert_eq!(found(&Truth::default(), &[(0, leads(1000, 1)), (0, told(2600, 1))]), 0);
        let late = [(0, leads(1000, 1)), (0, told(3001, 1))];
        assert_eq!(found(&Truth::default(), &late), 1);
        // That it did not is known later.
        let (mut check, mut truth) = (StepDown::default(), Truth::default());
        late.iter().for_each(|(member, line)| assert!(check.take(who(*member), line, &truth).is_empty()));
        truth.stalled(who(0), at(2500), at(3002));
        assert!(check.settle(at(100_000), &truth).is_empty());
        assert_eq!(check.watching(), 1, "the last term");
    }

    #[test]
    fn a_lease_that_ends_and_nobody_is_told_is_found() {
        let over = |ms| line(ms, Event::Over { res: TERM.into(), token: 1 });
        let ready = |ms| (0, line(ms, Event::Ready));
        let untold = [(0, leads(1000, 1)), (0, over(1500)), ready(4000)];
        assert_eq!(found(&Truth::default(), &untold), 1);
        assert_eq!(found(&Truth::default(), &untold[..2]), 0, "it did not live on");
        let at_once = [(0, leads(1000, 1)), (0, over(1500)), (0, told(1501, 1)), ready(4000)];
        assert_eq!(found(&Truth::default(), &at_once), 0);
        let mut stalled = Truth::default();
        stalled.stalled(who(0), at(1490), at(3900));
        assert_eq!(found(&stalled, &untold), 0);
    }
}
