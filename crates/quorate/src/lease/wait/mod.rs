//! Waiting for a lock: when to try again, and the queue of those who wait in turn.

mod backoff;
mod queue;

pub(crate) use backoff::RetryBackoff;
pub(crate) use queue::QueueTicket;
