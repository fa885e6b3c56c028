//! The shards of one set, which the workers divide among themselves.

use super::{WORKERS, Worker};
use crate::sim::{Event, Held, Holder, Referee};
use quorate::shards::{Shard, Shards};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The name of the set.
const NAME: &str = "parts";
/// The numbers of shards that workers are given. Most are given the first one. In the fault-free phase, all are.
const COUNTS: [usize; 2] = [5, 3];

/// The works on shards that have begun and not ended.
#[derive(Debug, Default)]
pub(in super::super) struct ShardBook {
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// The grants of the shards, by number and token. A worker whose clock stood still may work on under a grant that is not
    /// the latest one.
    grants: Mutex<BTreeMap<(usize, u64), Arc<Held>>>,
}

#[derive(Debug)]
struct Entry {
    held: Arc<Held>,
    worker: Arc<str>,
    number: usize,
    count: usize,
}

impl ShardBook {
    /// Returns whether each shard has one owner, and shares differ by at most one.
    pub(in super::super) fn is_balanced(&self, referee: &Referee) -> bool {
        let entries = self.entries();
        let mut numbers: Vec<usize> = Vec::new();
        let mut shares: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for entry in entries.values().filter(|entry| referee.is_sound(&entry.held)) {
            numbers.push(entry.number);
            *shares.entry(&entry.worker).or_default() += 1;
        }
        numbers.sort_unstable();
        let (least, most) = (shares.values().min(), shares.values().max());
        let differ = least.zip(most).is_none_or(|(least, most)| most - least > 1);
        numbers.into_iter().eq(0..COUNTS[0]) && shares.len() == WORKERS && !differ
    }

    /// Adds a work. Returns the numbers of shards of the other works whose workers own their shards.
    fn add(&self, referee: &Referee, entry: Entry) -> (u64, Vec<usize>) {
        let id = referee.next_number();
        let mut entries = self.entries();
        let others = entries.values().filter(|other| referee.is_sound(&other.held)).map(|other| other.count);
        let others = if referee.is_sound(&entry.held) { others.collect() } else { Vec::new() };
        entries.insert(id, entry);
        (id, others)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grants(&self) -> MutexGuard<'_, BTreeMap<(usize, u64), Arc<Held>>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A work in the book. It is taken out when it ends or is dropped.
struct InBook<'a>(&'a ShardBook, u64);

impl Drop for InBook<'_> {
    fn drop(&mut self) {
        self.0.entries().remove(&self.1);
    }
}

/// Repeats until the environment is stopped: runs the set, and leaves it after a time or drops the run.
pub(super) async fn work(mut worker: Worker) {
    let ttl = worker.draw_ttl();
    while !worker.is_stopped() {
        worker.think(&[10, 300]).await;
        worker.run_shards(ttl).await;
    }
}

impl Worker {
    async fn run_shards(&mut self, ttl: Duration) {
        let (how, time) = (self.rng.number(0..=9), self.rng.millis_up_to(&[400, 3_000, 9_000]));
        let is_other = self.rng.chance(150) && !self.referee.is_calm();
        let shards = Shards::new(&self.quorum, NAME, COUNTS[usize::from(is_other)]);
        let shards = shards.ttl(ttl).restart_backoff(Duration::from_millis(50), Duration::from_secs(1));
        let owner = self.clone();
        let run = shards
            .run(move |shard| owner.fork(&format!("shard {:?}", shard.unchecked_token())).own(shard, ttl));
        // A worker with the other number ends before the fault-free phase does.
        let patience = async {
            match is_other {
                true => self.env.sleep(time).await,
                false => self.patience(time).await,
            }
        };
        let run = run.until(async {
            tokio::select! { biased;
                () = self.env.stopped().cancelled() => {}
                () = patience, if how >= 5 || is_other => {}
            }
        });
        let ended = tokio::select! { biased;
            ended = run => Some(ended),
            () = self.patience(time), if how < 3 && !is_other => None,
        };
        self.referee.count(match ended {
            Some(Ok(())) => "shards left",
            Some(Err(_)) => "shards impossible",
            None => "shards dropped",
        });
    }

    /// Records that this worker owns a shard. Work that begins again under the same lease is no further grant.
    fn held(&self, shard: &Shard, ttl: Duration) -> Arc<Held> {
        let (resource, token) = (shard.resource().clone(), shard.unchecked_token().get());
        let grant = (shard.number(), token);
        if let Some(known) = self.outside.shards.grants().get(&grant).cloned() {
            return known;
        }
        let held = self.referee.holds(&self.host, Holder::Shard(shard.clone()), resource, token, ttl / 5);
        self.outside.shards.grants().insert(grant, Arc::clone(&held));
        held
    }

    /// Works on a shard. Some works fail, or return by themselves.
    async fn own(mut self, shard: Shard, ttl: Duration) -> Result<(), &'static str> {
        let held = self.held(&shard, ttl);
        let _work = self.referee.begin(&held, "a shard");
        let (worker, outside) = (Arc::clone(self.host.name()), Arc::clone(&self.outside));
        let (number, count) = (shard.number(), shard.count());
        let entry = Entry { held: Arc::clone(&held), worker: Arc::clone(&worker), number, count };
        let (id, others) = outside.shards.add(&self.referee, entry);
        let _in_book = InBook(&outside.shards, id);
        self.referee.tell(&Event::Sharded { worker: &worker, count, others: &others });
        let until = self.env.now() + self.rng.millis_up_to(&[500, 20_000]);
        let (fails, stubborn) = (self.rng.chance(300), self.rng.chance(200));
        loop {
            self.referee.look();
            if shard.step_down_token().is_cancelled() && !stubborn {
                return Ok(());
            }
            if self.env.now() >= until && !self.referee.is_calm() {
                return if fails { Err("a failure") } else { Ok(()) };
            }
            let step = self.rng.millis(1..=150);
            self.env.sleep(step).await;
        }
    }
}
