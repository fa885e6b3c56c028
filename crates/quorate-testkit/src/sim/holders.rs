use super::{
    Belief, Forced, Host, NodeList,
    judged_server::{Backer, SeenLease},
};
use quorate::{
    claim::ClaimHandle,
    election::Term,
    env::BootTime,
    lease::{Lease, ReadLease},
    node::{Owner, Resource},
    quorum::QuorumConfig,
    shards::Shard,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The unit of the simulated time.
const TICK: Duration = Duration::from_millis(1);

/// A lease, a term or a claim that a worker's code has received from the library.
#[derive(Clone, Debug)]
pub enum Holder {
    /// A lease. It ends when the last of its clones is dropped.
    Lease(Arc<Lease>),
    /// A reader's lease. It ends when the last of its clones is dropped.
    ReadLease(Arc<ReadLease>),
    /// A handle of a term.
    Term(Term),
    /// A handle of a claim.
    Claim(ClaimHandle),
    /// A handle of a shard.
    Shard(Shard),
}

impl Holder {
    fn is_valid(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.is_valid(),
            Self::ReadLease(lease) => lease.is_valid(),
            Self::Term(term) => term.is_valid(),
            Self::Claim(claim) => claim.fencing_token().is_ok(),
            Self::Shard(shard) => shard.is_valid(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::Lease(lease) => lease.remaining(),
            Self::ReadLease(lease) => lease.remaining(),
            Self::Term(term) => term.remaining(),
            Self::Claim(claim) => claim.remaining(),
            Self::Shard(shard) => shard.remaining(),
        }
    }

    fn is_asked_to_stop(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.step_down_token().is_cancelled(),
            Self::ReadLease(lease) => lease.step_down_token().is_cancelled(),
            Self::Term(term) => term.step_down_token().is_cancelled(),
            Self::Claim(claim) => claim.step_down_token().is_cancelled(),
            Self::Shard(shard) => shard.step_down_token().is_cancelled(),
        }
    }
}

/// A grant of a worker, which the worker and the referee share. The [`Referee`](super::Referee) inspects the
/// grant while the worker uses it.
#[derive(Debug)]
pub struct Held {
    pub(super) id: u64,
    pub(super) host: Arc<Host>,
    pub(super) resource: Resource,
    pub(super) token: u64,
    /// The length of the grace period. The worker is asked to step down when this much time of the grant is
    /// left.
    pub(super) grace: Duration,
    /// The node list of the worker's process.
    pub(super) nodes: NodeList,
    pub(super) holder: Mutex<Option<Holder>>,
    /// The lease as the servers stored it when the referee last looked, by the index of the server.
    pub(super) seen: Mutex<Vec<SeenLease>>,
}

impl Held {
    /// Returns the lease, for the worker to use.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        match &*self.slot() {
            Some(Holder::Lease(lease)) => Some(Arc::clone(lease)),
            _ => None,
        }
    }

    /// Returns the fencing token of the grant.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Takes the lease out, so that the worker can release it. From now on the referee no longer counts the
    /// worker as the lease's holder.
    pub fn take(&self) -> Option<Arc<Lease>> {
        match self.slot().take() {
            Some(Holder::Lease(lease)) => Some(lease),
            _ => None,
        }
    }

    /// Takes the reader's lease out, as [`Held::take`] does for a lease.
    pub fn take_reader(&self) -> Option<Arc<ReadLease>> {
        match self.slot().take() {
            Some(Holder::ReadLease(lease)) => Some(lease),
            _ => None,
        }
    }

    /// Returns `true` if the referee has nothing to inspect any more. The worker has taken the lease out, or
    /// the term or the claim has ended.
    pub(super) fn is_over(&self) -> bool {
        match &*self.slot() {
            None => true,
            Some(Holder::Lease(_) | Holder::ReadLease(_)) => false,
            Some(holder) => !holder.is_valid(),
        }
    }

    pub(super) fn belief(
        &self,
        now: Duration,
        servers: &[Backer<'_>],
        setup: &QuorumConfig,
    ) -> Option<Belief> {
        let slot = self.slot();
        let holder = slot.as_ref()?;
        // The clock is read only once, by `remaining`, so that `valid` and `ending` describe the same moment.
        let remaining = holder.remaining();
        let valid = !remaining.is_zero();
        let mut without_lease = Vec::new();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = servers.iter().map(|server| server.index() + 1).max()
            && seen.len() < most
        {
            seen.resize(most, SeenLease::default());
        }
        let backed_by = servers.iter().filter(|server| self.nodes.has(server.index())).filter(|server| {
            let stores = valid && {
                let is_ours = |owner: &str| self.is_ours(holder, owner);
                server.stores(&self.resource, is_ours, &mut seen[server.index()])
            };
            let excuse = server.grants_nothing().filter(|_| valid && !stores);
            without_lease.extend(excuse);
            stores || excuse.is_some()
        });
        let backed_by = backed_by.count();
        Some(Belief {
            lease: self.id,
            worker: Arc::clone(self.host.name()),
            resource: self.resource.clone(),
            token: self.token,
            valid,
            ending: remaining <= self.grace,
            backed_by,
            without_lease,
            asked_to_stop: holder.is_asked_to_stop(),
            clock_stood: self.clock_stood(remaining, setup),
            sent: {
                let elapsed = setup.validity(self.grace * 5).saturating_sub(remaining);
                now.saturating_sub(elapsed.mul_f64(1.0 + setup.drift_rate) + TICK)
            },
            forced: Forced::default(),
            owner: match holder {
                Holder::Lease(lease) => Some(lease.owner().clone()),
                Holder::ReadLease(lease) => Some(lease.owner().clone()),
                Holder::Shard(shard) => Some(shard.owner().clone()),
                _ => None,
            },
            reads: matches!(holder, Holder::ReadLease(_)),
            awake_for: self.host.awake_since().map(|since| now.saturating_sub(since)),
            nodes: self.nodes.clone(),
        })
    }

    /// Returns `true` if the worker's boot clock stood still after the worker had sent the requests on which
    /// the validity rests.
    fn clock_stood(&self, remaining: Duration, setup: &QuorumConfig) -> bool {
        let machine = self.host.machine();
        machine.stood_at().is_some_and(|stood| {
            let until = BootTime::from_nanos(machine.boot()) + remaining;
            // No simulated worker changes the step-down grace from its default, a fifth of the TTL. The TTL is
            // therefore five times the grace.
            let sent = (until - setup.validity(self.grace * 5)).as_nanos();
            sent <= stood
        })
    }

    /// Returns `true` if a lease that a server stores under the owner token `owner` may be this grant. The
    /// owner tokens of terms and claims are not accessible. For these, only the name of the worker is
    /// compared.
    fn is_ours(&self, holder: &Holder, owner: &str) -> bool {
        match holder {
            Holder::Lease(lease) => owner == lease.owner().as_str(),
            Holder::ReadLease(lease) => owner == lease.owner().as_str(),
            Holder::Shard(shard) => owner == shard.owner().as_str(),
            _ => Owner::from_node(owner).worker() == &**self.host.name(),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
