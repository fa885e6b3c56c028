//! The leader's event loop.

mod completion;
mod event_loop;
mod forget;
mod jobs;
mod requests;

pub(super) use event_loop::{Leading, PRUNE_EVERY, lead};

#[cfg(test)]
mod tests;
