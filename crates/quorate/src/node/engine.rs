//! What a node does with a request, as a pure function of what it stores, the request, and its clocks.
//!
//! The memory node, the file node and the simulation's nodes run this code over stores of their own; the
//! Lua scripts of `quorate-redis` say the same in Lua, and one conformance suite holds them together.

mod claim;
mod ledger;
mod lock;
mod queue;
mod readers;
mod reserve;

pub use claim::counts_more;

use super::{
    Batch, BatchReply, Begun, DoneRecord, FencingToken, Freed, LedgerState, NodeTime, Owner, PAGE_RECORDS,
    Record, Refusal, Reply, Request, Resource, UNFIT,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest result that a done record keeps, in bytes.
pub const RESULT_MAX: usize = 1024;

/// How long a ledger that was never told otherwise outlives its last change.
pub const LEDGER_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The most readers of one resource on a node.
pub const READERS_MAX: usize = 1024;

/// The most places in one resource's queue on a node.
pub const QUEUE_MAX: usize = 128;

pub(crate) use crate::plain::cut;

/// A node's clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The wall clock: stamps replies, ages counters and done records.
    pub wall: NodeTime,
    /// What times leases, in nanoseconds: the boot clock where there is one, else the wall clock.
    pub lease_nanos: u64,
}

/// Who holds a resource.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeaseRow {
    /// The owner token; [`Owner::READERS`] where readers hold it.
    pub owner: Arc<str>,
    /// When it ends, on the clock of [`Clocks::lease_nanos`]: with its last reader.
    pub until_nanos: u64,
    /// The readers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<ReaderRow>,
}

/// One who reads under a resource.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReaderRow {
    /// The owner token.
    pub owner: Arc<str>,
    /// When it ends, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
}

/// Who waits for a resource.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueRow {
    /// When the last place ends, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
    /// The places, in their order.
    pub places: Vec<PlaceRow>,
}

/// One who waits for a resource.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlaceRow {
    /// The waiter's wall clock when it began to wait, in microseconds.
    pub at: u64,
    /// The ticket.
    pub ticket: Arc<str>,
    /// When the place ends, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
    /// Whether the waiter wants to hold the resource alone.
    pub alone: bool,
}

/// A fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CounterRow {
    /// The last count.
    pub count: FencingToken,
    /// When it may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// How long a ledger lives, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LifeRow {
    /// How long it outlives its last change, in milliseconds.
    pub millis: u64,
    /// When it may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// What is recorded of a claim, beside who holds it, and its end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClaimRow {
    /// What was recorded.
    pub record: ClaimRecord,
    /// When it may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// What is recorded of a claim, beside who holds it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimRecord {
    /// It is not done.
    Begun(Begun),
    /// It is.
    Done(DoneRecord),
}

/// What a node keeps. Rows whose time has passed may still be given: the engine looks at their time.
pub trait Store {
    /// Why the store could not be read or written.
    type Error;
    /// Who holds `resource`.
    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Self::Error>;
    /// Sets or, with `None`, removes who holds `resource`.
    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Self::Error>;
    /// Who waits for `resource`.
    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, Self::Error>;
    /// Sets or, with `None`, removes who waits for `resource`.
    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), Self::Error>;
    /// The fencing counter of `resource`.
    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, Self::Error>;
    /// Sets the fencing counter of `resource`.
    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), Self::Error>;
    /// What is recorded of the claim `resource`.
    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, Self::Error>;
    /// Sets or, with `None`, removes what is recorded of the claim `resource`.
    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), Self::Error>;
    /// What stands in the ledger of a group.
    fn ledger(&self, group: &str) -> Result<LedgerState, Self::Error>;
    /// Replaces what stands in the ledger of a group.
    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), Self::Error>;
    /// Some of what stands in the ledger of a group, for a store that need not look at all of it: at most `most`
    /// records, by key, that come after the key `after`. The head comes along whatever it is.
    fn ledger_after(
        &self,
        group: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<LedgerState, Self::Error> {
        let mut state = self.ledger(group)?;
        let begin = after.map_or(0, |after| state.records.partition_point(|(key, _)| **key <= *after));
        state.records.drain(..begin);
        state.records.truncate(most);
        Ok(state)
    }
    /// What stands under one key of it; the head comes along.
    fn ledger_at(&self, group: &str, key: &str) -> Result<LedgerState, Self::Error> {
        let mut state = self.ledger(group)?;
        state.records.retain(|(name, _)| **name == *key);
        Ok(state)
    }
    /// Sets the head of it, and these records: with `None`, removes them.
    fn amend_ledger(
        &mut self,
        group: &str,
        (term, low_water): (FencingToken, u64),
        records: Vec<(Arc<str>, Option<Record>)>,
    ) -> Result<(), Self::Error> {
        let state = self.ledger(group)?;
        let mut all: BTreeMap<_, _> = state.records.into_iter().collect();
        for (key, record) in records {
            match record {
                Some(record) => all.insert(key, record),
                None => all.remove(&key),
            };
        }
        self.set_ledger(group, LedgerState { term, low_water, records: all.into_iter().collect() })
    }
    /// How long the ledger of a group lives; `None` for one that does not exist, and from a store whose ledgers never end.
    fn ledger_life(&self, _group: &str) -> Result<Option<LifeRow>, Self::Error> {
        Ok(None)
    }
    /// Sets how long the ledger of a group lives.
    fn set_ledger_life(&mut self, _group: &str, _life: LifeRow) -> Result<(), Self::Error> {
        Ok(())
    }
    /// Removes the ledger of a group as a whole. Called only where [`Store::ledger_life`] gave a row.
    fn remove_ledger(&mut self, group: &str) -> Result<(), Self::Error> {
        self.set_ledger(group, LedgerState::default())
    }
    /// How many records [`Store::ledger_after`] is asked for at a time.
    fn page_records(&self) -> usize {
        PAGE_RECORDS
    }
    /// The node's marker.
    fn marker(&self) -> Result<Option<Arc<str>>, Self::Error>;
    /// Sets the node's marker.
    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), Self::Error>;
}

/// Runs a batch. A request that the store fails at spoils only its own item.
pub fn run<S: Store>(store: &mut S, batch: &Batch, clocks: Clocks) -> BatchReply
where
    S::Error: std::fmt::Display,
{
    run_telling(store, batch, clocks, &mut Vec::new())
}

/// As [`run`], and adds to `freed` what the requests freed: for a node that tells its listeners.
pub fn run_telling<S: Store>(
    store: &mut S,
    batch: &Batch,
    clocks: Clocks,
    freed: &mut Vec<Freed>,
) -> BatchReply
where
    S::Error: std::fmt::Display,
{
    let failed = |e: S::Error| Reply::Refused(Refusal::Failed(e.to_string().into()));
    let replies = batch
        .requests
        .iter()
        .map(|request| gate(store, batch, request, clocks, freed).unwrap_or_else(failed))
        .collect();
    BatchReply { node_time: clocks.wall, replies }
}

/// Serves `request` unless it comes too late, under another marker, or is for another kind of resource.
fn gate<S: Store>(
    store: &mut S,
    batch: &Batch,
    request: &Request,
    clocks: Clocks,
    freed: &mut Vec<Freed>,
) -> Result<Reply, S::Error> {
    if request.sets_a_key() && clocks.wall > batch.not_after {
        return Ok(Reply::Refused(Refusal::Stale));
    }
    if request.votes() {
        let marker = store.marker()?;
        if marker.as_deref() != Some(&*batch.stamp) {
            return Ok(Reply::Refused(Refusal::Marker(marker)));
        }
    }
    if request.is_unfit() {
        return Ok(Reply::Refused(Refusal::Failed(UNFIT.into())));
    }
    Desk { store, clocks, freed }.serve(request)
}

struct Desk<'a, S> {
    store: &'a mut S,
    clocks: Clocks,
    /// What was freed on request.
    freed: &'a mut Vec<Freed>,
}

impl<S: Store> Desk<'_, S> {
    fn serve(&mut self, request: &Request) -> Result<Reply, S::Error> {
        match request {
            Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => {
                if let Some(no) = self.not_free(resource, owner, ticket.as_ref())? {
                    return Ok(no);
                }
                self.acquire(resource, owner, *ttl, *propose, *tolerance, *keep)
            }
            Request::Raise { resource, owner, to, keep } => self.raise(resource, owner, *to, *keep),
            Request::Extend { resource, owner, ttl, token, keep } => {
                self.extend(resource, owner, *ttl, *token, *keep)
            }
            Request::Reserve { resource, owner, heir, ttl } => self.reserve(resource, owner, heir, *ttl),
            Request::Release { resource, owner } => self.release(resource, owner),
            Request::Share { resource, owner, ttl, ticket } => {
                self.share(resource, owner, *ttl, ticket.as_ref())
            }
            Request::ExtendShare { resource, owner, ttl } => self.extend_share(resource, owner, *ttl),
            Request::ReleaseShare { resource, owner } => self.release_share(resource, owner),
            Request::Downgrade { resource, owner, token, reader, ttl } => {
                self.downgrade(resource, owner, *token, reader, *ttl)
            }
            Request::Queue { resource, ticket, at, now, tolerance, ttl, alone } => {
                let place = self.place(*at, ticket, *ttl, *alone);
                self.queue(resource, place, NodeTime::from_micros(*now), *tolerance)
            }
            Request::LeaveQueue { resource, ticket } => self.leave_queue(resource, ticket),
            Request::Inspect { resource } => self.inspect(resource),
            Request::Complete { resource, owner, record, retention } => {
                self.complete(resource, owner, record, *retention)
            }
            Request::Count { resource, owner, attempts, payload, back, keep } => {
                let asked = Begun { attempts: *attempts, payload: payload.clone() };
                self.count_attempt(resource, owner, asked, *back, *keep)
            }
            Request::Forgive { resource, keep } => self.forgive(resource, *keep),
            Request::Seal { ledger, .. }
            | Request::Write { ledger, .. }
            | Request::Prune { ledger, .. }
            | Request::Keep { ledger, .. }
            | Request::Read { ledger, .. } => self.in_ledger(ledger, request),
            Request::Mark { expect, marker } => self.mark(expect.as_ref(), marker),
        }
    }

    fn live_lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, S::Error> {
        Ok(self.store.lease(resource)?.filter(|row| row.until_nanos > self.clocks.lease_nanos))
    }

    fn live_counter(&self, resource: &Resource) -> Result<Option<FencingToken>, S::Error> {
        let row = self.store.counter(resource)?;
        Ok(row.filter(|row| row.until_micros > self.clocks.wall.as_micros()).map(|row| row.count))
    }

    fn own(&mut self, resource: &Resource, owner: &Owner, ttl: Duration) -> Result<(), S::Error> {
        let row =
            LeaseRow { owner: owner.as_str().into(), until_nanos: self.after(ttl), readers: Vec::new() };
        self.store.set_lease(resource, Some(row))
    }

    /// Frees what `owner` held, and tells.
    fn free(&mut self, resource: &Resource, owner: &Owner) -> Result<(), S::Error> {
        self.store.set_lease(resource, None)?;
        self.tell(resource, owner);
        Ok(())
    }

    /// That `owner` has let go of it.
    fn tell(&mut self, resource: &Resource, owner: &Owner) {
        self.freed.push(Freed { resource: resource.clone(), owner: owner.clone() });
    }

    fn count(&mut self, resource: &Resource, count: FencingToken, keep: Duration) -> Result<(), S::Error> {
        let until_micros = (self.clocks.wall + keep).as_micros();
        self.store.set_counter(resource, CounterRow { count, until_micros })
    }

    fn after(&self, ttl: Duration) -> u64 {
        self.clocks.lease_nanos.saturating_add(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX))
    }

    fn remaining(&self, row: &LeaseRow) -> Duration {
        Duration::from_nanos(row.until_nanos.saturating_sub(self.clocks.lease_nanos))
    }

    fn held(&self, row: &LeaseRow) -> Reply {
        Reply::Held { owner: Owner::from_node(&row.owner), remaining: Some(self.remaining(row)) }
    }
}
