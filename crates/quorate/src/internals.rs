//! Items for the test-kit and the node implementations. They may change in any version.

#[cfg(feature = "claims")]
pub use crate::claim::{ClaimTally, attempts};
pub use crate::{
    config::majority,
    sabotage::Sabotage,
    trust::{Marker, MarkerError, NodeEpoch},
    vote::{Answer, Grant, RoundData, Tally, Verdict, Vote},
};
