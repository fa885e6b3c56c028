//! The stores of the models' nodes, and the code that runs the shipped engine on them.

use quorate::node::{
    Batch, LedgerState, NodeTime, Reply, Request, Resource,
    engine::{self, ClaimRow, Clocks, CounterRow, LeaseRow, QueueRow, Store},
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, LazyLock},
};

static MARKER: LazyLock<Arc<str>> = LazyLock::new(|| "marked".into());

/// The store of one node in a model. It is packed into few bytes, because a search keeps millions of stores.
///
/// A model implements only the kinds of rows that its requests use. For the other kinds there is no row, and a
/// write has no effect.
pub(super) trait ModelStore {
    fn lease(&self, _: &Resource) -> Option<LeaseRow> {
        None
    }

    fn set_lease(&mut self, _: &Resource, _: Option<LeaseRow>) {}

    fn counter(&self, _: &Resource) -> Option<CounterRow> {
        None
    }

    fn set_counter(&mut self, _: &Resource, _: CounterRow) {}

    fn claim(&self, _: &Resource) -> Option<ClaimRow> {
        None
    }

    fn set_claim(&mut self, _: &Resource, _: Option<ClaimRow>) {}
}

/// Runs `request` as a batch of its own on the shipped engine. In the store, the marker is always the expected
/// one, because the model itself decides whether a node may vote.
pub(super) fn run(
    store: &mut impl ModelStore,
    request: Request,
    clocks: Clocks,
    not_after: NodeTime,
) -> Reply {
    let batch = Batch { requests: vec![request], not_after, stamp: Arc::clone(&MARKER) };
    let reply = engine::run(&mut EngineStore(store), &batch, clocks);
    reply.replies.into_iter().next().unwrap_or_else(|| unreachable!("one request has one reply"))
}

/// A [`ModelStore`] in the form that the engine needs. No model has a queue of waiters, or a ledger on it.
struct EngineStore<'a, S>(&'a mut S);

impl<S: ModelStore> Store for EngineStore<'_, S> {
    type Error = Infallible;

    fn lease(&self, resource: &Resource) -> Result<Option<LeaseRow>, Infallible> {
        Ok(self.0.lease(resource))
    }

    fn set_lease(&mut self, resource: &Resource, row: Option<LeaseRow>) -> Result<(), Infallible> {
        self.0.set_lease(resource, row);
        Ok(())
    }

    fn queue(&self, _: &Resource) -> Result<Option<QueueRow>, Infallible> {
        Ok(None)
    }

    fn set_queue(&mut self, _: &Resource, _: Option<QueueRow>) -> Result<(), Infallible> {
        Ok(())
    }

    fn counter(&self, resource: &Resource) -> Result<Option<CounterRow>, Infallible> {
        Ok(self.0.counter(resource))
    }

    fn set_counter(&mut self, resource: &Resource, row: CounterRow) -> Result<(), Infallible> {
        self.0.set_counter(resource, row);
        Ok(())
    }

    fn claim(&self, resource: &Resource) -> Result<Option<ClaimRow>, Infallible> {
        Ok(self.0.claim(resource))
    }

    fn set_claim(&mut self, resource: &Resource, row: Option<ClaimRow>) -> Result<(), Infallible> {
        self.0.set_claim(resource, row);
        Ok(())
    }

    fn ledger(&self, _: &str) -> Result<LedgerState, Infallible> {
        Ok(LedgerState::default())
    }

    fn set_ledger(&mut self, _: &str, _: LedgerState) -> Result<(), Infallible> {
        Ok(())
    }

    fn marker(&self) -> Result<Option<Arc<str>>, Infallible> {
        Ok(Some(Arc::clone(&MARKER)))
    }

    fn set_marker(&mut self, _: Arc<str>) -> Result<(), Infallible> {
        Ok(())
    }

    fn stamps(&self) -> Result<BTreeMap<Arc<str>, u64>, Infallible> {
        Ok(BTreeMap::new())
    }

    fn set_stamps(&mut self, _: BTreeMap<Arc<str>, u64>) -> Result<(), Infallible> {
        Ok(())
    }
}
