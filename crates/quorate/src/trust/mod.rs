//! Trust: decides which nodes may vote, and measures the nodes' clocks.
//!
//! A node that lost its memory could grant a lock that another worker still holds. Each node therefore stores
//! a *marker* ([`Marker`]). The marker contains the server's run id, the node set and the
//! [`SharedSettings`](crate::config::SharedSettings). The marker also contains the beginning of the node's
//! memory and the time from which the node's votes count. A worker compares the marker at each handshake
//! ([`TrustPolicy`]), and each request carries the marker that the worker read. A node whose marker has
//! changed since then refuses the request.
//!
//! # Which nodes may vote
//!
//! | the node … | it may vote |
//! | --- | --- |
//! | has a marker with this worker's node set and settings, and the server's present run id | yes, from the time in the marker |
//! | has no marker: it is new, or was flushed | after a worker has written one and a quarantine has passed |
//! | has the marker of another run: it restarted | after a worker has written a new marker and a quarantine has passed; no quarantine is needed if the node is known to persist every write (`durable`), and no other node and no worker has seen a larger stamp of it |
//! | has a smaller stamp than another node or this worker has seen, or data that was copied from elsewhere | after a worker has written a new marker and a quarantine has passed |
//! | has a marker which says that its node set is being replaced, or was (`quorate nodes replace`) | no |
//! | has a marker with another node set, other shared settings, or another format version | no |
//! | is a replica, or may evict keys | no |
//! | has the run id of another node in the list | no, and the other node must not vote either |
//! | has a clock that stepped ahead by more than `clock_step_allowance` | after a quarantine |
//!
//! A quarantine lasts `max_ttl × (1 + drift_rate)`, and at least four times `max_clock_offset`. An operator
//! may end it with [`Quorum::trust_nodes`](crate::quorum::Quorum::trust_nodes). A node's uptime never
//! shortens the quarantine: uptime follows the wall clock, and is wrong after a step.
//!
//! # The first marker of a node
//!
//! A worker with a wrong node list must not write its marker to new nodes: these nodes would then refuse the
//! workers with the correct list. A worker therefore writes a first marker only when all of these hold
//! ([`FirstMark`](registry::FirstMark)):
//!
//! * for each node of its list a handshake has succeeded or failed;
//! * handshakes with a majority have succeeded;
//! * no marker that it found differs from its own list and settings, or a majority agrees with them.
//!
//! A node stores a marker only in place of the marker that the worker read. If two workers start at the same time with
//! different lists, each new node refuses one of them. Neither worker can know which list is right.
//!
//! A restarted node may already have a marker with this worker's list and settings. The worker replaces that
//! marker at once, since the list and the settings stay the same.
//!
//! # Steps of clocks
//!
//! [`ClockStepDetector`] compares the node's time in each reply with this worker's boot clock. If the node's
//! clock gained too much, the node's votes no longer count from that reply on, also for leases already held.
//! If the clocks of a majority did not step, the node's own clock stepped. The worker then writes the
//! quarantine into the node's marker for all workers. Otherwise this worker's clock may have stood still, and
//! only this worker treats the node as quarantined. Idle nodes are probed three times in a `max_ttl`, so that
//! a step is noticed.
//!
//! # Nodes that answer and refuse
//!
//! A trusted node may refuse what leases need: it is out of memory or disk space, too few replicas follow it, the worker's
//! user lacks a permission. Such a node is reported as one that does not vote, with its error ([`VoteRejection::Unable`]),
//! and probed until it serves again. A node whose clock is measured to be more than `max_clock_offset` from the worker's is
//! reported alike ([`VoteRejection::Clock`]): it cannot start a fencing counter for the worker. If it refused a test of
//! the commands that leases need, it is not asked for new leases, since it might grant one and refuse its extensions. All
//! other requests are sent to it as before, and what it grants counts: a lease that is held lives on as long as a majority
//! extends it.
//!
//! # The quorum's clock
//!
//! Every reply carries the node's wall time. From these samples [`quorum_clock`] computes the time that a majority of the
//! nodes has reached. The scheduler uses it, so that a worker with a wrong wall clock starts no run too early or too late.
//!
//! The reasons for these rules, with the counterexamples, are in `docs/design/lease-and-trust.md`.

mod ability;
mod clock_offset;
mod clock_steps;
mod epoch;
mod latency;
mod marker;
mod marking;
mod node_state;
mod node_trust;
mod policy;
mod quorum_clock;
mod registry;
mod rejection;

pub use epoch::NodeEpoch;
pub use marker::{Marker, MarkerError};
pub use node_state::{NodeState, NodeStatus};
pub use rejection::{QuarantineReason, VoteRejection};

pub(crate) use clock_offset::ClockOffset;
pub(crate) use clock_steps::{ClockObservation, ClockStepDetector};
pub(crate) use marking::{Admission, Marking};
pub(crate) use node_trust::NodeTrust;
pub(crate) use policy::{TrustPolicy, data_id, loss};
pub(crate) use registry::NodeRegistry;
