use super::{Check, HORIZON, JUST_PAUSED};
use crate::{
    harness::{Entry, Event, Truth},
    work::{NOTIFIED, TERM},
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::{collections::BTreeMap, sync::Arc};

/// Checks that work ends in time. The work of a process must end before the next holder begins. The work must
/// get the notice to step down before its lease ends. A process that is late is excused if it was paused, and
/// if the pause began before the process had to act.
#[derive(Debug, Default)]
pub(crate) struct StepDown {
    terms: BTreeMap<u64, Work>,
    leases: BTreeMap<(Arc<str>, u64), Lease>,
    /// The time of the last event of each process.
    last_event: BTreeMap<Who, BootTime>,
}

#[derive(Debug)]
struct Work {
    who: Who,
    from: BootTime,
    last: BootTime,
}

/// A lease, as the journal of its holder shows it.
#[derive(Debug)]
struct Lease {
    who: Who,
    /// The end of the lease's validity.
    until: BootTime,
    /// The time at which the work got the notice to step down, and the end of validity that the worker knew
    /// then.
    stepped_down: Option<(BootTime, BootTime)>,
    /// The time at which the holder noticed that the lease had ended.
    ended: Option<BootTime>,
    last: BootTime,
}

impl Lease {
    fn violation(&self, resource: &str, last_event: BootTime, truth: &Truth) -> Option<String> {
        let who = self.who;
        match (self.stepped_down, self.ended) {
            (Some((at, until)), _) if until < at && !truth.delayed(who, until, at, JUST_PAUSED) => {
                let late = until.until(at);
                Some(format!(
                    "step-down: {resource}: {who:?} received the notice {late:?} after the end of validity"
                ))
            }
            // If the process itself ended before its work had to get the notice, there is nothing to judge.
            (None, Some(ended)) if last_event > ended + NOTIFIED => {
                let paused = truth.was_paused(who, ended - JUST_PAUSED, ended + NOTIFIED);
                let text = || {
                    format!("step-down: {resource}: {who:?} received no notice; the lease ended at {ended:?}")
                };
                (!paused).then(text)
            }
            _ => None,
        }
    }
}

impl Check for StepDown {
    fn on_event(&mut self, who: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let at = entry.at();
        let last = self.last_event.entry(who).or_default();
        *last = at.max(*last);
        match &entry.event {
            Event::Acquired { resource, token, until, .. } => {
                let until = BootTime::from_nanos(*until);
                let lease = Lease { who, until, stepped_down: None, ended: None, last: at };
                self.leases.insert((Arc::clone(resource), *token), lease);
                if &**resource == TERM {
                    self.terms.insert(*token, Work { who, from: at, last: at });
                }
            }
            Event::Valid { resource, token, until } => {
                self.update(resource, *token, at, |lease| lease.until = BootTime::from_nanos(*until));
            }
            Event::SteppedDown { resource, token } => {
                self.update(resource, *token, at, |lease| lease.stepped_down = Some((at, lease.until)));
            }
            Event::Ended { resource, token } => {
                self.update(resource, *token, at, |lease| lease.ended = Some(at));
            }
            Event::RunStarted { term, .. } | Event::RunDone { term, .. } => {
                if let Some(work) = self.terms.get_mut(term) {
                    work.last = work.last.max(at);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// Judges each lease whose last event is older than [`HORIZON`], and each term whose next term began more
    /// than [`HORIZON`] ago. A process reports a pause after the events that the pause excuses. By now, these
    /// reports have arrived.
    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        let Self { leases, last_event, .. } = self;
        leases.retain(|(resource, _), lease| {
            let ripe = lease.last + HORIZON < now && !truth.is_stopped(lease.who);
            if ripe {
                let last = last_event.get(&lease.who).copied().unwrap_or_default();
                found.extend(lease.violation(resource, last, truth));
            }
            !ripe
        });
        last_event.retain(|who, at| *at + HORIZON * 2 > now || truth.is_stopped(*who));
        // The last term is kept, because its end is judged when the next term begins.
        while let Some((&term, &Work { who, last, .. })) = self.terms.first_key_value() {
            let Some(next) = self.terms.values().nth(1) else { break };
            if next.from + HORIZON > now || truth.is_stopped(who) {
                break;
            }
            if last > next.from && !truth.delayed(who, next.from, last, JUST_PAUSED) {
                let (late, next) = (next.from.until(last), next.who);
                found.push(format!("step-down: {who:?} worked for term {term} {late:?} after {next:?} led"));
            }
            self.terms.remove(&term);
        }
        found
    }

    fn held(&self) -> usize {
        self.terms.len() + self.leases.len()
    }
}

impl StepDown {
    fn update(&mut self, resource: &Arc<str>, token: u64, at: BootTime, change: impl FnOnce(&mut Lease)) {
        if let Some(lease) = self.leases.get_mut(&(Arc::clone(resource), token)) {
            lease.last = at.max(lease.last);
            change(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{acquired, at, done, judge, line, truth, who},
        *,
    };

    fn leads(ms: u64, token: u64) -> Entry {
        acquired(ms, TERM, token, ms + 2000)
    }

    fn stepped_down(ms: u64, token: u64) -> Entry {
        line(ms, Event::SteppedDown { resource: TERM.into(), token })
    }

    fn found(truth: &Truth, lines: &[(usize, Entry)]) -> usize {
        judge(&mut StepDown::default(), truth, lines).len()
    }

    #[test]
    fn work_after_the_next_leader_is_found_unless_a_pause_explains_it() {
        let works = |ms| (0, done(ms, "j", 1, 1));
        assert_eq!(found(&truth(), &[(0, leads(1000, 1)), works(2900), (1, leads(3000, 2))]), 0);
        let bad = |ms| [(0, leads(1000, 1)), (1, leads(3000, 2)), works(ms)];
        assert_eq!(found(&truth(), &bad(3001)), 1);
        let mut paused = truth();
        paused.stopped(who(0), at(1500));
        paused.resumed(who(0), at(2990));
        assert_eq!(found(&paused, &bad(3001)), 0);
        assert_eq!(found(&paused, &bad(3300)), 1, "it ran for 310 ms");
        let mut later = truth();
        later.stalled(who(0), at(4000), at(4500));
        assert_eq!(found(&later, &bad(4501)), 1, "it worked late before the pause");
    }

    #[test]
    fn a_late_step_down_is_found_unless_a_pause_explains_it() {
        assert_eq!(found(&truth(), &[(0, leads(1000, 1)), (0, stepped_down(2600, 1))]), 0);
        let late = [(0, leads(1000, 1)), (0, stepped_down(3001, 1))];
        assert_eq!(found(&truth(), &late), 1);
        // The process reports its pause only after the step-down that the pause excuses.
        let (mut check, mut truth) = (StepDown::default(), truth());
        late.iter().for_each(|(member, line)| assert!(check.on_event(who(*member), line, &truth).is_empty()));
        truth.stalled(who(0), at(2500), at(3002));
        assert!(check.settle(at(100_000), &truth).is_empty());
        assert_eq!(check.held(), 1, "the last term");
    }

    #[test]
    fn a_lease_that_ends_without_a_step_down_is_found() {
        let ended = |ms| line(ms, Event::Ended { resource: TERM.into(), token: 1 });
        let ready = |ms| (0, line(ms, Event::Ready));
        let silent = [(0, leads(1000, 1)), (0, ended(1500)), ready(4000)];
        assert_eq!(found(&truth(), &silent), 1);
        assert_eq!(found(&truth(), &silent[..2]), 0, "it did not live on");
        let at_once = [(0, leads(1000, 1)), (0, ended(1500)), (0, stepped_down(1501, 1)), ready(4000)];
        assert_eq!(found(&truth(), &at_once), 0);
        let mut stalled = truth();
        stalled.stalled(who(0), at(1490), at(3900));
        assert_eq!(found(&stalled, &silent), 0);
    }
}
