//! Drivers: a driver is the task that serves one node. The driver owns the node's session, sends requests in
//! batches, and returns votes.
//!
//! [`core`] makes the decisions, without I/O and without reading a clock. [`task`] carries them out.
//! [`NodePool`] holds the drivers of a quorum. A request travels as a
//! [`DriverMessage`](message::DriverMessage) to the driver, waits there as a
//! [`PendingRequest`](message::PendingRequest), and is part of one [`InFlightBatch`](message::InFlightBatch)
//! until the reply comes.
//!
//! While a caller waits for a lock, the nodes report the lock's releases to the caller's process. For each
//! former owner, [`WakeQueue`](wake_queue) counts the nodes that reported the release of that owner's lease.
//! Once enough nodes have reported it (a majority, or one node fewer for a lease on a bare majority), the queue
//! wakes one waiter. A report may be lost, which only delays the waiter's next attempt.

mod core;
#[cfg(test)]
mod core_tests;
mod listening;
mod message;
mod open_attempts;
mod order;
mod pool;
#[cfg(test)]
mod several_tests;
mod subscription;
mod task;
mod waiters;
mod wake_queue;

pub(crate) use message::RequestList;
pub(crate) use open_attempts::OpenAttempt;
pub(crate) use pool::{NodeFactory, NodePool, PoolEvent};
pub(crate) use subscription::Subscription;
pub(crate) use wake_queue::{Wake, WakeOrder};
