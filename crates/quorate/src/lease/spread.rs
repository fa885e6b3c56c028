//! The extension of a held lease to the nodes that its acquire did not ask.

use crate::env::BootTime;
use std::time::Duration;

/// The time after which a lease that is still held is extended to all nodes. A tenth of the TTL, if that is shorter.
const SPREAD_AFTER: Duration = Duration::from_millis(50);
const NEVER: BootTime = BootTime::from_nanos(u64::MAX);

/// The nodes that an acquire spared. The lease is extended to them once it has been held for a moment, since a lease on
/// a bare majority ends as soon as one of its nodes loses its memory.
///
/// The spread has times of its own. It is no renewal: it needs no health check, and it is also due where the grants
/// already last until the end of the lease.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    nodes: Box<[SparedNode]>,
    retry_every: Duration,
}

#[derive(Debug)]
struct SparedNode {
    node: usize,
    /// The next time to ask the node.
    at: BootTime,
    /// True once the node was asked, so that it may hold the lease.
    asked: bool,
}

impl Spread {
    /// Returns the spread to `nodes` of a lease that was acquired at `now`.
    pub(crate) fn new(nodes: &[usize], now: BootTime, ttl: Duration) -> Self {
        let at = now + SPREAD_AFTER.min(ttl / 10);
        let nodes = nodes.iter().map(|&node| SparedNode { node, at, asked: false }).collect();
        Self { nodes, retry_every: ttl / 10 }
    }

    /// Returns the time of the next request, if there is one.
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.nodes.iter().map(|spared| spared.at).filter(|at| *at < NEVER).min()
    }

    /// Returns whether to ask `node` now.
    pub(crate) fn is_due(&self, node: usize, now: BootTime) -> bool {
        self.nodes.iter().any(|spared| spared.node == node && spared.at <= now)
    }

    /// Records that `node` is asked, here or by a round of extensions.
    pub(crate) fn asked(&mut self, node: usize) {
        if let Some(spared) = self.find(node) {
            (spared.at, spared.asked) = (NEVER, true);
        }
    }

    /// Records that `node` did not extend the lease. Returns `true` if the spread asks it again.
    pub(crate) fn failed(&mut self, node: usize, now: BootTime) -> bool {
        let at = now + self.retry_every;
        self.find(node).map(|spared| spared.at = at).is_some()
    }

    /// Iterates over the nodes that were never asked: no message of the lease has been sent to them.
    pub(crate) fn unasked(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().filter(|spared| !spared.asked).map(|spared| spared.node)
    }

    fn find(&mut self, node: usize) -> Option<&mut SparedNode> {
        self.nodes.iter_mut().find(|spared| spared.node == node)
    }
}
