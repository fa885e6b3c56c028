//! What the parent knows because it did it: what stopped whom when, and which node forgot.

use super::settings::{MAJORITY, MAX_TTL};
use quorate::{env::BootTime, quorum::QuorumConfig};
use quorate_tests::support::Who;
use std::{collections::BTreeSet, time::Duration};

/// For how long things are remembered: longer than any check looks back.
const REMEMBERED: Duration = Duration::from_secs(300);
/// A node that forgot begins its quarantine when a worker meets it.
const TO_BE_MET: Duration = Duration::from_millis(600);

/// What happened, by the machine's boot clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// When each process was stopped, and until when; those that still are have no end.
    stops: Vec<(Who, BootTime, Option<BootTime>)>,
    /// When each process says that it was not scheduled.
    stalls: Vec<(Who, BootTime, BootTime)>,
    /// Which node forgot when.
    losses: Vec<(BootTime, usize)>,
    /// When the parent did anything to anybody.
    disturbed: Vec<BootTime>,
    /// Since when a majority of the nodes could vote without a break.
    usable: Option<BootTime>,
    /// Since when there has been a worker that runs.
    staffed: Option<BootTime>,
}

impl Truth {
    pub(crate) fn stopped(&mut self, who: Who, at: BootTime) {
        self.stops.push((who, at, None));
    }

    pub(crate) fn went_on(&mut self, who: Who, at: BootTime) {
        for (other, _, until) in &mut self.stops {
            if *other == who && until.is_none() {
                *until = Some(at);
            }
        }
    }

    pub(crate) fn stalled(&mut self, who: Who, from: BootTime, until: BootTime) {
        self.stalls.push((who, from, until));
    }

    pub(crate) fn forgot(&mut self, node: usize, at: BootTime) {
        self.losses.push((at, node));
    }

    /// A process has ended, however.
    pub(crate) fn ended(&mut self, who: Who, at: BootTime) {
        self.went_on(who, at);
    }

    pub(crate) fn disturb(&mut self, at: BootTime) {
        self.disturbed.push(at);
    }

    /// How many nodes can vote now, and how many workers run.
    pub(crate) fn count(&mut self, now: BootTime, nodes: usize, workers: usize) {
        self.usable = if nodes >= MAJORITY { self.usable.or(Some(now)) } else { None };
        self.staffed = if workers > 0 { self.staffed.or(Some(now)) } else { None };
    }

    /// Since when a majority of nodes could vote without a break; `None` where it cannot.
    pub(crate) fn usable_since(&self) -> Option<BootTime> {
        self.usable
    }

    /// Since when nothing has been in the way of progress; `None` where something is.
    pub(crate) fn calm_since(&self) -> Option<BootTime> {
        Some(self.usable?.max(self.staffed?).max(self.disturbed.last().copied().unwrap_or_default()))
    }

    /// The stop of `who` that began within `after` of `at`, and its end, or now.
    pub(crate) fn stop_after(
        &self,
        who: Who,
        at: BootTime,
        after: Duration,
        now: BootTime,
    ) -> Option<(BootTime, BootTime)> {
        let near = |(other, from, _): &&(Who, BootTime, Option<BootTime>)| {
            *other == who && *from >= at && at.until(*from) <= after
        };
        self.stops.iter().find(near).map(|(_, from, until)| (*from, until.unwrap_or(now)))
    }

    pub(crate) fn is_stopped(&self, who: Who) -> bool {
        self.stops.iter().any(|(other, _, until)| *other == who && until.is_none())
    }

    /// Whether `who` was not scheduled for a while that touches `[at - before, at]`.
    pub(crate) fn was_stalled(&self, who: Who, at: BootTime, before: Duration) -> bool {
        let touches = |from: BootTime, until: BootTime| from <= at && until >= at - before;
        self.stalls.iter().any(|(other, from, until)| *other == who && touches(*from, *until))
            || self.stops.iter().any(|(other, from, until)| {
                *other == who && touches(*from, until.unwrap_or(BootTime::from_nanos(u64::MAX)))
            })
    }

    /// How many different nodes forgot in this time; a second more at both ends, since nobody is that exact.
    pub(crate) fn losses(&self, from: BootTime, until: BootTime) -> usize {
        let second = Duration::from_secs(1);
        let within = |at: BootTime| at + second >= from && at <= until + second;
        let nodes: BTreeSet<usize> =
            self.losses.iter().filter(|(at, _)| within(*at)).map(|(_, node)| *node).collect();
        nodes.len()
    }

    /// Forgets what no check asks for any more.
    pub(crate) fn prune(&mut self, now: BootTime) {
        let old = now - REMEMBERED;
        self.stops.retain(|(_, _, until)| until.is_none_or(|until| until >= old));
        self.stalls.retain(|(_, _, until)| *until >= old);
        self.losses.retain(|(at, _)| *at >= old);
        self.disturbed.retain(|at| *at >= old);
    }
}

/// From when on a node that forgot at `at` may vote again.
pub(crate) fn quarantine_ends(at: BootTime) -> BootTime {
    at + QuorumConfig { max_ttl: MAX_TTL, ..QuorumConfig::default() }.quarantine() + TO_BE_MET
}
