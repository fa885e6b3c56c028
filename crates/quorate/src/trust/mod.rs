//! Trust: the decision which nodes may vote, and what their clocks show.
//!
//! A node that lost its memory could grant a lock that another worker still holds. Each node therefore stores a *marker*
//! ([`Marker`]): its run id, the node set, the [`SharedSettings`](crate::config::SharedSettings), the beginning of its
//! memory, and the time from which its votes count. A worker compares the marker at each handshake ([`TrustPolicy`]),
//! and each request carries the marker, so that a node whose marker has changed refuses it.
//!
//! # Which nodes may vote
//!
//! | the node … | it may vote |
//! | --- | --- |
//! | has this worker's marker, of its present run | yes, from the time in the marker |
//! | has no marker: it is new, or was flushed | after a worker has written one and a quarantine has passed |
//! | has the marker of another run: it restarted | after a worker has written a new marker and a quarantine has passed; without a new quarantine if the node is verified `durable` |
//! | was closed by a replacement of the node set | no |
//! | names another node set, other shared settings, or another marker version | no |
//! | is a replica, or may evict keys | no |
//! | has the run id of another node in the list | no, and the other node must not vote either |
//! | has a clock that stepped ahead by more than `clock_step_allowance` | after a quarantine |
//!
//! A quarantine lasts `max_ttl × (1 + drift_rate)`, and at least four times `max_clock_offset`. An operator may end it
//! with [`Quorum::trust_nodes`](crate::quorum::Quorum::trust_nodes). A node's uptime never shortens it: uptime follows the wall clock,
//! and is wrong after a step.
//!
//! # The first marker of a node
//!
//! A worker with a wrong node list must not write its marker to new nodes, since that marker would keep correct workers out.
//! It therefore writes a first marker only when all of these hold ([`FirstMark`](registry::FirstMark)):
//!
//! * for each node of its list a handshake has succeeded or failed;
//! * handshakes with a majority have succeeded;
//! * no marker that it found differs from its own list and settings, or a majority agrees with them.
//!
//! A node stores a marker only in place of the marker that the worker read. If two workers start at the same time with
//! different lists, each new node refuses one of them. Neither worker can know which list is right.
//!
//! A restarted node whose marker names this worker's list and settings gets a new marker at once, since the new marker
//! names the same list and settings.
//!
//! # Steps of clocks
//!
//! [`ClockStepDetector`] compares the clock in each reply with the boot clock. A node whose clock gained too much stops
//! counting with that reply, also for leases already held. If the clocks of a majority did not step, the node's own clock
//! did, and the worker writes the quarantine into its marker for all workers. Otherwise this worker's clock may have
//! stood still, and only this worker treats the node as quarantined. Idle nodes are probed three times in a `max_ttl`,
//! so that a step is noticed.
//!
//! # The quorum's clock
//!
//! Every reply carries the node's wall time. From these samples [`quorum_clock`] computes the time that a majority of the
//! nodes has reached. The scheduler uses it, so that a worker with a wrong wall clock starts no run too early or too late.
//!
//! The reasons for these rules, with the counterexamples, are in `docs/design/lease-and-trust.md`.

mod clock_offset;
mod clock_steps;
mod epoch;
mod latency;
mod marker;
mod node_trust;
mod policy;
mod quorum_clock;
mod registry;
mod rejection;

pub use epoch::NodeEpoch;
pub use marker::{Marker, MarkerError};
pub use registry::{NodeState, NodeStatus};
pub use rejection::{QuarantineReason, VoteRejection};

pub(crate) use clock_offset::ClockOffset;
pub(crate) use clock_steps::{ClockObservation, ClockStepDetector};
pub(crate) use node_trust::{Admission, Marking, NodeTrust};
pub(crate) use policy::TrustPolicy;
pub(crate) use registry::NodeRegistry;
