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
//! ([`Marker`]): its run id, the node set, the [`SharedSettings`], when its memory began and from when its votes count.
//!
//! | a node that … | may vote |
//! | --- | --- |
//! | shows our marker under its present run id | yes, from the marker's time on |
//! | has no marker (new, or flushed) | once it is marked: after `max_ttl × (1 + drift_rate)`, and four times `max_clock_offset` at least, unless admitted |
//! | shows a marker of another run (restarted) | the same, unless `durable` and verified so |
//! | was closed by a change of the node set ([`Replacement`]) | no: its set has been, or is being, replaced |
//! | shows another node set | no: two halves of a deployment would elect two leaders |
//! | shows other [`SharedSettings`], or a marker of another version | no: the safety of each worker depends on those of all |
//! | is a replica, or evicts keys | no |
//! | has the run id of another node of the list | no, and neither has that one |
//! | has a clock that jumped ahead of ours by more than `clock_step_allowance` | after as long again |
//!
//! # Who marks a new node
//!
//! A marker keeps workers with another list or other settings away, so a mistaken one would keep the right workers
//! away. A worker therefore marks a node that has no marker only once each node of its list has been met or found away,
//! a majority of them has been met, and no marker among them speaks against the worker (or a majority speaks for it).
//! Until then the node has no vote: [`VoteRejection::TooFewMet`], [`VoteRejection::Contradicted`]. A node that restarted and shows
//! a marker of this worker's list and settings is marked anew at once, for that changes neither.
//!
//! The first marker wins: a node takes one only in the place of the one that the worker saw, or of none. So where nodes
//! are all new and workers with different lists start at once, each node is of one list, and the workers of the other
//! list are refused there. No worker can know which list is the right one. Nor can the nodes keep both lists from a
//! majority of their own, if they have so few nodes in common: workers that start later are refused, and say so.
//!
//! Uptime never shortens a quarantine: it is wall-clock time, and lies after a step.
//!
//! A clock that jumps ahead ends leases early, so a node that shows such a jump is not counted from that very
//! reply on, not even for leases already held. Where the clocks of a majority of all nodes kept step with ours (so
//! of three nodes both others), the node is quarantined in its marker, for all. Where they did not, ours may have stood still: then the
//! quarantine is this worker's own, and no cluster is shut because one worker's clock failed. A worker knows
//! of a jump only if it heard from the node before, within the last quarantine's length; a node that nobody
//! asks anything is therefore looked at every third of `max_ttl`.
//!
//! # The quorum's clock
//!
//! Every reply carries its node's wall time. What the clocks of a majority of all nodes have certainly reached,
//! carried on by our boot clock, is the quorum's clock ([`Quorum::wall`](crate::quorum::Quorum::wall)): ticks are due by
//! it, so that a worker whose own wall clock is wrong starts none too early or too late.
//!
//! # The parts
//!
//! [`QuorumConfig`] is what all workers of a deployment must agree on, checked when it is built. One driver task a
//! node ([`driver`](self)) owns the session and asks a pure core what to do next. [`Tally`] counts votes.
//!
//! Who waits for a release is told of it by the nodes, while it waits: a bench of waiters counts, for each
//! owner that was freed, the nodes that told, and at a majority rings one waiter. Pushes may be lost, so
//! nothing depends on them but how soon a waiter looks again.

mod clock_offset;
mod clock_steps;
mod epoch;
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
