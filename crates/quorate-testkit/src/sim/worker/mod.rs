//! The work of the simulated workers.
//!
//! The seed decides which worker has which duties. All workers compete for leases. Some also have jobs in the
//! first group ([`leader`], [`jobs`]), run jobs of the second group ([`pool`]), or handle messages
//! ([`claims`]), some of which have an attempt limit ([`limited`]). In some seeds all workers also compete for locks
//! of one more kind ([`LockKind`]), and in some an operator replaces the node set ([`replacer`]). In the plan `forced` an
//! operator releases locks by force ([`forcer`]).
//!
//! The systems outside of Quorate have no faults of their own. They are the stores to which workers write
//! ([`sink`]), and the broker that delivers messages ([`inbox`]).

mod claims;
mod fair;
pub(super) mod forcer;
mod freezer;
mod inbox;
mod jobs;
mod leader;
mod leases;
mod limited;
mod lock_kind;
mod operator;
mod pool;
mod rank;
mod read_write;
mod replacer;
mod rules;
mod shards;
mod sink;
mod slots;
mod stored;
mod transfers;

pub(super) use fair::FAIR;
pub(super) use freezer::Freezer;
pub(super) use inbox::{Inbox, PACE};
pub(super) use jobs::{JobSpec, specs};
pub(super) use leader::{GROUP, group};
pub(super) use leases::RESOURCES;
pub(super) use lock_kind::LockKind;
pub(super) use operator::{Operator, VALID_FOR};
pub(super) use pool::{POOL, PoolSpec, pool_specs};
pub(super) use rank::Rank;
pub(super) use read_write::READ_WRITE;
pub(super) use replacer::{ChangeState, Replacer};
pub(super) use rules::{DoneTicks, EACH, FAILURES, FIRST, KEY_LIMIT, NEXT, RULES, RULES_JOBS, RuleBook};
pub(super) use shards::ShardBook;
pub(super) use sink::Sinks;
pub(super) use slots::{SLOTS, SLOTS_NAME};
pub(super) use stored::Storer;
pub(super) use transfers::HANDED;

use super::{Host, Referee, SeedRng, scenario::WORKERS};
use quorate::{env::Env, quorum::Quorum};
use std::sync::Arc;

/// The simulated systems outside of Quorate that the workers use.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) sinks: Arc<Sinks>,
    pub(super) inbox: Inbox,
    /// The broker of the messages that have an attempt limit.
    pub(super) limited: Inbox,
    /// The works on shards.
    pub(super) shards: ShardBook,
    /// The runs of the third group.
    pub(super) rules: RuleBook,
}

/// The number of seeds in a thousand in which the workers run the second group.
const POOL_SEEDS: u64 = 300;

/// The number of seeds in a thousand in which some workers handle messages that have an attempt limit.
const LIMITED_SEEDS: u64 = 200;

/// The duties of one worker. Every worker also competes for leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Duties {
    /// The worker campaigns in the first group, and runs the group's jobs while it leads.
    pub(super) jobs: bool,
    /// The rank of the worker among these candidates.
    pub(super) rank: Rank,
    /// The worker handles messages.
    pub(super) claims: bool,
    /// The worker runs jobs of the second group, to which an operator sends requests.
    pub(super) pool: bool,
    /// The worker runs jobs of the third group, which share a concurrency key or follow each other.
    pub(super) rules: bool,
    /// The worker competes for locks of this kind, as all workers do.
    pub(super) locks: Option<LockKind>,
    /// The worker handles messages that have an attempt limit.
    pub(super) limited: bool,
}

impl Duties {
    /// Draws the duties of all workers. If `stores` is true, they run the second group in every seed.
    pub(super) fn of(seed: u64, stores: bool) -> [Self; WORKERS] {
        let mut rng = SeedRng::new(seed, "duties");
        let (jobs, claims) =
            [(false, false), (true, false), (true, false), (false, true), (false, true), (true, true)]
                [rng.index(6)];
        let mut all = [Self::default(); WORKERS];
        for duties in &mut all {
            *duties =
                Self { jobs: jobs && rng.chance(850), claims: claims && rng.chance(850), ..Self::default() };
        }
        // A random stream of its own keeps this draw from changing the other duties.
        let mut rng = SeedRng::new(seed, "pool duties");
        let pool = rng.chance(POOL_SEEDS) || stores;
        all.iter_mut().for_each(|duties| duties.pool = pool && rng.chance(850));
        all[1].pool |= pool;
        // The same holds for this draw.
        let mut rng = SeedRng::new(seed, "limited duties");
        let limited = rng.chance(LIMITED_SEEDS);
        all.iter_mut().for_each(|duties| duties.limited = limited && rng.chance(700));
        all[0].limited |= limited;
        // If a duty was drawn for the seed, at least one worker must have it.
        all[0].jobs |= jobs;
        all[WORKERS - 1].claims |= claims;
        let locks = LockKind::of(seed);
        all.iter_mut().for_each(|duties| duties.locks = locks);
        Rank::draw(seed, &mut all);
        all.iter_mut().zip(rules::draw(seed)).for_each(|(duties, rules)| duties.rules = rules);
        all
    }
}

/// The data that a worker needs for every kind of work.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) env: Env,
    pub(super) quorum: Quorum,
    pub(super) host: Arc<Host>,
    pub(super) referee: Arc<Referee>,
    pub(super) outside: Arc<Outside>,
    pub(super) rng: SeedRng,
    /// The seed of the simulation.
    pub(super) seed: u64,
    /// A name that is unique in the simulation. It identifies this process, or one part of its work.
    pub(super) label: String,
}

impl Worker {
    /// Starts the tasks of a worker with these duties. The tasks run until the worker's environment is stopped.
    pub(super) fn start(self, duties: Duties) {
        for resource in RESOURCES {
            let worker = self.fork(resource);
            self.env.spawn(leases::work(worker, resource));
        }
        if duties.jobs {
            self.env.spawn(leader::work(self.fork("leader"), duties.rank));
            self.env.spawn(leader::ask_to_resign(self.fork("unseat")));
        }
        if duties.pool {
            self.env.spawn(pool::work(self.fork("pool")));
        }
        if duties.rules {
            self.env.spawn(rules::work(self.fork("rules")));
        }
        if let Some(kind) = duties.locks {
            kind.start(&self);
        }
        if duties.claims {
            for consumer in ["consumer 1", "consumer 2"] {
                self.env.spawn(claims::work(self.fork(consumer)));
            }
        }
        if duties.limited {
            self.env.spawn(limited::work(self.fork("limited consumer")));
        }
    }

    /// Returns a copy of the worker for one kind of work, with random numbers of its own.
    fn fork(&self, what: &str) -> Self {
        Self { rng: SeedRng::new(self.seed, &format!("work {} {what}", self.label)), ..self.clone() }
    }

    fn is_stopped(&self) -> bool {
        self.env.stopped().is_cancelled()
    }

    /// Waits for a random time, up to one of the limits `tops`, in milliseconds.
    async fn think(&mut self, tops: &[u64]) {
        let think = self.rng.millis_up_to(tops);
        self.env.sleep(think).await;
    }

    /// Waits for `time`. If the faults are over by then, the function returns only when the worker is
    /// stopped. A worker calls it before it gives up work on purpose. In the fault-free phase the worker
    /// therefore never gives up work.
    async fn patience(&self, time: std::time::Duration) {
        self.env.sleep(time).await;
        if self.referee.is_calm() {
            self.env.stopped().cancelled().await;
        }
    }
}
