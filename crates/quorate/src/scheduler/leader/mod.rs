//! The leader's event loop. It carries out the effects that the decisions in `plan/` return, and reports to
//! them when the effects are done.

mod active_runs;
mod event_loop;
mod lead;
mod leading;

pub(super) use lead::lead;
pub(super) use leading::Leading;

#[cfg(test)]
mod tests;
