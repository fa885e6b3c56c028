//! What the test-kit and the node implementations need beside the public API. It may change in any version.

pub use crate::{
    claim::attempts,
    config::majority,
    sabotage::Sabotage,
    trust::{Marker, MarkerError, NodeEpoch},
    vote::{Answer, Grant, Tally, Verdict, Vote},
};
