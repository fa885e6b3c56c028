//! What a node does with a request, as a pure function of what it stores, the request, and its clocks.
//!
//! The memory node, the file node and the simulation's nodes run this code over stores of their own; the
//! Lua scripts of `quorate-redis` say the same in Lua, and one conformance suite holds them together.

use super::{
    Batch, BatchReply, DoneRecord, FencingToken, LedgerState, NodeTime, Owner, Record, Refusal, Reply,
    Request, Resource,
};
use std::{sync::Arc, time::Duration};

/// The longest result that a done record keeps, in bytes.
pub const RESULT_MAX: usize = 1024;

/// The beginning of `text`, at most `most` bytes of it, ending between two characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

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
    /// The owner token.
    pub owner: Arc<str>,
    /// When it ends, on the clock of [`Clocks::lease_nanos`].
    pub until_nanos: u64,
}

/// A fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CounterRow {
    /// The last count.
    pub count: FencingToken,
    /// When it may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// A done record and its end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DoneRow {
    /// What was recorded.
    pub record: DoneRecord,
    /// When it may be forgotten, in microseconds of the node's wall clock.
    pub until_micros: u64,
}

/// What a node keeps. Rows whose time has passed may still be given: the engine looks at their time.
pub trait Store {
    /// Why the store could not be read or written.
    type Error;
    /// Who holds `resource`.
    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Self::Error>;
    /// Sets or, with `None`, removes who holds `resource`.
    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Self::Error>;
    /// The fencing counter of `resource`.
    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, Self::Error>;
    /// Sets the fencing counter of `resource`.
    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), Self::Error>;
    /// The done record of `resource`.
    fn done(&self, resource: &Resource) -> Result<Option<DoneRow>, Self::Error>;
    /// Sets the done record of `resource`.
    fn set_done(&mut self, resource: &Resource, row: DoneRow) -> Result<(), Self::Error>;
    /// What stands in the ledger of a group.
    fn ledger(&self, group: &str) -> Result<LedgerState, Self::Error>;
    /// Replaces what stands in the ledger of a group.
    fn set_ledger(&mut self, group: &str, state: LedgerState) -> Result<(), Self::Error>;
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
    let failed = |e: S::Error| Reply::Refused(Refusal::Failed(e.to_string().into()));
    let replies = batch
        .requests
        .iter()
        .map(|request| gate(store, batch, request, clocks).unwrap_or_else(failed))
        .collect();
    BatchReply { node_time: clocks.wall, replies }
}

/// Serves `request` unless it comes too late or under another marker.
fn gate<S: Store>(
    store: &mut S,
    batch: &Batch,
    request: &Request,
    clocks: Clocks,
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
    Desk { store, clocks }.serve(request)
}

struct Desk<'a, S> {
    store: &'a mut S,
    clocks: Clocks,
}

impl<S: Store> Desk<'_, S> {
    fn serve(&mut self, request: &Request) -> Result<Reply, S::Error> {
        match request {
            Request::Acquire { resource, owner, ttl, propose, tolerance, keep } => {
                self.acquire(resource, owner, *ttl, *propose, *tolerance, *keep)
            }
            Request::Raise { resource, owner, to, keep } => self.raise(resource, owner, *to, *keep),
            Request::Extend { resource, owner, ttl, token, keep } => {
                self.extend(resource, owner, *ttl, *token, *keep)
            }
            Request::Release { resource, owner } => self.release(resource, owner),
            Request::Inspect { resource } => self.inspect(resource),
            Request::Complete { resource, owner, token, result, retention } => {
                self.complete(resource, owner, *token, result, *retention)
            }
            Request::Seal { ledger, term } => self.seal(ledger, *term),
            Request::Write { ledger, term, key, seen, record } => {
                self.write(ledger, *term, key, seen.as_ref(), record)
            }
            Request::Prune { ledger, term, below } => self.prune(ledger, *term, *below),
            Request::Read { ledger } => Ok(Reply::Ledger(self.store.ledger(ledger)?)),
            Request::Mark { expect, marker } => self.mark(expect.as_ref(), marker),
        }
    }

    fn acquire(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        propose: FencingToken,
        tolerance: Duration,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        if let Some(done) = self.live_done(resource)? {
            return Ok(Reply::Done(done));
        }
        if let Some(row) = self.live_lease(resource)? {
            return Ok(self.held(&row));
        }
        let last = match self.live_counter(resource)? {
            Some(count) => count,
            None => {
                let apart = self.clocks.wall.distance(NodeTime::from_micros(propose.get()));
                if apart > tolerance {
                    return Ok(Reply::Refused(Refusal::Clock { apart }));
                }
                propose
            }
        };
        if last >= FencingToken::MAX {
            return Ok(Reply::Refused(Refusal::CounterFull));
        }
        let counter = FencingToken::new(last.get() + 1);
        // The counter first: a node that fails between the two has counted a grant that nobody got.
        self.count(resource, counter, keep)?;
        self.own(resource, owner, ttl)?;
        Ok(Reply::Granted { counter })
    }

    fn raise(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        to: FencingToken,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        match self.live_lease(resource)? {
            Some(row) if *row.owner == *owner.as_str() => {}
            _ => return Ok(Reply::Refused(Refusal::NotOwner)),
        }
        match self.live_counter(resource)? {
            // Forgotten under a live lease: nobody can say what was counted here.
            None => Ok(Reply::Refused(Refusal::Superseded)),
            Some(count) if count > to => Ok(Reply::Refused(Refusal::Superseded)),
            Some(_) => {
                self.count(resource, to, keep)?;
                Ok(Reply::Raised)
            }
        }
    }

    fn extend(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        ttl: Duration,
        token: FencingToken,
        keep: Duration,
    ) -> Result<Reply, S::Error> {
        let mine = match self.live_lease(resource)? {
            Some(row) if *row.owner != *owner.as_str() => return Ok(self.held(&row)),
            Some(row) => row.until_nanos,
            None => 0,
        };
        if let Some(done) = self.live_done(resource)? {
            return Ok(Reply::Done(done));
        }
        let count = self.live_counter(resource)?.map_or(token, |count| count.max(token));
        self.count(resource, count, keep)?;
        if mine < self.after(ttl) {
            self.own(resource, owner, ttl)?;
        }
        Ok(Reply::Extended)
    }

    fn release(&mut self, resource: &Resource, owner: &Owner) -> Result<Reply, S::Error> {
        let mine = self.live_lease(resource)?.is_some_and(|row| *row.owner == *owner.as_str());
        if mine {
            self.store.set_lease(resource, None)?;
        }
        Ok(Reply::Released(mine))
    }

    fn inspect(&mut self, resource: &Resource) -> Result<Reply, S::Error> {
        let holder = self.live_lease(resource)?;
        let holder = holder.map(|row| (Owner::from_node(&row.owner), Some(self.remaining(&row))));
        let counter = self.live_counter(resource)?;
        Ok(Reply::State { holder, counter, done: self.live_done(resource)? })
    }

    fn complete(
        &mut self,
        resource: &Resource,
        owner: &Owner,
        token: FencingToken,
        result: &Arc<str>,
        retention: Duration,
    ) -> Result<Reply, S::Error> {
        let standing = self.live_done(resource)?;
        if let Some(done) = standing.filter(|done| done.token > token) {
            return Ok(Reply::Done(done));
        }
        let holder = self.live_lease(resource)?;
        match &holder {
            Some(row) if *row.owner != *owner.as_str() => return Ok(self.held(row)),
            Some(_) => {}
            None if self.live_counter(resource)?.is_some_and(|count| count > token) => {
                return Ok(Reply::Refused(Refusal::Superseded));
            }
            None => {}
        }
        let until_micros = (self.clocks.wall + retention).as_micros();
        let record = DoneRecord { token, result: Arc::clone(result) };
        let count = self.live_counter(resource)?.map_or(token, |count| count.max(token));
        self.count(resource, count, retention)?;
        self.store.set_done(resource, DoneRow { record, until_micros })?;
        if holder.is_some() {
            self.store.set_lease(resource, None)?;
        }
        Ok(Reply::Completed)
    }

    fn seal(&mut self, ledger: &Arc<str>, term: FencingToken) -> Result<Reply, S::Error> {
        let mut state = self.store.ledger(ledger)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        if state.term < term {
            state.term = term;
            self.store.set_ledger(ledger, state.clone())?;
        }
        Ok(Reply::Ledger(state))
    }

    fn write(
        &mut self,
        ledger: &Arc<str>,
        term: FencingToken,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<Reply, S::Error> {
        let mut state = self.store.ledger(ledger)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        if record.at < state.low_water {
            return Ok(Reply::Refused(Refusal::Pruned));
        }
        let place = state.records.binary_search_by(|(name, _)| name.cmp(key));
        if let Ok(at) = place {
            let standing = &state.records[at].1;
            if standing == record {
                return Ok(Reply::Written);
            }
            if standing.last || Some(standing) != seen {
                return Ok(Reply::Standing(standing.clone()));
            }
        }
        match place {
            Ok(at) => state.records[at].1 = record.clone(),
            Err(at) => state.records.insert(at, (Arc::clone(key), record.clone())),
        }
        state.term = term;
        self.store.set_ledger(ledger, state)?;
        Ok(Reply::Written)
    }

    fn prune(&mut self, ledger: &Arc<str>, term: FencingToken, below: u64) -> Result<Reply, S::Error> {
        let mut state = self.store.ledger(ledger)?;
        if state.term > term {
            return Ok(Reply::Refused(Refusal::Sealed { by: state.term }));
        }
        state.term = term;
        // A leader whose clock is ahead must not have the ledger forget what is yet to come.
        let below = below.min(self.clocks.wall.as_micros());
        state.low_water = state.low_water.max(below);
        let mark = state.low_water;
        state.records.retain(|(_, record)| record.at >= mark);
        self.store.set_ledger(ledger, state)?;
        Ok(Reply::Written)
    }

    fn mark(&mut self, expect: Option<&Arc<str>>, marker: &Arc<str>) -> Result<Reply, S::Error> {
        let standing = self.store.marker()?;
        if standing.as_ref() != expect {
            return Ok(Reply::Refused(Refusal::Marker(standing)));
        }
        // Whoever only looks says what stands: nothing is written.
        if standing.as_ref() != Some(marker) {
            self.store.set_marker(Arc::clone(marker))?;
        }
        Ok(Reply::Marked)
    }

    fn live_lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, S::Error> {
        Ok(self.store.lease(resource)?.filter(|row| row.until_nanos > self.clocks.lease_nanos))
    }

    fn live_counter(&self, resource: &Resource) -> Result<Option<FencingToken>, S::Error> {
        let row = self.store.counter(resource)?;
        Ok(row.filter(|row| row.until_micros > self.clocks.wall.as_micros()).map(|row| row.count))
    }

    fn live_done(&self, resource: &Resource) -> Result<Option<DoneRecord>, S::Error> {
        if !resource.is_claim() {
            return Ok(None);
        }
        let row = self.store.done(resource)?;
        Ok(row.filter(|row| row.until_micros > self.clocks.wall.as_micros()).map(|row| row.record))
    }

    fn own(&mut self, resource: &Resource, owner: &Owner, ttl: Duration) -> Result<(), S::Error> {
        let row = LeaseRow { owner: owner.as_str().into(), until_nanos: self.after(ttl) };
        self.store.set_lease(resource, Some(row))
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
