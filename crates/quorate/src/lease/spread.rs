//! The extension of a held lease to the nodes that its acquire did not ask, called the *spread*.

use crate::env::BootTime;
use std::time::Duration;

/// The time for which a lease is held before it is extended to the other nodes. A tenth of the TTL is used instead if it is
/// shorter. Most messages are done by then.
const SPREAD_AFTER: Duration = Duration::from_secs(1);
const NEVER: BootTime = BootTime::from_nanos(u64::MAX);

/// The spread of one lease: the nodes that its acquire did not ask, and when each of these nodes is asked. A
/// lease on a bare majority ends as soon as one of its nodes loses its memory. So a lease that is held for
/// longer is extended to the other nodes.
///
/// The spread is independent of the renewals. It has times of its own, it needs no health check, and it takes
/// place even if the grants already last until the end of the lease.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    nodes: Box<[SparedNode]>,
    retry_every: Duration,
}

#[derive(Debug)]
struct SparedNode {
    node: usize,
    /// The time at which the node is asked next.
    at: BootTime,
    /// True once the node was asked, so that it may hold the lease.
    asked: bool,
}

impl Spread {
    /// Returns the spread of a lease that was acquired at `now`. Its acquire did not ask `nodes`.
    pub(crate) fn new(nodes: &[usize], now: BootTime, ttl: Duration) -> Self {
        let at = now + SPREAD_AFTER.min(ttl / 10);
        let nodes = nodes.iter().map(|&node| SparedNode { node, at, asked: false }).collect();
        Self { nodes, retry_every: ttl / 10 }
    }

    /// Returns the time of the next request, if there is one.
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.nodes.iter().map(|spared| spared.at).filter(|at| *at < NEVER).min()
    }

    pub(crate) fn is_due(&self, node: usize, now: BootTime) -> bool {
        self.nodes.iter().any(|spared| spared.node == node && spared.at <= now)
    }

    /// Notes that `node` is asked, either by the spread or by a round of extensions.
    pub(crate) fn asked(&mut self, node: usize) {
        if let Some(spared) = self.find(node) {
            (spared.at, spared.asked) = (NEVER, true);
        }
    }

    /// Notes that `node` did not extend the lease. Returns `true` if the spread will ask it again.
    pub(crate) fn failed(&mut self, node: usize, now: BootTime) -> bool {
        let at = now + self.retry_every;
        self.find(node).map(|spared| spared.at = at).is_some()
    }

    /// Iterates over the nodes that were never asked, neither by the acquire nor since.
    pub(crate) fn unasked(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().filter(|spared| !spared.asked).map(|spared| spared.node)
    }

    fn find(&mut self, node: usize) -> Option<&mut SparedNode> {
        self.nodes.iter_mut().find(|spared| spared.node == node)
    }
}
