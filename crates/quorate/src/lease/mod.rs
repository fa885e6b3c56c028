//! Leases on a majority of nodes: the [`Quorum`], locks, the keeper that extends what is held.
//!
//! # What is not guaranteed
//!
//! A lease says who *may* act, not who *does*. Between [`Lease::check`] and the write that follows it, the
//! process may be paused for longer than the lease lives: compare the fencing token in the sink. Exclusion
//! rests on clock rates within `drift_rate` of each other, node clocks that step by no more than
//! `clock_step_allowance` (or further, where the acquirer has watched the node for `max_ttl`), a clock of our
//! own that never stands still, and a majority of nodes that remember or are quarantined after forgetting
//! (see [`round`](crate::round)). Another Redlock client on the same name is excluded and excludes, but with
//! plain Redlock's promise only.
//!
//! # How a lease lives
//!
//! | state | what holds | what ends it |
//! | --- | --- | --- |
//! | attempt | keys may stand on some nodes, signed by a fresh owner token | verdict, or the caller's drop: both release |
//! | held | a majority granted, a majority's counter is the fencing token, validity has been counted from the *send* | |
//! | at risk | an extension failed to reach a majority; it is retried until the deadline | a majority extends, or the step-down |
//! | stepping down | `step_down_grace` before validity ends; the work is told | its end |
//! | lost | validity is over, or the release is about to leave. For good: no later reply revives it | |
//!
//! The fencing token (design of the counters, and why they are unique and grow without a word on time): each
//! node counts its grants of a resource; the client takes the largest count among its grants and raises a
//! majority to it. If two attempts ended with one token `t`, some node had (owner A, c = t) and later (owner
//! B, c = t), but B's grant there made c larger. A later attempt meets a node that had `t`, and adds one.

mod attempt;
mod error;
mod force;
mod handle;
mod health;
mod held;
mod hub;
mod inspect;
mod keeper;
mod lock;
mod many;
mod mode;
mod options;
mod patience;
mod place;
mod quorum;
mod rw;
mod slots;
mod tenure;
mod transfer;
mod wish;

pub use error::{AcquireError, DowngradeError, ExtendError, LeaseLost, ReleaseError};
pub use force::ForcedRelease;
pub use handle::{Lease, LeaseEvent, LeaseEvents};
pub use health::Heartbeat;
pub use inspect::{Holder, InspectError, Inspection};
pub use lock::{Lock, TryAcquire};
pub use many::{Leases, Locks, TryAcquireAll};
pub use quorum::{AdmitError, Quorum, QuorumBuilder};
pub use rw::{ReadLease, ReadLock, RwLock};
pub use slots::{Slot, Slots};
pub use tenure::StepDownCause;
pub use transfer::TransferError;

pub(crate) use attempt::{Attempted, Terms, attempt_each, is_contended};
pub(crate) use health::Health;
pub(crate) use lock::terms as lease_terms;
pub(crate) use options::Options;
pub(crate) use wish::{ask as ask_to_let_go, heard as asked_to_let_go};
