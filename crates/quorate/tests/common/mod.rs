//! Helpers for several test files: five memory nodes, and workers that use them on the real clock.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use quorate::{node::MemoryNode, quorum::Quorum};
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Returns five nodes that workers may share.
pub(crate) fn nodes() -> Vec<MemoryNode> {
    (0..5).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect()
}

pub(crate) fn quorum(worker: &str, nodes: &[MemoryNode]) -> Quorum {
    let builder = Quorum::builder().worker(worker).nodes(nodes.iter().cloned());
    builder.trust_new_nodes(true).build().expect("a sound setup")
}
