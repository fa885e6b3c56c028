use crate::{
    cluster::millis_between,
    setup::Network,
    sim::{Memory, Server},
};
use quorate::env::WallTime;
use std::sync::Arc;

/// One node of a [`Cluster`](crate::Cluster). Clones are the same node.
#[derive(Clone, Debug)]
pub struct Node {
    server: Arc<Server>,
    network: Arc<Network>,
}

impl Node {
    pub(crate) fn new(server: Arc<Server>, network: Arc<Network>) -> Self {
        Self { server, network }
    }

    /// Returns the node's name, as errors and `Quorum::nodes` show it.
    pub fn name(&self) -> &str {
        self.server.name()
    }

    /// Returns the time that the node's clock shows.
    pub fn now(&self) -> WallTime {
        WallTime::from_micros(self.server.wall_nanos() / 1_000)
    }

    /// Kills the node. Its connections break.
    pub fn kill(&self) {
        self.server.crash();
        self.network.changes.note();
    }

    /// Starts a killed node again, with all the data that it had.
    pub fn restart(&self) {
        self.start_again(Memory::Kept);
    }

    /// Starts a killed node again, without data. It does not vote until its quarantine is over.
    pub fn restart_empty(&self) {
        self.start_again(Memory::Empty);
    }

    /// Stops the node where it is, as SIGSTOP does. Requests wait, and run after [`Node::resume`].
    pub fn pause(&self) {
        self.server.set_awake(false);
        self.network.changes.note();
    }

    /// Lets a paused node continue.
    pub fn resume(&self) {
        self.server.set_awake(true);
        self.network.changes.note();
    }

    /// Sets the node's clock, to a millisecond. No time passes. If the clock steps by more than
    /// [`quorate::QuorumConfig::clock_step_allowance`], the node does not vote for a while.
    pub fn set_clock(&self, at: WallTime) {
        self.server.step(millis_between(self.now(), at));
        self.network.changes.note();
    }

    fn start_again(&self, memory: Memory) {
        if self.server.is_up() {
            self.server.crash();
        }
        self.server.restart(memory);
        self.network.changes.note();
    }
}
