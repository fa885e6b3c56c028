//! The [`Quorum`]: the nodes together, which every lock, election, scheduler and set of claims uses.
//!
//! A quorum is built from nodes and a [`QuorumConfig`]; [`Quorum::ready`] waits until a majority of the nodes votes, and
//! [`Quorum::close`] releases what is still held and ends every task.

mod handle;

pub use crate::{
    config::{QuorumConfig, SettingError, SettingMismatch, SharedSettings},
    trust::{NodeState, NodeStatus, QuarantineReason, VoteRejection},
    vote::{NodeOutcome, Report},
};
pub use handle::{NotReady, Quorum, QuorumBuilder, TrustError};
