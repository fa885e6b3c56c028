//! What workers do all day. The seed decides which worker has which duties; everything that lies outside of
//! Quorate (stores that are written to, the broker that delivers messages) has no faults of its own.

mod claims;
mod inbox;
mod jobs;
mod leader;
mod leases;
mod operator;
mod pool;
mod sink;

pub(super) use inbox::Inbox;
pub(super) use jobs::{JobSpec, specs};
pub(super) use leader::{GROUP, group};
pub(super) use leases::RESOURCES;
pub(super) use operator::{Operator, VALID_FOR};
pub(super) use pool::{POOL, PoolSpec, pool_specs};
pub(super) use sink::Sinks;

use super::{Host, Referee, SeedRng, scenario::WORKERS};
use quorate::{env::Env, quorum::Quorum};
use std::sync::Arc;

/// What there is beside the servers.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) sinks: Arc<Sinks>,
    pub(super) inbox: Inbox,
}

/// Of so many seeds in a thousand the workers have the second group.
const POOL_SEEDS: u64 = 300;

/// What one worker is there for, beside its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Duties {
    /// It campaigns, and runs jobs while it leads.
    pub(super) jobs: bool,
    /// It handles messages.
    pub(super) claims: bool,
    /// It runs jobs of the second group, to which an operator sends requests.
    pub(super) pool: bool,
}

impl Duties {
    /// The duties of all workers.
    pub(super) fn of(seed: u64) -> [Self; WORKERS] {
        let mut rng = SeedRng::new(seed, "duties");
        let (jobs, claims) =
            [(false, false), (true, false), (true, false), (false, true), (false, true), (true, true)]
                [rng.index(6)];
        let mut all = [Self::default(); WORKERS];
        for duties in &mut all {
            *duties =
                Self { jobs: jobs && rng.chance(850), claims: claims && rng.chance(850), ..Self::default() };
        }
        // A stream of its own: the other duties are what they would be without.
        let mut rng = SeedRng::new(seed, "pool duties");
        let pool = rng.chance(POOL_SEEDS);
        all.iter_mut().for_each(|duties| duties.pool = pool && rng.chance(850));
        all[1].pool |= pool;
        // Somebody has them.
        all[0].jobs |= jobs;
        all[WORKERS - 1].claims |= claims;
        all
    }
}

/// What every kind of work needs.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) env: Env,
    pub(super) quorum: Quorum,
    pub(super) host: Arc<Host>,
    pub(super) referee: Arc<Referee>,
    pub(super) outside: Arc<Outside>,
    pub(super) rng: SeedRng,
    /// The seed, and what tells this process from all others of the run.
    pub(super) seed: u64,
    pub(super) label: String,
}

impl Worker {
    /// Starts everything that a worker with these duties does, until its environment is asked to end.
    pub(super) fn start(self, duties: Duties) {
        for resource in RESOURCES {
            let worker = self.fork(resource);
            self.env.spawn(leases::work(worker, resource));
        }
        if duties.jobs {
            self.env.spawn(leader::work(self.fork("leader")));
            self.env.spawn(leader::unseat(self.fork("unseat")));
        }
        if duties.pool {
            self.env.spawn(pool::work(self.fork("pool")));
        }
        if duties.claims {
            for consumer in ["consumer 1", "consumer 2"] {
                self.env.spawn(claims::work(self.fork(consumer)));
            }
        }
    }

    /// The same worker with random numbers of its own for one kind of work.
    fn fork(&self, what: &str) -> Self {
        Self { rng: SeedRng::new(self.seed, &format!("work {} {what}", self.label)), ..self.clone() }
    }

    fn is_stopped(&self) -> bool {
        self.env.stopped().is_cancelled()
    }

    /// Waits for a time drawn up to one of `tops` in milliseconds.
    async fn think(&mut self, tops: &[u64]) {
        let think = self.rng.millis_up_to(tops);
        self.env.sleep(think).await;
    }

    /// Waits for `time`, and, if the faults are over by then, until the worker is to end: in calm weather
    /// nothing is given up.
    async fn patience(&self, time: std::time::Duration) {
        self.env.sleep(time).await;
        if self.referee.is_calm() {
            self.env.stopped().cancelled().await;
        }
    }
}
