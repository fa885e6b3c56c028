//! The leader's event loop: it carries out the effects of the decisions in `plan/`, and reports their ends back.

mod active_runs;
mod event_loop;
mod lead;

pub(super) use lead::{Leading, lead};

#[cfg(test)]
mod tests;
