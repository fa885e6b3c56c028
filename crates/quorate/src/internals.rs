//! Items for the test-kit and the node implementations. They may change in any version.

pub use crate::{
    claim::{ClaimTally, attempts},
    config::majority,
    sabotage::Sabotage,
    trust::{Marker, MarkerError, NodeEpoch},
    vote::{Answer, Grant, RoundData, Tally, Verdict, Vote},
};
