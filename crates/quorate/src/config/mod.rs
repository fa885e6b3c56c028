//! The settings of a worker, including those on which all workers of a node set must agree. They are checked
//! when a quorum is built.

mod quorum_config;
mod shared;

pub use crate::setting_error::SettingError;
pub use quorum_config::QuorumConfig;
pub use shared::{SettingMismatch, SharedSettings};

/// Returns the size of a majority of `nodes` nodes: ⌊N/2⌋ + 1.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}
