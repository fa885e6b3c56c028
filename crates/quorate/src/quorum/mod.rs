//! The [`Quorum`]: a set of nodes, through which every lock, election, scheduler and set of claims works.
//!
//! ```
//! use quorate::{Quorum, node::MemoryNode};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nodes = (0..5).map(|i| MemoryNode::new(&format!("memory-{i}")));
//! let quorum = Quorum::builder().nodes(nodes).worker("billing-1").trust_new_nodes(true).build()?;
//! let status = quorum.ready(Duration::from_secs(5)).await?;
//! println!("{} of {} nodes vote", status.voting(), status.len());
//! quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # New nodes
//!
//! A new node cannot be distinguished from a node that lost its memory. Such a node may have granted a lease
//! that is still held. So a node without a marker is in quarantine for `max_ttl` (30 s by default) or longer
//! before it votes. The first start on new nodes therefore waits for that long, and logs the reason.
//!
//! If no worker has used the nodes before, the quarantine is not needed. One call of [`Quorum::trust_nodes`]
//! (or the command `quorate nodes trust`) ends it. For development and tests, set
//! [`QuorumBuilder::trust_new_nodes`].
//!
//! # What is not guaranteed
//!
//! The guarantees of a quorum depend on its nodes: see [`lease`](crate::lease) for the assumptions.
//! [`Quorum::nodes`] returns the states that this worker last saw, which may be out of date.

mod handle;
mod status;

pub use crate::{
    config::{QuorumConfig, SettingError},
    trust::NodeStatus,
    vote::NoMajority,
};
#[doc(hidden)]
pub use crate::{
    config::{SettingMismatch, SharedSettings},
    trust::{NodeState, QuarantineReason, VoteRejection},
    vote::NodeOutcome,
};
pub use handle::{Quorum, QuorumBuilder};
pub use status::QuorumStatus;
