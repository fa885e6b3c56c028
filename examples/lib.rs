//! The nodes that all examples use.
//!
//! In your service every copy is a process of its own. Here the copies are tasks of one process, each with a
//! quorum of its own, so that an example is one program. Without arguments the nodes are in memory; with Redis
//! URLs as arguments they are those servers:
//! `cargo run --example failover -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003`.

use quorate::{
    node::MemoryNode,
    quorum::{Quorum, QuorumBuilder},
};
use quorate_redis::Connect;
use std::{error::Error, sync::OnceLock, time::Duration};

/// The error of an example.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The quorum of one copy, called `worker`.
///
/// # Errors
/// Where the arguments are no Redis URLs.
pub fn quorum(worker: &str) -> Result<Quorum, Failure> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let builder = if urls.is_empty() { in_memory() } else { Quorum::redis(urls)?.into() };
    // New nodes wait before they vote, since they may have forgotten. An example has nothing to forget.
    Ok(builder.worker(worker).max_ttl(Duration::from_secs(10)).trust_new_nodes(true).build()?)
}

/// Five nodes that all copies share.
fn in_memory() -> QuorumBuilder {
    static NODES: OnceLock<Vec<MemoryNode>> = OnceLock::new();
    let nodes = NODES.get_or_init(|| (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect());
    Quorum::builder().nodes(nodes.iter().cloned())
}
