//! A set of shards as a reader sees it: the plan, and the holders of the leases.

use super::{
    assignment::Assignment,
    set::{Set, group_of, ledger_of},
};
use crate::{
    config::SettingError,
    lease::{Inspection, inspect},
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Record, Resource},
    quorum::Quorum,
    session::{Seen, Sessions},
};
use futures_util::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A set of shards, as the nodes show it. It may be out of date when it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardSet {
    /// The name of the set.
    pub name: Arc<str>,
    /// The worker that leads the set.
    pub leader: Option<Arc<str>>,
    /// The workers, by their names.
    pub workers: Vec<ShardWorker>,
    /// The shards, by their numbers.
    pub shards: Vec<ShardState>,
}

/// A worker of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardWorker {
    /// The name of the worker.
    pub worker: Arc<str>,
    /// The weight of the worker.
    pub weight: u32,
    /// The number of shards that the worker was given. If it is not that of the set, the worker waits until no worker has the
    /// number of the set any more.
    pub count: usize,
    /// False if the session of the worker is over. Its shards are about to be given to others.
    pub lives: bool,
    /// The number of shards that the worker is to own.
    pub assigned: usize,
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardState {
    /// The number of the shard.
    pub number: usize,
    /// The worker that owns the shard.
    pub owner: Option<Arc<str>>,
    /// The worker that is to own the shard.
    pub assigned: Option<Arc<str>>,
    /// The fencing token of the last owner. `None` if the nodes have none.
    pub token: Option<FencingToken>,
    /// The time after which the shard has no owner if its lease is not extended.
    pub remaining: Option<Duration>,
}

impl ShardSet {
    /// Reads the set called `name`. Returns `None` if no worker has run a set of this name.
    ///
    /// # Errors
    /// [`ShardSetError`] if the name cannot be used, or if fewer than a majority of the nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn read(quorum: &Quorum, name: &str) -> Result<Option<Self>, ShardSetError> {
        let ledger = ledger_of(quorum, name)?;
        let answers = ledger.read_keys(&[super::assignment::KEY.into()]).await?;
        let Some((_, plan)) = Assignment::latest(&answers) else { return Ok(None) };
        let mut locks: Vec<Resource> = (0..plan.count).map(|shard| Resource::shard(name, &shard)).collect();
        locks.push(Resource::shard(name, &"leader"));
        let sessions: Vec<Arc<str>> = plan.workers.keys().cloned().collect();
        let group = group_of(name);
        let (mut held, seen) = tokio::join!(
            join_all(locks.iter().map(|lock| inspect(quorum.inner(), lock))),
            Sessions::look(quorum, &group, &sessions)
        );
        let leader = held.pop().and_then(Result::ok).and_then(|seen| seen.holder);
        let seen: BTreeMap<Arc<str>, Seen> = seen.into_iter().collect();
        let worker = |(session, assigned): (&Arc<str>, &super::assignment::Assigned)| ShardWorker {
            worker: Arc::clone(&assigned.who.worker),
            weight: assigned.who.weight,
            count: assigned.who.count,
            lives: seen.get(session) != Some(&Seen::Free),
            assigned: assigned.shards.len(),
        };
        let mut workers: Vec<ShardWorker> = plan.workers.iter().map(worker).collect();
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        let mut owners: BTreeMap<usize, &Arc<str>> = BTreeMap::new();
        for assigned in plan.workers.values() {
            owners.extend(assigned.shards.iter().map(|shard| (*shard, &assigned.who.worker)));
        }
        let shard = |(number, look): (usize, Option<Inspection>)| ShardState {
            number,
            owner: look.as_ref().and_then(|look| look.holder.as_ref()).map(|holder| holder.worker().into()),
            assigned: owners.get(&number).map(|worker| Arc::clone(worker)),
            token: look.as_ref().and_then(|look| look.token),
            remaining: look.and_then(|look| look.remaining),
        };
        let shards = held.into_iter().map(Result::ok).enumerate().map(shard).collect();
        Ok(Some(Self {
            name: name.into(),
            leader: leader.map(|owner| owner.worker().into()),
            workers,
            shards,
        }))
    }

    /// Returns the names of the sets that workers run or have run within the ledger retention.
    ///
    /// # Errors
    /// [`ShardSetError`] if fewer than a majority of the nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn names(quorum: &Quorum) -> Result<Vec<Arc<str>>, ShardSetError> {
        let answers = Ledger::unnamed(quorum, NAMES).read().await?;
        let names: BTreeSet<Arc<str>> = answers
            .iter()
            .flat_map(|answer| &answer.state.records)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        Ok(names.into_iter().collect())
    }

    /// Reads all [sets](Self::names).
    ///
    /// # Errors
    /// [`ShardSetError`] if fewer than a majority of the nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn read_all(quorum: &Quorum) -> Result<Vec<Self>, ShardSetError> {
        let mut sets = Vec::new();
        for name in Self::names(quorum).await? {
            sets.extend(Self::read(quorum, &name).await?);
        }
        Ok(sets)
    }

    /// Returns the number of shards that have an owner.
    pub fn owned(&self) -> usize {
        self.shards.iter().filter(|shard| shard.owner.is_some()).count()
    }
}

/// The reason why a set could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardSetError {
    /// The name cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Too few nodes answered.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The ledger with the names of all sets.
const NAMES: &str = "shards";

/// Notes on the nodes that the set is run, for [`ShardSet::names`].
pub(super) async fn note(set: &Set) -> Result<(), LedgerError> {
    let names = Ledger::unnamed(&set.quorum, NAMES);
    let (life, wall) = (set.quorum.config().ledger_retention, set.quorum.wall());
    let (at, value) = (wall.as_micros(), set.who.count.to_string().into());
    names
        .write_over(&set.name, None, &Record { at, term: FencingToken::default(), last: false, value })
        .await?;
    names.prune((wall - life).as_micros()).await?;
    names.keep(life).await
}
