use super::{MaybeMillis, name};
use quorate::shards::{ShardSet, ShardState, ShardWorker};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A set of balanced shards.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ShardSet")]
pub struct ShardSetView {
    /// The name of the set.
    pub name: String,
    /// The number of shards.
    pub count: usize,
    /// The number of shards that have an owner.
    pub owned: usize,
    /// The worker that assigns the shards.
    pub leader: Option<String>,
    /// The workers.
    pub workers: Vec<ShardWorkerView>,
    /// The shards.
    pub shards: Vec<ShardView>,
}

/// A worker of a set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ShardWorker")]
pub struct ShardWorkerView {
    /// The name of the worker.
    pub worker: String,
    /// The weight of the worker.
    pub weight: u32,
    /// The number of shards that the worker was given. If it is not that of the set, the worker waits.
    pub count: usize,
    /// False if the worker has ended, and its shards are about to be given to others.
    pub lives: bool,
    /// The number of shards that the worker is to own.
    pub assigned: usize,
    /// The number of shards that the worker owns.
    pub owned: usize,
    /// The state in one word: `waits`, `works` or `ended`.
    pub state: &'static str,
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Shard")]
pub struct ShardView {
    /// The number of the shard.
    pub number: usize,
    /// The worker that owns it.
    pub owner: Option<String>,
    /// The worker that is to own it.
    pub assigned: Option<String>,
    /// The fencing token of the last owner.
    pub fencing_token: Option<u64>,
    /// The time after which the shard has no owner if its lease is not extended.
    #[serde(rename = "remaining_ms", with = "MaybeMillis")]
    pub remaining: Option<Duration>,
}

impl ShardSetView {
    /// Returns the view of a set.
    pub fn new(set: &ShardSet) -> Self {
        Self {
            name: name(&set.name),
            count: set.shards.len(),
            owned: set.owned(),
            leader: set.leader.as_deref().map(name),
            workers: set.workers.iter().map(|worker| ShardWorkerView::new(set, worker)).collect(),
            shards: set.shards.iter().map(ShardView::new).collect(),
        }
    }

    /// Returns the number of shards that are not owned by the worker that is to own them.
    pub fn moving(&self) -> usize {
        self.shards.iter().filter(|shard| shard.owner != shard.assigned).count()
    }

    /// Returns the state of the set in a few words.
    pub fn state_text(&self) -> String {
        let waiting = self.workers.iter().filter(|worker| worker.state == "waits").count();
        let mut text = match (self.owned, self.moving()) {
            (owned, 0) if owned == self.count => "every shard has its owner".to_owned(),
            (owned, moving) if owned == self.count => format!("{moving} shards are being handed over"),
            (owned, _) => format!("{} of {} shards have no owner", self.count - owned, self.count),
        };
        if waiting > 0 {
            text += &format!("; {waiting} workers wait, because they were given another number of shards");
        }
        text
    }
}

impl ShardWorkerView {
    fn new(set: &ShardSet, worker: &ShardWorker) -> Self {
        let owned = set.shards.iter().filter(|shard| shard.owner.as_ref() == Some(&worker.worker)).count();
        let state = match (worker.lives, worker.count == set.shards.len()) {
            (false, _) => "ended",
            (true, true) => "works",
            (true, false) => "waits",
        };
        Self {
            worker: name(&worker.worker),
            weight: worker.weight,
            count: worker.count,
            lives: worker.lives,
            assigned: worker.assigned,
            owned,
            state,
        }
    }
}

impl ShardView {
    fn new(shard: &ShardState) -> Self {
        Self {
            number: shard.number,
            owner: shard.owner.as_deref().map(name),
            assigned: shard.assigned.as_deref().map(name),
            fencing_token: shard.token.map(quorate::FencingToken::get),
            remaining: shard.remaining,
        }
    }
}
