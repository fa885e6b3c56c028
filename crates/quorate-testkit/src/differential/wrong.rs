use quorate::{
    env::{SystemWorld, World},
    node::{
        Batch, BatchReply, Cause, Hello, MemoryStore, Node, Owner, PushSender, Reply, Request, Session,
        copy::{HEADER_KEY, Header, Register, RegisterRow, WorkAct, register_key},
        engine::{self, ClaimRecord, Clocks, CounterRow, LeaseRow, Store},
    },
};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A defect of a [`WrongNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The node frees the resource for any caller.
    ReleasesForAnyone,
    /// The node counts every grant twice.
    CountsTwice,
    /// The node counts no grant.
    CountsNothing,
    /// An extension sets the end of the lease even if the lease becomes shorter.
    ShortensByExtending,
    /// The node serves requests after their deadline `not_after`.
    IgnoresNotAfter,
    /// The node serves requests under any marker.
    IgnoresTheMarker,
    /// Any client can overwrite a final record. (A correct node never changes a final record.)
    OverwritesWhatIsFinal,
    /// The node serves every leader on its copy as the one that has sealed it.
    ServesAnyLeader,
    /// The node registers the start of an assignment that a leader has declared void.
    StartsWhatIsVoid,
    /// The node raises the counter for any owner, not only for the owner that holds the resource.
    RaisesForAnyone,
    /// Leases that the node grants never expire.
    KeepsWhatHasEnded,
    /// The node grants a claim whose work is already done.
    GrantsWhatIsDone,
    /// The node admits readers while a writer has the lock.
    SharesBesideAWriter,
    /// The node grants an acquire although waiters in the queue come before it.
    GoesPastTheQueue,
    /// When one reader releases, the node frees all readers.
    FreesAllReaders,
    /// The node orders a queue by the arrival of the requests, not by the times at which the waiters began to
    /// wait.
    QueuesByArrival,
    /// The node cuts a result to half of the length that a done record may have.
    CutsResults,
    /// The node grants reserved resources to any owner.
    GrantsWhatIsReserved,
    /// The node counts an attempt again that it has already counted.
    CountsTheSameAgain,
    /// The node resets the attempts of a claim whose work is already done.
    ResetsWhatIsDone,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 20] = [
        Self::ReleasesForAnyone,
        Self::CountsTwice,
        Self::CountsNothing,
        Self::ShortensByExtending,
        Self::IgnoresNotAfter,
        Self::IgnoresTheMarker,
        Self::OverwritesWhatIsFinal,
        Self::ServesAnyLeader,
        Self::StartsWhatIsVoid,
        Self::RaisesForAnyone,
        Self::KeepsWhatHasEnded,
        Self::GrantsWhatIsDone,
        Self::SharesBesideAWriter,
        Self::GoesPastTheQueue,
        Self::FreesAllReaders,
        Self::QueuesByArrival,
        Self::CutsResults,
        Self::GrantsWhatIsReserved,
        Self::CountsTheSameAgain,
        Self::ResetsWhatIsDone,
    ];
}

/// A memory node with one [`Fault`]. With it, a test shows that a comparison notices the fault.
#[derive(Clone, Debug)]
pub struct WrongNode {
    fault: Fault,
    world: Arc<dyn World>,
    store: Arc<Mutex<MemoryStore>>,
}

impl WrongNode {
    /// Creates an empty node on the clocks of `world`.
    pub fn new(fault: Fault, world: Arc<dyn World>) -> Self {
        Self { fault, world, store: Arc::default() }
    }

    fn run(&self, batch: &Batch) -> BatchReply {
        let clocks = Clocks { wall: self.world.wall(), lease_nanos: self.world.now().as_nanos() };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replies = Vec::new();
        for request in &batch.requests {
            let mut one = Batch { requests: vec![request.clone()], ..batch.clone() };
            never_fails(before(self.fault, &mut one, &mut store, clocks));
            let mut reply = engine::run(&mut *store, &one, clocks).replies.remove(0);
            never_fails(after(self.fault, request, &mut reply, &mut store));
            replies.push(reply);
        }
        BatchReply { node_time: clocks.wall, replies }
    }
}

impl Default for WrongNode {
    fn default() -> Self {
        Self::new(Fault::CountsTwice, Arc::new(SystemWorld))
    }
}

impl Node for WrongNode {
    type Session = Self;

    fn name(&self) -> &str {
        "wrong"
    }

    async fn open(&self, _nudge: PushSender) -> Result<(Self, Hello), Cause> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let hello = Hello {
            node_time: self.world.wall(),
            run_id: "wrong".into(),
            marker: never_fails(store.marker()),
            data: None,
            stamps: never_fails(store.stamps()),
            uptime: Duration::ZERO,
            version: "wrong".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: Some(false),
            volatile: None,
            unable: None,
        };
        Ok((self.clone(), hello))
    }
}

impl Session for WrongNode {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        std::future::ready(Ok(self.run(&batch)))
    }
}

/// Applies the fault before the request runs, by a change of the request or of the stored state.
fn before(
    fault: Fault,
    batch: &mut Batch,
    store: &mut MemoryStore,
    clocks: Clocks,
) -> Result<(), Infallible> {
    let holder = |store: &MemoryStore, resource| {
        let row = store.lease(resource)?.filter(|row| row.until_nanos > clocks.lease_nanos);
        Ok::<_, Infallible>(row.map(|row| Owner::from_node(&row.owner)))
    };
    match (fault, &mut batch.requests[0]) {
        (Fault::ReleasesForAnyone, Request::Release { resource, owner })
        | (Fault::RaisesForAnyone, Request::Raise { resource, owner, .. }) => {
            *owner = holder(store, resource)?.unwrap_or_else(|| owner.clone());
        }
        (Fault::ShortensByExtending, Request::Extend { resource, owner, .. })
            if holder(store, resource)?.as_ref() == Some(owner) =>
        {
            store.set_lease(resource, None)?;
        }
        (Fault::IgnoresNotAfter, _) => batch.not_after = clocks.wall + Duration::from_secs(1),
        (Fault::IgnoresTheMarker, _) => {
            if let Some(marker) = store.marker()? {
                batch.stamp = marker;
            }
        }
        (Fault::OverwritesWhatIsFinal, Request::Write { ledger, .. }) => {
            let mut state = store.ledger(ledger)?;
            state.records.iter_mut().for_each(|(_, record)| record.last = false);
            store.set_ledger(ledger, state)?;
        }
        (Fault::ServesAnyLeader, Request::Lead { ledger, seal, .. }) => {
            let stored = store.ledger_at(ledger, HEADER_KEY)?.records.into_iter().next();
            if let Some(header) = stored.and_then(|(_, record)| Header::of_record(&record)) {
                *seal = header.seal.unwrap_or(*seal);
            }
        }
        (Fault::StartsWhatIsVoid, Request::Work { ledger, key, act: WorkAct::Start, .. }) => {
            let stored = store.ledger_at(ledger, &register_key(key))?.records.into_iter().next();
            if let Some(row) = stored.and_then(|(_, record)| RegisterRow::of_record(&record)) {
                let register = row.register.map(|_| Register::Open);
                let open = RegisterRow { register, ..row }.to_record();
                store.amend_ledger(ledger, 0, vec![(register_key(key), Some(open))])?;
            }
        }
        (Fault::GrantsWhatIsDone, Request::Acquire { resource, .. }) => {
            if let Some(row) = store.claim(resource)? {
                store.set_claim(resource, Some(engine::ClaimRow { until_micros: 0, ..row }))?;
            }
        }
        (Fault::GrantsWhatIsReserved, Request::Acquire { resource, .. }) => {
            let row = store.lease(resource)?;
            if row.is_some_and(|row| Owner::from_node(&row.owner).reserved_for().is_some()) {
                store.set_lease(resource, None)?;
            }
        }
        (Fault::SharesBesideAWriter, Request::Share { resource, .. })
            if store.lease(resource)?.is_some_and(|row| !row.is_read()) =>
        {
            store.set_lease(resource, None)?;
        }
        (Fault::GoesPastTheQueue, Request::Acquire { resource, .. }) => store.set_queue(resource, None)?,
        (Fault::FreesAllReaders, Request::ReleaseShare { resource, owner }) => {
            if let Some(row) = store.lease(resource)?.filter(LeaseRow::is_read)
                && row.readers.iter().any(|reader| *reader.owner == *owner.as_str())
            {
                let readers = row.readers.into_iter().filter(|reader| *reader.owner == *owner.as_str());
                let readers = readers.collect();
                store.set_lease(resource, Some(LeaseRow { readers, ..row }))?;
            }
        }
        (Fault::QueuesByArrival, Request::Queue { resource, at, .. }) => {
            let places = store.queue(resource)?.map(|row| row.places).unwrap_or_default();
            *at = places.iter().map(|place| place.at).max().unwrap_or_default().max(*at);
        }
        (Fault::CountsTheSameAgain, Request::Count { resource, withdraw: false, .. }) => {
            if let Some(row) = store.claim(resource)?
                && matches!(row.record, ClaimRecord::Begun(_))
            {
                store.set_claim(resource, None)?;
            }
        }
        (Fault::ResetsWhatIsDone, Request::ResetAttempts { resource, .. })
            if store.lease(resource)?.is_none() =>
        {
            store.set_claim(resource, None)?;
        }
        (Fault::CutsResults, Request::Complete { record, .. }) => {
            record.result = record.result.chars().take(engine::RESULT_MAX / 2).collect::<String>().into();
        }
        _ => {}
    }
    Ok(())
}

/// Applies the fault after the request has run, by a change of the reply or of the stored state.
fn after(
    fault: Fault,
    request: &Request,
    reply: &mut Reply,
    store: &mut MemoryStore,
) -> Result<(), Infallible> {
    let Request::Acquire { resource, .. } = request else { return Ok(()) };
    let Reply::Granted { counter, .. } = reply else { return Ok(()) };
    match fault {
        Fault::CountsTwice | Fault::CountsNothing => {
            let changed = match fault {
                Fault::CountsTwice => counter.get() + 1,
                _ => counter.get() - 1,
            };
            *counter = quorate::node::FencingToken::new(changed);
            if let Some(row) = store.counter(resource)? {
                store.set_counter(resource, CounterRow { count: *counter, ..row })?;
            }
        }
        Fault::KeepsWhatHasEnded => {
            if let Some(row) = store.lease(resource)? {
                store.set_lease(resource, Some(LeaseRow { until_nanos: u64::MAX, ..row }))?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn never_fails<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}
