//! Waiting for a lock: the time of the next attempt, and the queue of fair waiters.

mod backoff;
mod queue;

pub(crate) use backoff::RetryBackoff;
pub(crate) use queue::QueueTicket;
