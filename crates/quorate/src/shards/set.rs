use super::{Shard, assignment::Announcement};
use crate::{
    backoff::Backoff,
    config::SettingError,
    env::Env,
    lease::{Bell, Lease, LeaseOptions, Lock},
    ledger::Ledger,
    measure::ShardMeasures,
    node::Resource,
    quorum::Quorum,
    session::Sessions,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The longest time between two looks at what the workers of a set have written, if the nodes do not report the bell.
const LOOK_EVERY_UNHEARD: Duration = Duration::from_millis(250);

/// The parts that all tasks of one run of a set share.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) quorum: Quorum,
    pub(super) name: Arc<str>,
    /// The name of the set's sessions and ledgers. No group can have it.
    pub(super) group: Arc<str>,
    pub(super) who: Announcement,
    pub(super) options: LeaseOptions,
    pub(super) ttl: Duration,
    /// The time that the work of a shard has to end when the shard is handed over, or at a shutdown.
    pub(super) grace: Duration,
    pub(super) backoff: Backoff,
    pub(super) sessions: Sessions,
    /// Has the plan.
    pub(super) ledger: Ledger,
    /// Has the announcements.
    pub(super) workers: Ledger,
    pub(super) bell: Bell,
    pub(super) held: Held,
    pub(super) measures: ShardMeasures,
    /// The number of reads of the plan that have begun.
    pub(super) reads: AtomicU64,
}

/// The shards that a worker owns at present.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<Mutex<BTreeMap<usize, Shard>>>);

/// Returns the name of the ledger and of the sessions of a set.
pub(super) fn group_of(set: &str) -> Arc<str> {
    format!("{set}{{shards}}").into()
}

/// Returns the ledger with the plan of a set.
///
/// # Errors
/// [`SettingError`] if the name cannot be used.
pub(super) fn ledger_of(quorum: &Quorum, set: &str) -> Result<Ledger, SettingError> {
    Ok(Ledger::named(quorum, "shard set", set)?.part("shards"))
}

impl Set {
    /// Returns the longest time between two looks at what the workers of the set have written.
    pub(super) fn look_every(&self) -> Duration {
        self.bell.look_every(LOOK_EVERY_UNHEARD)
    }

    pub(super) fn env(&self) -> &Env {
        self.quorum.env()
    }

    /// Returns the lock of a shard.
    pub(super) fn lock_of(&self, shard: usize) -> Lock<Lease> {
        self.lock(Resource::shard(&self.name, &shard))
    }

    /// Returns the lock of the leader of the set.
    pub(super) fn leadership(&self) -> Lock<Lease> {
        self.lock(Resource::shard(&self.name, &"leader"))
    }

    /// Notes that this worker owns a shard.
    pub(super) fn own(&self, shard: &Shard) {
        self.measures.owned(self.held.add(shard));
    }

    /// Notes that this worker does not own a shard any more.
    pub(super) fn disown(&self, shard: &Shard) {
        self.measures.owned(self.held.remove(shard));
    }

    /// Notes that a read of the plan begins. Returns its number.
    pub(super) fn begin_read(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the number of the last read that has begun.
    pub(super) fn reads_begun(&self) -> u64 {
        self.reads.load(Ordering::Acquire)
    }

    fn lock(&self, resource: Resource) -> Lock<Lease> {
        Lock::new(Arc::clone(self.quorum.inner()), Ok(resource)).options(self.options.clone())
    }
}

impl Held {
    /// Returns the shards, by their numbers.
    pub(super) fn all(&self) -> Vec<Shard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Adds a shard. Returns the number of shards.
    fn add(&self, shard: &Shard) -> usize {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(shard.number(), shard.clone());
        held.len()
    }

    /// Removes a shard. Returns the number of shards.
    fn remove(&self, shard: &Shard) -> usize {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&shard.number());
        held.len()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}
