//! Rounds: one question to every node, and what the answers together mean.
//!
//! # What is not guaranteed
//!
//! A round that is lost or dropped may still have set keys: its releases travel behind its own requests, and
//! where they cannot (the connection broke), the keys live until their TTL ends. A node's word that someone
//! else holds a lease is a vote; only a majority's is the truth.
//!
//! # Which nodes may vote
//!
//! A node that has lost its memory may grant what another still holds. So each node carries a *marker*
//! ([`Marker`]): its run id, the node set, `max_ttl`, when its memory began and from when its votes count.
//!
//! | a node that … | may vote |
//! | --- | --- |
//! | shows our marker under its present run id | yes, from the marker's time on |
//! | has no marker (new, or flushed) | after `max_ttl × (1 + drift_rate)`, unless admitted |
//! | shows a marker of another run (restarted) | the same, unless `durable` and verified so |
//! | shows another node set or another `max_ttl` | no: two halves of a deployment would elect two leaders |
//! | is a replica, or evicts keys | no |
//! | has the run id of another node of the list | no, and neither has that one |
//!
//! Uptime never shortens a quarantine: it is wall-clock time, and lies after a step. Judging clock *steps*
//! is not built yet.
//!
//! # The parts
//!
//! [`Setup`] is what all workers of a deployment must agree on, checked when it is built. One driver task a
//! node ([`driver`](self)) owns the session and asks a pure core what to do next. [`Tally`] counts votes.

mod board;
mod core;
#[cfg(test)]
mod core_tests;
mod distrust;
mod driver;
mod fleet;
mod flight;
mod marker;
mod offset;
mod sabotage;
mod setup;
mod standing;
mod tally;
mod trust;
mod vote;

pub use board::{NodeState, NodeStatus};
pub use distrust::{Distrust, QuarantineReason};
pub use marker::{Marker, MarkerError};
pub use setup::{Setup, SetupError};
pub use tally::{Grant, Tally, Verdict, majority};
pub use vote::{Answer, NodeOutcome, Report, Vote};

#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
#[cfg(not(feature = "sabotage"))]
pub(crate) use sabotage::Sabotage;

pub(crate) use fleet::{Fleet, FleetEvent, Starter};
pub(crate) use tally::quorum_th;
pub(crate) use vote::{Ballots, ReplyTo};
