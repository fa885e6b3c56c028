//! The leader's event loop: it carries out the effects of the decisions in `plan/`, and reports back when they are
//! done.

mod active_runs;
mod event_loop;
mod lead;
mod leading;

pub(super) use lead::lead;
pub(super) use leading::Leading;

#[cfg(test)]
mod tests;
