//! The nodes that all examples use.
//!
//! In your service every copy is a separate process. In an example the copies are tasks of one process, each
//! with its own quorum, so that the example is one program. Without arguments the nodes are in memory. With
//! Redis URLs as arguments, the nodes are the servers at these URLs: `cargo run --example failover --
//! redis://127.0.0.1:7001 redis://127.0.0.1:7002 redis://127.0.0.1:7003`.

use quorate::{
    node::MemoryNode,
    quorum::{Quorum, QuorumBuilder},
};
use std::{error::Error, sync::OnceLock, time::Duration};

pub mod readme;

/// The error of an example.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Returns the quorum of one copy, which has the name `worker`.
///
/// # Errors
/// If the arguments are no Redis URLs.
pub fn quorum(worker: &str) -> Result<Quorum, Failure> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let builder = if urls.is_empty() { in_memory() } else { Quorum::redis(urls)? };
    // New nodes wait before they vote, because they may have lost leases. In an example there are no earlier
    // leases, so the nodes need not wait.
    Ok(builder.worker(worker).max_ttl(Duration::from_secs(10)).trust_new_nodes(true).build()?)
}

/// Returns a builder with five nodes in memory, which all copies share.
fn in_memory() -> QuorumBuilder {
    static NODES: OnceLock<Vec<MemoryNode>> = OnceLock::new();
    let nodes = NODES.get_or_init(|| (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect());
    Quorum::builder().nodes(nodes.iter().cloned())
}

/// Compiles the examples of the guide, and runs those that need no server.
#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes, reason = "`file=NAME` names a file for tests/guide")]
mod guide {
    macro_rules! pages {
        ($($name:ident = $page:literal,)*) => {
            $(#[doc = include_str!(concat!("../docs/guide/src/", $page))] struct $name;)*
        };
    }
    pages! {
        Leader = "how/leader.md",
        Service = "how/service.md",
        Cron = "how/cron.md",
        Shards = "how/shards.md",
        StoredJobs = "how/stored-jobs.md",
        Deduplicate = "how/deduplicate.md",
        Batches = "how/batches.md",
        Streams = "how/streams.md",
        Postgres = "how/postgres.md",
        Locks = "how/locks.md",
        Fencing = "how/fencing.md",
        Lease = "understand/lease.md",
        Rslock = "from/rslock.md",
        Crates = "reference/crates.md",
        Page = "reference/page.md",
    }
}
