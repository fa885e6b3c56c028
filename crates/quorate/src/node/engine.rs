//! The engine: computes the effect of a request on a node from the stored rows, the request and the node's
//! clocks. The engine performs no I/O of its own.
//!
//! The memory node, the file node and the simulation's nodes run this code, each over its own [`Store`]. The
//! Lua scripts of the module `redis` implement the same rules, and one conformance suite checks all of them.

mod claim;
mod copy;
mod ledger;
mod lock;
mod queue;
mod readers;
mod reserve;
mod stamp;

pub use claim::counts_more;

use super::{
    AttemptCount, Batch, BatchReply, DoneRecord, FencingToken, INVALID_REQUEST, LedgerState, NodeTime, Owner,
    PAGE_RECORDS, Record, Refusal, ReleasedLease, Reply, Request, Resource,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest result that a done record keeps, in bytes.
pub const RESULT_MAX: usize = 1024;

/// The default time for which a ledger is kept after its last change.
pub const LEDGER_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The maximum number of readers of one resource on a node.
pub const READERS_MAX: usize = 1024;

/// The maximum number of waiters in one resource's queue on a node.
pub const QUEUE_MAX: usize = 128;

pub(crate) use crate::plain::cut;

/// The time on a node's clocks when it runs a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The wall clock. The node uses it for the time in its replies, and for the age of counters and done
    /// records.
    pub wall: NodeTime,
    /// The clock that times leases, in nanoseconds: the boot clock if the node has one, else the wall clock.
    pub lease_nanos: u64,
}

/// The row of a held resource.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeaseRow {
    /// The owner token, or [`Owner::READERS`] if readers hold the resource.
    pub owner: Arc<str>,
    /// The end of the lease, on the clock of [`Clocks::lease_nanos`]. For readers, the end of the last
    /// reader's lease.
    pub until_nanos: u64,
    /// The readers that hold the resource; empty under an exclusive lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<ReaderRow>,
}

/// One reader of a resource.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReaderRow {
    /// The owner token.
    pub owner: Arc<str>,
    /// The end of this reader's lease, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
}

/// The queue of waiters for a resource. Each waiter has one entry, a [`PlaceRow`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueRow {
    /// The time at which the last entry of the queue expires, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
    /// The entries, in queue order.
    pub places: Vec<PlaceRow>,
}

/// The entry of one waiter in a queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlaceRow {
    /// The waiter's wall clock when it began to wait, in microseconds.
    pub at: u64,
    /// The waiter's ticket: the token that identifies this entry.
    pub ticket: Arc<str>,
    /// The time at which the entry expires, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
    /// True if the waiter needs exclusive access. False for a reader.
    pub exclusive: bool,
}

/// A fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CounterRow {
    /// The counter's value.
    pub count: FencingToken,
    /// The time from which the counter may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// The retention of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RetentionRow {
    /// The time for which the ledger is kept after its last change, in milliseconds.
    pub millis: u64,
    /// The time from which the ledger may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// A row with the record of a claim and its expiry. The lease of the claim is in a separate [`LeaseRow`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClaimRow {
    /// The record.
    pub record: ClaimRecord,
    /// The time from which the record may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// The record of a claim: its counted attempts, or its result.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimRecord {
    /// The attempts that have been counted on a claim that is not done.
    Begun(AttemptCount),
    /// The result of a claim that is done.
    Done(DoneRecord),
}

/// Access to the rows of a node. A store may return expired rows: the engine checks the expiry of each row.
pub trait Store {
    /// The reason why the store could not be read or written.
    type Error;
    /// Returns the lease on `resource`.
    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Self::Error>;
    /// Sets the lease on `resource`, or removes it with `None`.
    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Self::Error>;
    /// Returns the queue of `resource`.
    fn queue(&self, resource: &Resource) -> Result<Option<QueueRow>, Self::Error>;
    /// Sets the queue of `resource`, or removes it with `None`.
    fn set_queue(&mut self, resource: &Resource, row: Option<QueueRow>) -> Result<(), Self::Error>;
    /// Returns the fencing counter of `resource`.
    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, Self::Error>;
    /// Sets the fencing counter of `resource`.
    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), Self::Error>;
    /// Returns the record of the claim `resource`.
    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, Self::Error>;
    /// Sets the record of the claim `resource`, or removes it with `None`.
    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), Self::Error>;
    /// Returns the whole ledger of a group.
    fn ledger(&self, group: &str) -> Result<LedgerState, Self::Error>;
    /// Replaces the whole ledger of a group.
    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), Self::Error>;
    /// Returns the records of a group's ledger whose keys are greater than `after`: at most `most` of them,
    /// in the order of their keys. The result also includes the low-water mark. The default implementation
    /// reads the whole ledger; a store can override it to read less.
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
    /// Returns the record under one key of a group's ledger, with the low-water mark.
    fn ledger_at(&self, group: &str, key: &str) -> Result<LedgerState, Self::Error> {
        let mut state = self.ledger(group)?;
        state.records.retain(|(name, _)| **name == *key);
        Ok(state)
    }
    /// Sets the low-water mark of a group's ledger, and sets the given records, or removes them with `None`.
    fn amend_ledger(
        &mut self,
        group: &str,
        low_water: u64,
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
        self.set_ledger(group, LedgerState { low_water, records: all.into_iter().collect() })
    }
    /// Returns the retention of a group's ledger: `None` if the ledger does not exist, or if the store never
    /// removes ledgers.
    fn ledger_life(&self, _group: &str) -> Result<Option<RetentionRow>, Self::Error> {
        Ok(None)
    }
    /// Sets the retention of a group's ledger.
    fn set_ledger_life(&mut self, _group: &str, _life: RetentionRow) -> Result<(), Self::Error> {
        Ok(())
    }
    /// Removes a group's whole ledger. The engine calls this function only if [`Store::ledger_life`] returned
    /// a row.
    fn remove_ledger(&mut self, group: &str) -> Result<(), Self::Error> {
        self.set_ledger(group, LedgerState::default())
    }
    /// Returns the number of records to request from [`Store::ledger_after`] in one call.
    fn page_records(&self) -> usize {
        PAGE_RECORDS
    }
    /// Returns the node's marker.
    fn marker(&self) -> Result<Option<Arc<str>>, Self::Error>;
    /// Sets the node's marker.
    fn set_marker(&mut self, marker: Arc<str>) -> Result<(), Self::Error>;
    /// Returns the stamps that the node knows, by the names of the nodes.
    fn stamps(&self) -> Result<BTreeMap<Arc<str>, u64>, Self::Error>;
    /// Sets the stamps that the node knows.
    fn set_stamps(&mut self, stamps: BTreeMap<Arc<str>, u64>) -> Result<(), Self::Error>;
}

/// Executes a batch on `store`. If the store fails at one request, only that request is refused.
pub fn run<S: Store>(store: &mut S, batch: &Batch, clocks: Clocks) -> BatchReply
where
    S::Error: std::fmt::Display,
{
    run_telling(store, batch, clocks, &mut Vec::new())
}

/// Executes a batch like [`run`], and adds the leases that it released to `freed`. A node that notifies
/// subscribers of releases uses this function.
pub fn run_telling<S: Store>(
    store: &mut S,
    batch: &Batch,
    clocks: Clocks,
    freed: &mut Vec<ReleasedLease>,
) -> BatchReply
where
    S::Error: std::fmt::Display,
{
    let failed = |e: S::Error| Reply::Refused(Refusal::Failed(e.to_string().into()));
    let replies = batch
        .requests
        .iter()
        .map(|request| check_and_serve(store, batch, request, clocks, freed).unwrap_or_else(failed))
        .collect();
    BatchReply { node_time: clocks.wall, replies }
}

/// Checks `request` and serves it, or refuses it. There are three checks. If the request could set a key, the
/// node's clock must not be past the batch's `not_after`. If the reply counts as a vote, the batch's stamp must
/// equal the node's marker. And the request must apply to the kind of its resource.
fn check_and_serve<S: Store>(
    store: &mut S,
    batch: &Batch,
    request: &Request,
    clocks: Clocks,
    freed: &mut Vec<ReleasedLease>,
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
    if request.is_invalid() {
        return Ok(Reply::Refused(Refusal::Failed(INVALID_REQUEST.into())));
    }
    RequestHandler { store, clocks, freed }.serve(request)
}

struct RequestHandler<'a, S> {
    store: &'a mut S,
    clocks: Clocks,
    /// The leases that requests of this batch have released so far.
    freed: &'a mut Vec<ReleasedLease>,
}

impl<S: Store> RequestHandler<'_, S> {
    fn serve(&mut self, request: &Request) -> Result<Reply, S::Error> {
        match request {
            Request::Acquire { resource, owner, ttl, propose, tolerance, keep, ticket } => {
                if let Some(reply) = self.not_free(resource, owner, ticket.as_ref())? {
                    return Ok(reply);
                }
                self.acquire(resource, owner, *ttl, *propose, *tolerance, *keep)
            }
            Request::Raise { resource, owner, to, keep } => self.raise(resource, owner, *to, *keep),
            Request::Extend { resource, owner, ttl, token, keep } => {
                self.extend(resource, owner, *ttl, *token, *keep)
            }
            Request::Reserve { resource, owner, successor, ttl } => {
                self.reserve(resource, owner, successor, *ttl)
            }
            Request::Release { resource, owner } => self.release(resource, owner),
            Request::Share { resource, owner, ttl, ticket } => {
                self.share(resource, owner, *ttl, ticket.as_ref())
            }
            Request::ExtendShare { resource, owner, ttl } => self.extend_share(resource, owner, *ttl),
            Request::ReleaseShare { resource, owner } => self.release_share(resource, owner),
            Request::Downgrade { resource, owner, token, reader, ttl } => {
                self.downgrade(resource, owner, *token, reader, *ttl)
            }
            Request::Queue { resource, ticket, at, now, tolerance, ttl, exclusive } => {
                let place = self.new_place(*at, ticket, *ttl, *exclusive);
                self.queue(resource, place, NodeTime::from_micros(*now), *tolerance)
            }
            Request::LeaveQueue { resource, ticket } => self.leave_queue(resource, ticket),
            Request::Inspect { resource } => self.inspect(resource),
            Request::Complete { resource, owner, record, retention } => {
                self.complete(resource, owner, record, *retention)
            }
            Request::Count { resource, owner, attempts, payload, withdraw, keep } => {
                let requested = AttemptCount { attempts: *attempts, payload: payload.clone() };
                self.count_attempt(resource, owner, requested, *withdraw, *keep)
            }
            Request::ResetAttempts { resource, keep } => self.reset_attempts(resource, *keep),
            Request::Write { ledger, .. }
            | Request::Prune { ledger, .. }
            | Request::Keep { ledger, .. }
            | Request::Read { ledger, .. }
            | Request::SealCopy { ledger, .. }
            | Request::Lead { ledger, .. }
            | Request::Work { ledger, .. } => self.serve_ledger(ledger, request),
            Request::Mark { expect, marker } => self.mark(expect.as_ref(), marker),
            Request::Stamp { own, known, step } => self.stamp(own, known, *step),
        }
    }

    fn live_lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, S::Error> {
        Ok(self.store.lease(resource)?.filter(|row| row.until_nanos > self.clocks.lease_nanos))
    }

    fn live_counter(&self, resource: &Resource) -> Result<Option<FencingToken>, S::Error> {
        let row = self.store.counter(resource)?;
        Ok(row.filter(|row| row.until_micros > self.clocks.wall.as_micros()).map(|row| row.count))
    }

    fn set_owner(&mut self, resource: &Resource, owner: &Owner, ttl: Duration) -> Result<(), S::Error> {
        let row =
            LeaseRow { owner: owner.as_str().into(), until_nanos: self.expiry(ttl), readers: Vec::new() };
        self.store.set_lease(resource, Some(row))
    }

    /// Removes the lease of `owner`, and records its release.
    fn free(&mut self, resource: &Resource, owner: &Owner) -> Result<(), S::Error> {
        self.store.set_lease(resource, None)?;
        self.record_release(resource, owner);
        Ok(())
    }

    /// Records that `owner` released the resource.
    fn record_release(&mut self, resource: &Resource, owner: &Owner) {
        self.freed.push(ReleasedLease { resource: resource.clone(), owner: owner.clone() });
    }

    fn set_counter(
        &mut self,
        resource: &Resource,
        count: FencingToken,
        keep: Duration,
    ) -> Result<(), S::Error> {
        let until_micros = (self.clocks.wall + keep).as_micros();
        self.store.set_counter(resource, CounterRow { count, until_micros })
    }

    fn expiry(&self, ttl: Duration) -> u64 {
        self.clocks.lease_nanos.saturating_add(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX))
    }

    fn remaining(&self, row: &LeaseRow) -> Duration {
        Duration::from_nanos(row.until_nanos.saturating_sub(self.clocks.lease_nanos))
    }

    fn held(&self, row: &LeaseRow) -> Reply {
        Reply::Held { owner: Owner::from_node(&row.owner), remaining: Some(self.remaining(row)) }
    }
}
