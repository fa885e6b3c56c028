use super::Check;
use crate::{
    harness::{Entry, Event, Truth},
    work::{TERM, shards::SHARD},
};
use quorate::env::BootTime;
use quorate_tests::support::Who;
use std::time::Duration;

/// Checks progress. If nothing has prevented progress for the time in [`KINDS`], an event of each kind of work
/// must occur. Progress is possible while a majority of nodes votes, a worker runs, and the director causes no
/// fault.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    last: [BootTime; KINDS.len()],
    /// For each kind of work, the fault-free phase for which a violation was reported. So each phase is
    /// reported only once.
    reported: [Option<BootTime>; KINDS.len()],
    /// The last fault-free phase that was long enough for every limit, and the number of such phases so far.
    judged: (Option<BootTime>, usize),
}

impl Liveness {
    /// Returns the number of fault-free phases so far that were long enough for every limit.
    pub(crate) fn phases(&self) -> usize {
        self.judged.1
    }
}

/// The kinds of work, with the longest time that may pass without an event of each. A crashed holder blocks
/// other workers for its TTL of 2 s. The rest is a margin for a busy machine.
const KINDS: [(&str, Duration); 5] = [
    ("leader", Duration::from_secs(5)),
    ("lock acquired", Duration::from_secs(5)),
    ("run done", Duration::from_secs(7)),
    ("message done", Duration::from_secs(7)),
    ("shard owned", Duration::from_secs(5)),
];

impl Check for Liveness {
    fn on_event(&mut self, _: Who, entry: &Entry, _: &Truth) -> Vec<String> {
        let kind = match &entry.event {
            Event::Acquired { resource, .. } | Event::Valid { resource, .. } if &**resource == TERM => 0,
            Event::Acquired { resource, .. } if resource.starts_with("lock-") => 1,
            Event::RunDone { .. } => 2,
            Event::MessageDone { .. } => 3,
            Event::Acquired { resource, .. } | Event::Valid { resource, .. }
                if resource.starts_with(SHARD) =>
            {
                4
            }
            _ => return Vec::new(),
        };
        self.last[kind] = self.last[kind].max(entry.at());
        Vec::new()
    }

    fn settle(&mut self, now: BootTime, truth: &Truth) -> Vec<String> {
        let Some(calm) = truth.calm_since() else { return Vec::new() };
        if KINDS.iter().all(|(_, bound)| calm.until(now) > *bound) && self.judged.0 != Some(calm) {
            self.judged = (Some(calm), self.judged.1 + 1);
        }
        let mut found = Vec::new();
        for (kind, (what, bound)) in KINDS.iter().enumerate() {
            let waited = self.last[kind].max(calm).until(now);
            if waited > *bound && self.reported[kind] != Some(calm) {
                self.reported[kind] = Some(calm);
                found.push(format!("liveness: no {what} for {waited:?}, though no fault prevents it"));
            }
        }
        found
    }

    fn held(&self) -> usize {
        KINDS.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{at, truth, valid, who},
        *,
    };

    #[test]
    fn work_that_does_not_go_on_without_a_fault_is_found_once() {
        let voting = |count: usize| (0..5).map(|node| node < count).collect::<Vec<_>>();
        let (mut check, mut truth) = (Liveness::default(), truth());
        truth.observe(at(1000), &voting(2), 4);
        assert!(check.settle(at(60_000), &truth).is_empty(), "no majority");
        truth.observe(at(60_000), &voting(3), 4);
        assert!(check.settle(at(64_000), &truth).is_empty(), "not yet");
        check.on_event(who(0), &valid(64_500, TERM, 1, 0), &truth);
        let found = check.settle(at(69_000), &truth);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(check.settle(at(69_100), &truth).is_empty(), "reported before");
        assert_eq!(check.settle(at(70_000), &truth).len(), 1, "now the leader, too");
        truth.disturb(at(70_500));
        assert!(check.settle(at(71_000), &truth).is_empty());
        assert_eq!(check.settle(at(80_000), &truth).len(), 5);
        assert_eq!(check.phases(), 2);
    }
}
