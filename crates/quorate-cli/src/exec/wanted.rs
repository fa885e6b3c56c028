//! The lock that `quorate exec` acquires: for itself alone, for reading, or one of several numbered slots.

use crate::{args::ExecArgs, config::Config, supervisor::CommandSpec};
use quorate::{
    LeaseOptions,
    lease::{AcquireError, Heartbeat, Lease, Lock, Locks, ReadLease, TryAcquire},
    node::{Owner, Resource},
    quorum::Quorum,
};
use std::time::Duration;

/// The lock, with the settings of its lease.
pub(super) enum Wanted {
    Alone(Lock),
    Reading(Lock<ReadLease>),
    OneOf(Locks),
}

/// The lease under which the command runs.
pub(super) struct Held {
    pub(super) lease: Lease,
    /// The number of the slot, if it is one of several.
    slot: Option<usize>,
    /// True if others may hold the lock at the same time. The lease then has no fencing token.
    is_shared: bool,
}

/// The holder of a lock that was not acquired, if a majority of the nodes names one.
pub(super) struct Contended(pub(super) Option<Owner>);

impl Wanted {
    pub(super) fn new(args: &ExecArgs, config: &Config, quorum: &Quorum, heartbeat: &Heartbeat) -> Self {
        let mut options =
            LeaseOptions::new().ttl(args.ttl.unwrap_or(config.lease.ttl)).renew_while_beating(heartbeat);
        if args.ttl.is_none() {
            options = options.step_down_grace(config.lease.step_down_grace);
        }
        match (args.shared, args.slots) {
            (true, _) => Self::Reading(quorum.read_lock(&args.lock).options(options)),
            (false, Some(slots)) => Self::OneOf(quorum.slots(&args.lock, slots).options(options)),
            (false, None) => Self::Alone(quorum.lock(&args.lock).options(options)),
        }
    }

    /// Makes one attempt.
    pub(super) async fn attempt(&self) -> Result<Result<Held, Contended>, AcquireError> {
        Ok(match self {
            Self::Alone(lock) => held(lock.try_acquire().await?, Held::alone),
            Self::Reading(lock) => held(lock.try_acquire().await?, Held::reading),
            Self::OneOf(slots) => held(slots.try_acquire_any().await?, Held::one_of),
        })
    }

    /// Waits for the lock; without a limit if there is no wait.
    pub(super) async fn acquire(&self, wait: Option<Duration>) -> Result<Held, AcquireError> {
        match self {
            Self::Alone(lock) => waits(lock.clone(), wait, Lock::wait).acquire().await.map(Held::alone),
            Self::Reading(lock) => waits(lock.clone(), wait, Lock::wait).acquire().await.map(Held::reading),
            Self::OneOf(slots) => {
                waits(slots.clone(), wait, Locks::wait).acquire_any().await.map(Held::one_of)
            }
        }
    }

    /// Returns the one lock whose holder keeps the command waiting; `None` if there are several.
    pub(super) fn resource(&self, args: &ExecArgs) -> Option<Resource> {
        match self {
            Self::Alone(_) | Self::Reading(_) => Resource::lock(&args.lock).ok(),
            Self::OneOf(_) => None,
        }
    }
}

fn held<L>(tried: TryAcquire<L>, of: impl FnOnce(L) -> Held) -> Result<Held, Contended> {
    match tried {
        TryAcquire::Acquired(lease) => Ok(of(lease)),
        TryAcquire::Contended { holder, .. } => Err(Contended(holder)),
    }
}

fn waits<L>(lock: L, wait: Option<Duration>, set: impl FnOnce(L, Duration) -> L) -> L {
    match wait {
        Some(wait) => set(lock, wait),
        None => lock,
    }
}

impl Held {
    fn alone(lease: Lease) -> Self {
        Self { lease, slot: None, is_shared: false }
    }

    fn reading(lease: ReadLease) -> Self {
        Self { lease: lease.into_lease(), slot: None, is_shared: true }
    }

    fn one_of((slot, lease): (usize, Lease)) -> Self {
        Self { lease, slot: Some(slot), is_shared: false }
    }

    /// Gives the command the name of what is held, its fencing token, and the number of its slot.
    pub(super) fn describe_to(&self, command: CommandSpec) -> CommandSpec {
        let mut command = command.env("QUORATE_RESOURCE", self.lease.resource().key());
        if !self.is_shared {
            command = command.env("QUORATE_FENCING_TOKEN", self.lease.unchecked_token().to_string());
        }
        match self.slot {
            Some(slot) => command.env("QUORATE_SLOT", slot.to_string()),
            None => command,
        }
    }
}
