use super::engine::{self, ClaimRow, Clocks, CounterRow, LeaseRow, QueueRow, RetentionRow, Store};
use super::{
    Batch, BatchReply, Cause, Hello, LedgerState, Listen, Node, NodeTime, Push, PushSender, Record,
    ReleasedLease, Resource, Session,
};
use crate::env::{SystemWorld, World};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A node in the memory of this process, for tests, examples and services that run as a single copy.
///
/// ```
/// use quorate::{node::MemoryNode, quorum::Quorum};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let lease = quorum.lock("report").acquire().await?;
/// lease.release().await?;
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
///
/// The node is not shared with other processes, and its content is lost when the process ends. Clones are the
/// same node.
#[derive(Clone, Debug)]
pub struct MemoryNode {
    name: Arc<str>,
    world: Arc<dyn World>,
    store: Arc<Mutex<MemoryStore>>,
    pubsub: Arc<Mutex<PubSub>>,
    created: NodeTime,
}

impl MemoryNode {
    /// Returns an empty node that uses the system's clocks.
    pub fn new(name: &str) -> Self {
        Self::with_world(name, Arc::new(SystemWorld))
    }

    /// Returns an empty node that uses the clocks of `world`.
    #[doc(hidden)]
    pub fn with_world(name: &str, world: Arc<dyn World>) -> Self {
        let created = world.wall();
        Self { name: name.into(), world, store: Arc::default(), pubsub: Arc::default(), created }
    }

    fn clocks(&self) -> Clocks {
        Clocks { wall: self.world.wall(), lease_nanos: self.world.now().as_nanos() }
    }

    fn pubsub(&self) -> MutexGuard<'_, PubSub> {
        self.pubsub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_store<T>(&self, look: impl FnOnce(&mut MemoryStore) -> T) -> T {
        // A panic in the engine leaves every row complete. So a poisoned mutex can be used.
        look(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Node for MemoryNode {
    type Session = MemorySession;

    fn name(&self) -> &str {
        &self.name
    }

    // Leases on this node end by the boot clock, so steps of the wall clock do not matter.
    fn ends_leases_by_wall_clock(&self) -> bool {
        false
    }

    async fn open(&self, push_sender: PushSender) -> Result<(MemorySession, Hello), Cause> {
        let wall = self.world.wall();
        let hello = Hello {
            node_time: wall,
            run_id: format!("memory:{}:{:?}", self.name, self.created).into(),
            marker: self.with_store(|store| store.marker.clone()),
            data: None,
            stamps: self.with_store(|store| store.stamps.clone()),
            uptime: self.created.until(wall).min(Duration::from_secs(u32::MAX.into())),
            version: "memory".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: Some(false),
            volatile: Some("it lives in the memory of one process; use another kind of node".into()),
            unable: None,
        };
        let number = self.pubsub().add_session();
        Ok((MemorySession { node: self.clone(), push_sender, number }, hello))
    }
}

/// A session of a [`MemoryNode`]: every batch runs inside `send`.
#[derive(Debug)]
pub struct MemorySession {
    node: MemoryNode,
    push_sender: PushSender,
    number: u64,
}

impl Session for MemorySession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let clocks = self.node.clocks();
        let mut freed = Vec::new();
        let reply = self.node.with_store(|store| {
            store.sweep(clocks);
            engine::run_telling(store, &batch, clocks, &mut freed)
        });
        if !freed.is_empty() {
            self.node.pubsub().publish(&freed);
        }
        std::future::ready(Ok(reply))
    }

    fn listen(&mut self, listen: Listen) {
        self.node.pubsub().listen(self.number, &self.push_sender, listen);
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.node.pubsub().remove_session(self.number);
    }
}

/// The subscriptions of all sessions. A release is reported to the sessions in the order of their numbers, so
/// that two simulations of one seed do not differ.
#[derive(Debug, Default)]
struct PubSub {
    sessions: u64,
    by_resource: BTreeMap<Resource, BTreeMap<u64, PushSender>>,
}

impl PubSub {
    fn add_session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    fn listen(&mut self, session: u64, push_sender: &PushSender, listen: Listen) {
        match listen {
            Listen::Begin(resource) => {
                self.by_resource.entry(resource).or_default().insert(session, push_sender.clone());
            }
            Listen::End(resource) => {
                if let Some(sessions) = self.by_resource.get_mut(&resource) {
                    sessions.remove(&session);
                    if sessions.is_empty() {
                        self.by_resource.remove(&resource);
                    }
                }
            }
        }
    }

    fn remove_session(&mut self, session: u64) {
        self.by_resource.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
    }

    fn publish(&self, freed: &[ReleasedLease]) {
        for freed in freed {
            let Some(sessions) = self.by_resource.get(&freed.resource) else { continue };
            let notified = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
            for push_sender in sessions.values() {
                push_sender.push(Push::Released { lease: freed.clone(), notified });
            }
        }
    }
}

/// The ledger of one group.
#[derive(Clone, Debug, Default)]
struct GroupLedger {
    low_water: u64,
    records: BTreeMap<Arc<str>, Record>,
    life: Option<RetentionRow>,
}

impl GroupLedger {
    fn state_with<'a>(&self, records: impl Iterator<Item = (&'a Arc<str>, &'a Record)>) -> LedgerState {
        let records = records.map(|(key, record)| (Arc::clone(key), record.clone())).collect();
        LedgerState { low_water: self.low_water, records }
    }
}

/// The rows of a node in memory, for [`MemoryNode`] and the nodes of a simulation.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    leases: BTreeMap<Resource, LeaseRow>,
    queues: BTreeMap<Resource, QueueRow>,
    counters: BTreeMap<Resource, CounterRow>,
    claims: BTreeMap<Resource, ClaimRow>,
    ledgers: BTreeMap<String, GroupLedger>,
    marker: Option<Arc<str>>,
    stamps: BTreeMap<Arc<str>, u64>,
    writes_to_sweep: u32,
}

impl MemoryStore {
    /// Returns the leases that have not expired at `clocks`, for tests that look for leases that were not
    /// released.
    pub fn live_leases(&self, clocks: Clocks) -> Vec<(Resource, LeaseRow)> {
        let live = self.leases.iter().filter(|(_, row)| row.until_nanos > clocks.lease_nanos);
        live.map(|(resource, row)| (resource.clone(), row.clone())).collect()
    }

    /// Removes expired rows at every thousandth call. The other calls do nothing.
    pub fn sweep(&mut self, clocks: Clocks) {
        self.writes_to_sweep += 1;
        if self.writes_to_sweep < 1000 {
            return;
        }
        self.writes_to_sweep = 0;
        let wall = clocks.wall.as_micros();
        self.leases.retain(|_, row| row.until_nanos > clocks.lease_nanos);
        self.queues.retain(|_, row| row.until_nanos > clocks.lease_nanos);
        self.counters.retain(|_, row| row.until_micros > wall);
        self.claims.retain(|_, row| row.until_micros > wall);
        self.ledgers.retain(|_, ledger| ledger.life.is_none_or(|life| life.until_micros > wall));
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Infallible> {
        Ok(self.leases.get(resource).cloned())
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Infallible> {
        match row {
            Some(row) => self.leases.insert(resource.clone(), row),
            None => self.leases.remove(resource),
        };
        Ok(())
    }

    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, Infallible> {
        Ok(self.queues.get(resource).cloned())
    }

    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), Infallible> {
        match row {
            Some(row) => self.queues.insert(resource.clone(), row),
            None => self.queues.remove(resource),
        };
        Ok(())
    }

    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, Infallible> {
        Ok(self.counters.get(resource).copied())
    }

    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), Infallible> {
        self.counters.insert(resource.clone(), row);
        Ok(())
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, Infallible> {
        Ok(self.claims.get(resource).cloned())
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), Infallible> {
        match row {
            Some(row) => self.claims.insert(resource.clone(), row),
            None => self.claims.remove(resource),
        };
        Ok(())
    }

    fn ledger(&self, group: &str) -> Result<LedgerState, Infallible> {
        self.ledger_after(group, None, usize::MAX)
    }

    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), Infallible> {
        let LedgerState { low_water, records } = state;
        let life = self.ledgers.get(group).and_then(|ledger| ledger.life);
        self.ledgers.insert(
            group.to_owned(),
            GroupLedger { low_water, records: records.into_iter().collect(), life },
        );
        Ok(())
    }

    fn ledger_after(&self, group: &str, after: Option<&str>, most: usize) -> Result<LedgerState, Infallible> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.ledgers.get(group).map_or_else(LedgerState::default, |ledger| {
            ledger.state_with(ledger.records.range::<str, _>((after, Bound::Unbounded)).take(most))
        }))
    }

    fn ledger_at(&self, group: &str, key: &str) -> Result<LedgerState, Infallible> {
        let ledger = self.ledgers.get(group);
        Ok(ledger.map_or_else(LedgerState::default, |ledger| {
            ledger.state_with(ledger.records.get_key_value(key).into_iter())
        }))
    }

    fn amend_ledger(
        &mut self,
        group: &str,
        low_water: u64,
        records: Vec<(Arc<str>, Option<Record>)>,
    ) -> Result<(), Infallible> {
        if !self.ledgers.contains_key(group) {
            self.ledgers.insert(group.to_owned(), GroupLedger::default());
        }
        let Some(ledger) = self.ledgers.get_mut(group) else { return Ok(()) };
        ledger.low_water = low_water;
        for (key, record) in records {
            match record {
                Some(record) => ledger.records.insert(key, record),
                None => ledger.records.remove(&key),
            };
        }
        Ok(())
    }

    fn ledger_life(&self, group: &str) -> Result<Option<RetentionRow>, Infallible> {
        Ok(self.ledgers.get(group).and_then(|ledger| ledger.life))
    }

    fn set_ledger_life(&mut self, group: &str, life: RetentionRow) -> Result<(), Infallible> {
        self.ledgers.entry(group.to_owned()).or_default().life = Some(life);
        Ok(())
    }

    fn remove_ledger(&mut self, group: &str) -> Result<(), Infallible> {
        self.ledgers.remove(group);
        Ok(())
    }

    fn marker(&self) -> Result<Option<Arc<str>>, Infallible> {
        Ok(self.marker.clone())
    }

    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), Infallible> {
        self.marker = Some(marker);
        Ok(())
    }

    fn stamps(&self) -> Result<BTreeMap<Arc<str>, u64>, Infallible> {
        Ok(self.stamps.clone())
    }

    fn set_stamps(&mut self, stamps: BTreeMap<Arc<str>, u64>) -> Result<(), Infallible> {
        self.stamps = stamps;
        Ok(())
    }
}
