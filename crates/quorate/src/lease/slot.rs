//! The part of one node in a held lease.

use crate::{
    env::BootTime,
    node::{FencingToken, Refusal},
    vote::NodeOutcome,
};

const NEVER: BootTime = BootTime::from_nanos(u64::MAX);

/// The state of one node in a held lease: its latest grant, its latest refusal, and the time at which it is asked again. It is
/// kept small, because a worker may hold very many leases.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The time at which the latest request that this node granted was sent. [`NEVER`] without a grant.
    sent: BootTime,
    /// The node's memory epoch at that grant.
    memory: u64,
    /// The time at which the node is asked again. [`NEVER`] if it is not.
    retry_at: BootTime,
    /// The last answer of the node, if the node did not grant. Nearly always, it granted.
    otherwise: Option<Box<Refused>>,
    asked: bool,
    spread: Spread,
}

/// The extension of a held lease to a node that its acquire did not ask, called the *spread*. A lease on a bare majority ends
/// as soon as one of its nodes loses its memory. So a lease that is held for longer is extended to the other nodes. The spread
/// is independent of the renewals: it needs no health check, and it takes place even if the grants already last until the end
/// of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// The acquire did not ask the node, and it was not asked since.
    Unasked,
    /// The node was asked, and is asked again if it does not grant.
    Asked,
    /// The acquire asked the node, or a round of extensions has begun since.
    Over,
}

/// The last answer of a node that did not extend the lease.
#[derive(Debug)]
struct Refused {
    /// The time at which the answer arrived. If the node repeats that it has counted the same later grants, the
    /// time of the first such answer.
    at: BootTime,
    outcome: NodeOutcome,
}

impl Refused {
    /// Returns the counter of a node that reported later grants.
    fn later_grants(&self) -> Option<FencingToken> {
        match self.outcome {
            NodeOutcome::Refused(Refusal::LaterGrants { counter }) => Some(counter),
            _ => None,
        }
    }
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self { sent: NEVER, memory: 0, retry_at: NEVER, otherwise: None, asked: false, spread: Spread::Over }
    }

    /// Notes that the acquire did not ask the node. It is asked at `at`.
    pub(crate) fn spare(&mut self, at: BootTime) {
        (self.spread, self.retry_at) = (Spread::Unasked, at);
    }

    /// Returns true if no message of the lease was sent to the node.
    pub(crate) fn is_unasked(&self) -> bool {
        self.spread == Spread::Unasked
    }

    /// Returns true if the lease was not yet spread to the node.
    pub(crate) fn spreads(&self) -> bool {
        self.spread != Spread::Over
    }

    /// Returns true if a request to the node was not answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Ends the spread, because every node is asked in a round of extensions.
    pub(crate) fn end_spread(&mut self) {
        self.spread = Spread::Over;
    }

    /// Notes that the node is asked now.
    pub(crate) fn asked(&mut self) {
        (self.asked, self.retry_at) = (true, NEVER);
        if self.is_unasked() {
            self.spread = Spread::Asked;
        }
    }

    /// Notes that a request to the node was answered, or will not be.
    pub(crate) fn answered(&mut self) {
        self.asked = false;
    }

    /// Returns the time at which the node is asked again.
    pub(crate) fn retry_at(&self) -> BootTime {
        self.retry_at
    }

    /// Sets the time at which the node is asked again. Without a time, it is not before the next round.
    pub(crate) fn ask_again(&mut self, at: Option<BootTime>) {
        self.retry_at = at.unwrap_or(NEVER);
    }

    /// Returns the time at which the latest request that this node granted was sent.
    pub(crate) fn granted(&self) -> Option<BootTime> {
        (self.sent < NEVER).then_some(self.sent)
    }

    /// Records that the node granted a request that was sent at `sent`. Returns whether this replaces its grant: an earlier
    /// time does not replace a later one of the same memory epoch.
    pub(crate) fn grant(&mut self, sent: BootTime, epoch: u64) -> bool {
        (self.otherwise, self.retry_at) = (None, NEVER);
        let replaces = self.granted().is_none_or(|before| self.memory != epoch || before < sent);
        if replaces {
            (self.sent, self.memory) = (sent, epoch);
        }
        replaces
    }

    /// Removes the node's grant if `ends` says so of its memory epoch. Returns whether there was such a grant.
    pub(crate) fn remove_grant_if(&mut self, ends: impl FnOnce(u64) -> bool) -> bool {
        let removed = self.granted().is_some() && ends(self.memory);
        if removed {
            self.sent = NEVER;
        }
        removed
    }

    /// Notes that the node did not extend the lease.
    pub(crate) fn refused(&mut self, now: BootTime, outcome: NodeOutcome) {
        let before = self.otherwise.take().filter(|before| before.later_grants().is_some());
        let mut refused = Refused { at: now, outcome };
        if let Some(before) = before.filter(|before| before.later_grants() == refused.later_grants()) {
            refused.at = before.at;
        }
        self.otherwise = Some(Box::new(refused));
    }

    /// Returns the last answer of the node if it did not extend the lease.
    pub(crate) fn outcome(&self) -> Option<&NodeOutcome> {
        self.otherwise.as_ref().map(|refused| &refused.outcome)
    }

    /// Returns the counter of a node that reported later grants, and the time at which it first did.
    pub(crate) fn later_grants(&self) -> Option<(FencingToken, BootTime)> {
        let refused = self.otherwise.as_ref()?;
        Some((refused.later_grants()?, refused.at))
    }
}
