//! Balanced shards of a large set, in virtual time: how long they take to be shared out, and how many move.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quorate::{LeaseLost, Shards, shards::Shard};
use quorate_test::{Cluster, Process};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const COUNT: usize = 1_024;
const WORKERS: usize = 20;
const SECOND: Duration = Duration::from_secs(1);

/// The owner of each shard whose work is active, and the number of works that have begun.
#[derive(Clone, Default)]
struct Owners(Arc<Mutex<(BTreeMap<usize, String>, usize)>>);

/// An active work. Dropping it ends its entry.
struct Active(Owners, usize);

impl Owners {
    fn begin(&self, worker: &str, shard: usize) -> Active {
        let mut owners = self.0.lock().unwrap();
        let other = owners.0.insert(shard, worker.to_owned());
        assert_eq!(other, None, "{worker} works on the shard {shard} too");
        owners.1 += 1;
        drop(owners);
        Active(self.clone(), shard)
    }

    /// Returns the numbers of shards that the workers own, by worker.
    fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        self.0.lock().unwrap().0.values().for_each(|owner| *shares.entry(owner.clone()).or_insert(0) += 1);
        shares
    }

    fn begun(&self) -> usize {
        self.0.lock().unwrap().1
    }

    /// Returns whether each of so many workers has its share.
    fn is_balanced(&self, workers: usize) -> bool {
        let shares = self.shares();
        let is_whole = shares.len() == workers && shares.values().sum::<usize>() == COUNT;
        is_whole && shares.values().all(|share| is_share(*share, workers))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().0.remove(&self.1);
    }
}

fn start(cluster: &Cluster, name: &str, owners: &Owners) {
    let (owners, worker) = (owners.clone(), name.to_owned());
    cluster.worker(name).run(move |process: Process| {
        let (owners, worker) = (owners.clone(), worker.clone());
        async move {
            let work = move |shard: Shard| {
                let active = owners.begin(&worker, shard.number());
                async move {
                    shard.step_down_token().cancelled().await;
                    drop(active);
                    Ok::<(), LeaseLost>(())
                }
            };
            let shards = Shards::new(process.quorum(), "orders", COUNT);
            shards.run(work).until(process.stopped()).await.map_err(|error| error.to_string())
        }
    });
}

/// Waits until the shares of so many workers are balanced, and returns how long that took.
async fn balanced(cluster: &Cluster, owners: &Owners, workers: usize) -> Duration {
    let began = cluster.now();
    cluster.until(60 * SECOND, || owners.is_balanced(workers)).await;
    began.until(cluster.now())
}

#[tokio::test(start_paused = true)]
async fn a_thousand_shards_are_shared_out_and_few_of_them_move() {
    let (cluster, owners) = (Cluster::memory(5), Owners::default());
    let name = |number: usize| format!("w{number}");
    (0..WORKERS).for_each(|number| start(&cluster, &name(number), &owners));
    let all = balanced(&cluster, &owners, WORKERS).await;
    assert!(all < 5 * SECOND, "{WORKERS} workers shared {COUNT} shards out after {all:?}");

    let before = owners.begun();
    start(&cluster, "late", &owners);
    let joined = balanced(&cluster, &owners, WORKERS + 1).await;
    let moved = owners.begun() - before;
    assert!(joined < 5 * SECOND && is_share(moved, WORKERS + 1), "{moved} shards moved in {joined:?}");

    let before = owners.begun();
    cluster.worker("late").stop().await;
    let left = balanced(&cluster, &owners, WORKERS).await;
    let moved = owners.begun() - before;
    assert!(left < 5 * SECOND && is_share(moved, WORKERS + 1), "{moved} shards moved in {left:?}");

    let before = owners.begun();
    cluster.worker(&name(7)).kill();
    let killed = balanced(&cluster, &owners, WORKERS - 1).await;
    let moved = owners.begun() - before;
    // The lease of a worker that dies lasts for 10 s at most.
    assert!(killed < 11 * SECOND && is_share(moved, WORKERS), "{moved} shards moved in {killed:?}");
}

/// Returns whether this is the share of one of so many workers.
fn is_share(shards: usize, workers: usize) -> bool {
    (COUNT / workers..=COUNT.div_ceil(workers)).contains(&shards)
}
