//! The parts of a cluster that its workers share.

use crate::sim::{Changes, Server, SimClock, Truth};
use quorate::{
    QuorumConfig,
    env::WallTime,
    internals::{Incarnation, Marker},
    node::engine::Store as _,
    quorum::SharedSettings,
};
use std::{sync::Arc, time::Duration};

/// The age of the nodes' memories when a cluster begins. A node counts for a tick only if its memory is
/// older.
const MEMORY_AGE: Duration = Duration::from_secs(24 * 3600);

/// The servers, and the time in which they live.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) truth: Truth,
    pub(crate) changes: Arc<Changes>,
    pub(crate) servers: Vec<Arc<Server>>,
    /// The wall clock of a new machine.
    pub(crate) first: SimClock,
}

/// Stores on each server the marker that a worker with the settings `config` accepts, with votes that count
/// now.
pub(crate) fn marked(servers: &[Arc<Server>], config: &QuorumConfig, now: WallTime) {
    let names: Vec<Arc<str>> = servers.iter().map(|server| server.name().into()).collect();
    for server in servers {
        let marker = Marker {
            run_id: server.run_id(),
            data: "".into(),
            incarnation: Incarnation::default(),
            nodes: Marker::node_set(&names),
            settings: SharedSettings::of(config),
            since: now - MEMORY_AGE,
            votes_from: now - MEMORY_AGE,
        };
        server.with_store(|store, _| {
            let Ok(()) = store.set_marker(marker.to_text());
        });
    }
}
