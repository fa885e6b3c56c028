//! The leader's event loop. It carries out the effects that the planner (`plan/`) returns, and reports their
//! results to the planner.

mod active_runs;
mod end_log;
mod event_loop;
mod history_writer;
mod lead;
mod leading;
mod ledger_writes;

pub(super) use lead::lead;
pub(super) use leading::Leading;

#[cfg(test)]
mod tests;
