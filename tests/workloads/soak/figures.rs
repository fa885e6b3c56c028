use crate::{
    harness::{Durations, Entry, Event, Truth},
    work::TERM,
};
use quorate::env::BootTime;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The counters and measurements of a soak test.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) locks: usize,
    pub(super) terms: usize,
    claims: usize,
    lost: usize,
    stalls: usize,
    pub(super) faults: BTreeMap<&'static str, usize>,
    /// The times from the crash of a leader to the next leader. A time counts only if a majority of the nodes
    /// could vote during all of it.
    after_crash: Durations,
    /// The times from the SIGTERM to a leader to the next leader. Here too, a majority must have been able to
    /// vote during all of the time.
    after_sigterm: Durations,
    /// The times from the last event of a valid term to the next leader, whatever ended the term.
    without_leader: Durations,
    /// The times from the notice to step down to the end of validity.
    notice: Durations,
    /// The times from SIGTERM to the end of the process.
    pub(super) to_end: Durations,
    /// The largest resident memory of any worker, in KiB.
    pub(super) memory: u64,
    /// The largest number of entries that the checks held at the same time.
    pub(super) held: usize,
    /// The verdict of the linearizability checker.
    pub(super) linearizability: Value,
    led_until: BootTime,
    ended: Option<(BootTime, bool)>,
    until: BTreeMap<(Arc<str>, u64), BootTime>,
}

impl Figures {
    /// Notes that the leader was killed (`crash` is true), or got SIGTERM.
    pub(super) fn leader_ends(&mut self, at: BootTime, crash: bool) {
        self.ended = Some((at, crash));
    }

    pub(super) fn on_event(&mut self, entry: &Entry, truth: &Truth) {
        let at = entry.at();
        let key = |resource: &Arc<str>, token: &u64| (Arc::clone(resource), *token);
        match &entry.event {
            Event::Acquired { resource, token, until, .. } => {
                self.until.insert(key(resource, token), BootTime::from_nanos(*until));
                match &**resource {
                    TERM => self.elected(at, truth),
                    resource if resource.starts_with("claim/") => self.claims += 1,
                    _ => self.locks += 1,
                }
            }
            Event::Valid { resource, token, until } => {
                self.until.insert(key(resource, token), BootTime::from_nanos(*until));
                if &**resource == TERM {
                    self.led_until = self.led_until.max(at);
                }
            }
            Event::SteppedDown { resource, token } => {
                if let Some(until) = self.until.get(&key(resource, token)) {
                    self.notice.add(at.until(*until));
                }
            }
            Event::Releasing { resource, token } => drop(self.until.remove(&key(resource, token))),
            Event::Ended { resource, token } => {
                self.lost += 1;
                self.until.remove(&key(resource, token));
            }
            Event::Stalled { .. } => self.stalls += 1,
            _ => {}
        }
    }

    /// Removes the leases of processes that ended without reporting the ends of their leases.
    pub(super) fn prune(&mut self, now: BootTime) {
        self.until.retain(|_, until| *until + Duration::from_secs(30) > now);
    }

    fn elected(&mut self, at: BootTime, truth: &Truth) {
        self.terms += 1;
        if self.led_until > BootTime::default() {
            self.without_leader.add(self.led_until.until(at));
        }
        self.led_until = self.led_until.max(at);
        let majority = truth.quorate_since();
        if let Some((ended, crash)) = self.ended.take_if(|(ended, _)| *ended < at)
            && majority.is_some_and(|since| since <= ended)
        {
            let durations = if crash { &mut self.after_crash } else { &mut self.after_sigterm };
            durations.add(ended.until(at));
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "locks": self.locks,
            "terms": self.terms,
            "claims": self.claims,
            "lost": self.lost,
            "faults": self.faults,
            "without_leader_after_crash_ms": self.after_crash.json(),
            "without_leader_after_sigterm_ms": self.after_sigterm.json(),
            "without_leader_ms": self.without_leader.json(),
            "notice_before_end_ms": self.notice.json(),
            "to_end_ms": self.to_end.json(),
            "stalls": self.stalls,
            "worker_memory_kib": self.memory,
            "held_by_checks": self.held,
            "linearizability": self.linearizability,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{acquired, at, truth};

    #[test]
    fn a_time_without_leader_counts_from_the_crash_if_a_majority_could_vote() {
        let (mut truth, mut figures) = (truth(), Figures::default());
        truth.observe(at(500), &[true; 5], 4);
        let elected = |figures: &mut Figures, ms, token, truth: &Truth| {
            figures.on_event(&acquired(ms, TERM, token, 0), truth);
        };
        elected(&mut figures, 1000, 1, &truth);
        figures.leader_ends(at(2000), true);
        elected(&mut figures, 4000, 2, &truth);
        assert_eq!(figures.after_crash.quantile(500), Some(Duration::from_secs(2)));
        assert_eq!(figures.without_leader.quantile(500), Some(Duration::from_secs(3)));
        figures.leader_ends(at(5000), true);
        truth.observe(at(5500), &[true, true, false, false, false], 4);
        truth.observe(at(6000), &[true, true, true, false, false], 4);
        elected(&mut figures, 7000, 3, &truth);
        assert_eq!(figures.after_crash.len(), 1, "there was no majority meanwhile");
    }
}
