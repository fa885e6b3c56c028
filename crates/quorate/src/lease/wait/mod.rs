//! Waiting for a lock. Decides when a waiter makes its next attempt, and keeps its ticket in the queue of
//! fair waiters.

mod backoff;
mod queue;

pub(crate) use backoff::RetryBackoff;
pub(crate) use queue::QueueTicket;
