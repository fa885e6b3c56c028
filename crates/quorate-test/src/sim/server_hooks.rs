use quorate::node::{
    Batch, BatchReply, MemoryStore, ReleasedLease,
    engine::{self, Clocks},
};
use std::fmt::Debug;

/// The observer of a [`Server`](super::Server), which may also make the server a faulty one.
pub trait ServerHooks: Debug + Send + Sync {
    /// Runs a batch, and adds the leases that it released to `freed`. The default runs the shipped engine.
    fn run(
        &self,
        store: &mut MemoryStore,
        batch: &Batch,
        clocks: Clocks,
        freed: &mut Vec<ReleasedLease>,
    ) -> BatchReply {
        engine::run_telling(store, batch, clocks, freed)
    }

    /// Returns `true` if a server that forgot its data keeps its run id and its marker, so that no worker
    /// notices the loss. The default is `false`.
    fn hides_losses(&self) -> bool {
        false
    }

    /// Returns `true` if the server takes snapshots, with which it may start again. The default is `false`.
    fn takes_snapshots(&self) -> bool {
        false
    }

    /// Called after the server has lost data.
    fn forgot(&self, node: &str) {
        let _ = node;
    }

    /// Called after the server has started again with its last snapshot.
    fn restored(&self, node: &str) {
        let _ = node;
    }

    /// Called after the server has taken a snapshot.
    fn saved(&self, node: &str) {
        let _ = node;
    }

    /// Called after the server has run a batch.
    fn ran(&self, node: &str, batch: &Batch, reply: &BatchReply) {
        let _ = (node, batch, reply);
    }

    /// Called before the server runs a batch whose sender has closed its end of the connection.
    fn sender_is_gone(&self) {}
}

/// The hooks of an honest server that is not observed.
#[derive(Debug)]
pub struct NoHooks;

impl ServerHooks for NoHooks {}
