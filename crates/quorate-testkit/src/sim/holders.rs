use super::{Belief, Host, Server};
use quorate::{
    claim::ClaimHandle,
    election::Term,
    env::BootTime,
    lease::Lease,
    node::{Owner, Resource},
    quorum::QuorumConfig,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// What a worker's code has been given.
#[derive(Clone, Debug)]
pub enum Holder {
    /// A lease, which ends when the last of its clones goes.
    Lease(Arc<Lease>),
    /// A look at a term.
    Term(Term),
    /// A look at a claim.
    Claim(ClaimHandle),
}

impl Holder {
    fn is_valid(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.is_valid(),
            Self::Term(term) => term.is_valid(),
            Self::Claim(claim) => claim.fencing_token().is_ok(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Lease(lease) => lease.remaining(),
            Self::Term(term) => term.remaining(),
            Self::Claim(claim) => claim.remaining(),
        }
    }

    fn is_told(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.step_down_token().is_cancelled(),
            Self::Term(term) => term.step_down_token().is_cancelled(),
            Self::Claim(claim) => claim.step_down_token().is_cancelled(),
        }
    }
}

/// Something that the referee can look at while its holder works.
#[derive(Debug)]
pub struct Held {
    pub(super) id: u64,
    pub(super) host: Arc<Host>,
    pub(super) resource: Resource,
    pub(super) token: u64,
    /// How long before its end the holder is told.
    pub(super) grace: Duration,
    pub(super) grip: Mutex<Option<Holder>>,
}

impl Held {
    /// The lease, to work with.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        match &*self.slot() {
            Some(Holder::Lease(lease)) => Some(Arc::clone(lease)),
            _ => None,
        }
    }

    /// Its fencing token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Takes it out: from here on its holder believes nothing.
    pub fn take(&self) -> Option<Arc<Lease>> {
        match self.slot().take() {
            Some(Holder::Lease(lease)) => Some(lease),
            _ => None,
        }
    }

    /// Whether there is anything left to look at. A lease is taken out by its holder; of a term or a claim
    /// that has ended nothing more is to be seen.
    pub(super) fn is_over(&self) -> bool {
        match &*self.slot() {
            None => true,
            Some(Holder::Lease(_)) => false,
            Some(grip) => !grip.is_valid(),
        }
    }

    pub(super) fn belief(
        &self,
        now: Duration,
        servers: &[Weak<Server>],
        setup: &QuorumConfig,
    ) -> Option<Belief> {
        let grip = self.slot().clone()?;
        // One look at the clock for both.
        let remaining = grip.remaining();
        let valid = !remaining.is_zero();
        let backs =
            |server: &Arc<Server>| valid && server.backs(&self.resource, |owner| self.is_ours(&grip, owner));
        Some(Belief {
            lease: self.id,
            worker: Arc::clone(self.host.name()),
            resource: self.resource.clone(),
            token: self.token,
            valid,
            ending: remaining <= self.grace,
            backed_by: servers.iter().filter_map(Weak::upgrade).filter(backs).count(),
            told: grip.is_told(),
            clock_stood: self.clock_stood(&grip, setup),
            owner: match &grip {
                Holder::Lease(lease) => Some(lease.owner().clone()),
                _ => None,
            },
            awake_for: self.host.awake_since().map(|since| now.saturating_sub(since)),
        })
    }

    /// Whether the boot clock has stood still since the requests left on which the validity rests.
    fn clock_stood(&self, grip: &Holder, setup: &QuorumConfig) -> bool {
        let machine = self.host.machine();
        let until = BootTime::from_nanos(machine.boot()) + grip.remaining();
        // The grace is the builder's default, which no worker changes: a fifth of the TTL.
        let sent = (until - setup.validity(self.grace * 5)).as_nanos();
        machine.stood_at().is_some_and(|stood| sent <= stood)
    }

    /// Terms and claims do not tell their owner token, so that their worker's name must do.
    fn is_ours(&self, grip: &Holder, owner: &str) -> bool {
        match grip {
            Holder::Lease(lease) => owner == lease.owner().as_str(),
            _ => Owner::from_node(owner).worker() == &**self.host.name(),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Holder>> {
        self.grip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
