use super::Listeners;
use quorate::node::{
    Batch, BatchReply, Hello, MemoryStore, ReleasedLease, Resource,
    engine::{self, Clocks, LeaseRow, Store},
};
use std::{convert::Infallible, fmt::Debug};

/// The data of a simulated server, and the code that runs requests on them. The rows of [`Store`] are the view
/// of those who look into the server: referees, and servers with a fault.
pub trait ServerStore: Store<Error = Infallible> + Debug + Send {
    /// Runs a batch, and adds the leases that it released to `freed`.
    fn run(
        &mut self,
        batch: &Batch,
        clocks: Clocks,
        listeners: &Listeners,
        freed: &mut Vec<ReleasedLease>,
    ) -> BatchReply;

    /// Performs the handshake of a new connection. `facts` describe the server. The default is that the client
    /// learns exactly these.
    fn handshake(&mut self, facts: Hello) -> Hello {
        facts
    }

    /// Returns a copy of the data, as a snapshot on disk.
    fn snapshot(&self) -> Box<dyn ServerStore>;

    /// Returns an empty store of the same kind.
    fn emptied(&self) -> Box<dyn ServerStore>;

    /// Forgets what belongs to the server's process and not to its data. Called when the process starts again.
    fn process_restarted(&mut self) {}

    /// Returns the leases that have not ended, in a fixed order.
    fn live_leases(&self, clocks: Clocks) -> Vec<(Resource, LeaseRow)>;
}

/// Runs the shipped engine.
impl ServerStore for MemoryStore {
    fn run(
        &mut self,
        batch: &Batch,
        clocks: Clocks,
        _: &Listeners,
        freed: &mut Vec<ReleasedLease>,
    ) -> BatchReply {
        engine::run_telling(self, batch, clocks, freed)
    }

    fn snapshot(&self) -> Box<dyn ServerStore> {
        Box::new(self.clone())
    }

    fn emptied(&self) -> Box<dyn ServerStore> {
        Box::new(Self::default())
    }

    fn live_leases(&self, clocks: Clocks) -> Vec<(Resource, LeaseRow)> {
        Self::live_leases(self, clocks)
    }
}
