//! One task for each node. It owns the node's session, sends requests in batches, and returns votes.
//!
//! [`core`] decides what to do next and reads no clock; [`task`] carries it out. [`NodePool`] holds the drivers of a
//! quorum. While a caller waits for a release, the nodes report releases to its process: [`WakeQueue`](wake_queue)
//! counts, for each owner that was released, the nodes that reported it, and wakes one waiter at a majority. Such
//! reports may be lost, so only the delay until a waiter tries again depends on them.

mod core;
#[cfg(test)]
mod core_tests;
mod listening;
mod message;
mod pool;
mod subscription;
mod task;
mod wake_queue;

pub(crate) use pool::{NodeFactory, NodePool, PoolEvent};
pub(crate) use subscription::Subscription;
pub(crate) use wake_queue::Wake;
