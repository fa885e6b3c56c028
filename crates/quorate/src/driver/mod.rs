//! One task for each node. It owns the node's session, sends requests in batches, and returns votes.
//!
//! [`core`] makes the decisions and reads no clock; [`task`] carries them out. [`NodePool`] holds the drivers of a
//! quorum. A request travels as a [`DriverMessage`](message::DriverMessage) to the driver, waits there as a
//! [`PendingRequest`](message::PendingRequest), and is part of one [`InFlightBatch`](message::InFlightBatch) until the
//! reply comes.
//!
//! While a caller waits for a release, the nodes report releases to its process. For each owner that was released,
//! [`WakeQueue`](wake_queue) counts the nodes that reported it, and wakes one waiter once a majority has reported it.
//! Such reports may be lost. A lost report only delays the waiter's next attempt.

mod core;
#[cfg(test)]
mod core_tests;
mod listening;
mod message;
mod order;
mod pool;
mod subscription;
mod task;
mod waiters;
mod wake_queue;

pub(crate) use pool::{NodeFactory, NodePool, PoolEvent};
pub(crate) use subscription::Subscription;
pub(crate) use wake_queue::Wake;
