//! Leases on a majority of nodes: the [`Quorum`], locks, the keeper that extends what is held.
//!
//! # What is not guaranteed
//!
//! A lease says who *may* act, not who *does*. Between [`Lease::fencing_token`] and the write that follows it, the
//! process may be paused for longer than the lease lives: compare the fencing token in the sink. Exclusion
//! rests on clock rates within `drift_rate` of each other, node clocks that step by no more than
//! `clock_step_allowance` (or further, where the acquirer has watched the node for `max_ttl`), a clock of our
//! own that never stands still, and a majority of nodes that remember or are quarantined after forgetting
//! (see [`round`](crate::round)). Another Redlock client on the same name is excluded and excludes, but with
//! plain Redlock's promise only.
//!
//! # Readers and writers
//!
//! A writer's lease *is* a plain lock's ([`RwLock::write`] gives a [`Lock`]). While readers hold a name, the lock's key on
//! each node holds one reserved word, [`Owner::READERS`](crate::node::Owner::READERS), and ends with the last reader: so a plain lock of that name is
//! not granted beside readers, and neither is any other Redlock client, which knows nothing of readers. (The other
//! way, a key of its own for readers that writers look at too, would have let other clients in beside them.)
//! What is the same for all leases holds for readers: a majority, validity from the send, extension, quarantine. What is not:
//!
//! * Readers have no fencing token, and change no counter. Between [`ReadLease::fencing_token`] and the use of what was read a
//!   pause may let a writer in, and nothing can be compared then.
//! * A node keeps [`READERS_MAX`](crate::node::engine::READERS_MAX) readers of one name.
//! * A Redis server that is out of memory extends a writer's lease, but not a reader's: the readers are a sorted set, and
//!   every change of it is a write that needs memory.
//! * Without [`Lock::fair`] readers who come all the time keep a writer away for ever.
//!
//! [`Lease::downgrade`] ends the writer's lease before its first message leaves; a node makes it a reader's only where the
//! writer still stands and nobody has been counted since. (The owner alone does not tell: an extension that comes late sets it
//! again after another has written. The model found that.) There is no upgrade: two readers who both wanted it would
//! wait for each other.
//!
//! # In turn
//!
//! [`Lock::fair`] orders those who wait by when they began, by their own wall clocks: it is as good as these agree, and
//! `max_clock_offset` bounds by how much a clock may be off. A node grants to the head of its queue alone, so that a plain
//! attempt is turned away while anyone waits in turn. Not promised: that a place outlives a worker that stands still (it ends
//! after 0.9 s at the defaults, and is taken again with its old time), or that the order is kept where nodes lose it.
//! The queue guards nothing: no exclusion rests on it.
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

mod acquire;
mod command;
mod deadline;
mod error;
mod event;
mod handle;
mod heartbeat;
mod inner;
mod inspect;
mod lock;
mod majority_log;
mod many;
mod mode;
mod options;
mod params;
mod read_write;
mod release_request;
mod renewer;
mod signal;
mod slots;
mod state;
mod transfer;
mod wait;

pub use deadline::StepDownCause;
pub use error::{AcquireError, DowngradeError, ExtendError, LeaseLost, ReleaseError};
pub use event::{LeaseEvent, LeaseEvents};
pub use handle::Lease;
pub use heartbeat::Heartbeat;
pub use inspect::{Holder, InspectError, Inspection};
pub use lock::{Lock, TryAcquire};
pub use many::{Leases, Locks};
pub use options::LeaseOptions;
pub use read_write::{ReadLease, ReadLock, RwLock};
pub use slots::{Slot, Slots};
pub use transfer::TransferError;

pub(crate) use acquire::{AttemptResult, attempt_each_with, is_contended};
pub(crate) use heartbeat::Health;
pub(crate) use inner::QuorumInner;
pub(crate) use inspect::{InspectTarget, inspect, inspect_each};
pub(crate) use mode::Mode;
pub(crate) use options::lease_options;
pub(crate) use params::LeaseParams;
pub(crate) use release_request::{request_release, resign_requested};
pub(crate) use wait::RetryBackoff;
