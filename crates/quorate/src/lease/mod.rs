//! Leases on a majority of nodes: locks, read locks, and the renewer that extends held leases. A
//! [`Quorum`](crate::quorum::Quorum) makes them.
//!
//! # What is not guaranteed
//!
//! A lease says which process *may* act. It does not prove which process *does* act: between
//! [`Lease::fencing_token`] and the write that follows it, the process may be paused for longer than the
//! lease is valid. So the store that receives the write must compare the fencing token. Mutual exclusion
//! rests on these assumptions:
//!
//! * Clock rates are within `drift_rate` of each other.
//! * Node clocks step by no more than `clock_step_allowance`. Larger steps are tolerated once a client has observed
//!   the node for `max_ttl`.
//! * This worker's boot clock never stops.
//! * A majority of nodes keep their memory, or are in quarantine after losing it (see
//!   [new nodes](crate::quorum#new-nodes)).
//!
//! Quorate and another Redlock client exclude each other if they use the same name, but only with the
//! guarantees of plain Redlock.
//!
//! # Readers and writers
//!
//! A writer's lease *is* a plain lock's lease (the same [`Quorum::lock`](crate::Quorum::lock)). While readers
//! hold a name, the lock's key on each node holds one reserved word,
//! [`Owner::READERS`](crate::node::Owner::READERS), and expires with the last reader. So nodes grant the name
//! neither to a plain lock nor to another Redlock client, which does not know about readers.
//!
//! A separate key for readers would not have this effect: other Redlock clients would not check it, and would
//! acquire the name while readers hold it.
//!
//! The rules of all leases hold for readers too: a majority, validity that counts from the send, extension,
//! quarantine. The differences are:
//!
//! * Readers have no fencing token, and change no counter. If a reader is paused between
//!   [`ReadLease::ensure_held`] and the use of the data, a writer may acquire the lock meanwhile. The reader
//!   has no token that could show this.
//! * A node keeps at most [`READERS_MAX`](crate::node::engine::READERS_MAX) readers of one name.
//! * A Redis server that is out of memory extends a writer's lease, but not a reader's. The readers are a
//!   sorted set, and every change of the set needs memory.
//! * Without [`Lock::fair`], a steady stream of readers keeps a writer waiting without limit.
//!
//! [`Lease::downgrade`] ends the writer's lease before its first message is sent. A node turns the writer's
//! lease into a reader's lease under two conditions: it still stores the writer's key, and it has granted the
//! name to no other owner since. The stored key alone is not enough, because a late extension may set the
//! same owner again after another writer; the formal model found that case.
//!
//! A reader's lease cannot be upgraded to a writer's: two readers that both tried would wait for each other.
//!
//! # Fair waiting
//!
//! [`Lock::fair`] orders waiters by the start of their wait, as their own wall clocks show it. The order is
//! only as exact as the agreement of these clocks, and `max_clock_offset` bounds how far a clock may be off.
//! If a node's queue is not empty, the node grants the lock only to the first waiter in the queue.
//!
//! Two things are not guaranteed. First, the nodes remove a paused worker from their queues after 0.9 s with
//! the default settings. When the worker continues, it joins the queues again, with the start of its wait
//! unchanged. Second, nodes may lose the queue, and with it the order. Mutual exclusion does not depend on
//! the queue.
//!
//! # The states of a lease
//!
//! | state | what holds | what ends it |
//! | --- | --- | --- |
//! | attempt | some nodes may store keys with a new owner token | the verdict, or the drop of the future: a lost or dropped attempt is released |
//! | held | a majority granted, a majority's counter is the fencing token, validity counts from the *send* of the requests | a failed round of extensions, or the step-down |
//! | at risk | an extension failed to reach a majority, or the health check failed; both are retried until the step-down | a majority extends, or the step-down |
//! | stepping down | `step_down_grace` before validity ends; the work is asked to stop | the end of validity, or the release |
//! | lost | validity is over, or the release is about to be sent; no later reply revives the lease | nothing: this state is final |
//!
//! Fencing tokens are unique and grow. This does not depend on time: each node counts its grants of a
//! resource. The client takes the largest count among its grants, and raises the counters of a majority to
//! that count.
//!
//! Two attempts A and B cannot both end with the token `t`. Otherwise the majorities of A and B would share a
//! node. That node would have had owner A with the count `t`, and later owner B with the same count. But the
//! grant to B made the node's count larger. For the same reason, a later attempt gets a larger token: its
//! majority includes a node that had the count `t`, and the grant of that node adds one.

mod acquire;
mod any;
mod attempt;
mod backlog;
mod bell;
mod command;
mod contact;
mod deadline;
mod error;
mod event;
mod extensions;
mod handle;
mod heartbeat;
mod inner;
mod inspect;
mod lease_map;
mod lock;
mod majority_log;
mod many;
mod mode;
mod options;
mod params;
mod read;
mod recent_waits;
mod release_request;
mod renewer;
mod run;
mod shown;
mod signal;
mod slot;
mod state;
mod transfer;
mod wait;

pub use deadline::StepDownCause;
pub use error::{AcquireError, LeaseError, LeaseLost};
#[doc(hidden)]
pub use event::LeaseEvent;
pub use handle::Lease;
#[doc(hidden)]
pub use heartbeat::Heartbeat;
#[doc(hidden)]
pub use inspect::Inspection;
pub use lock::{Lock, TryAcquire};
pub use many::{Leases, Locks};
pub use options::LeaseOptions;
pub use read::ReadLease;

pub(crate) use acquire::{AttemptResult, attempt_each_with, is_contended};
pub(crate) use bell::Bell;
pub(crate) use contact::{AskOrder, IfHeld};
pub(crate) use heartbeat::Health;
pub(crate) use inner::QuorumInner;
pub(crate) use inspect::{InspectTarget, inspect, inspect_each};
pub(crate) use mode::Mode;
pub(crate) use options::lease_options;
pub(crate) use params::LeaseParams;
pub(crate) use release_request::{request_release, resign_requested};
pub(crate) use shown::Shown;
pub(crate) use wait::RetryBackoff;
