//! The leader's decisions: which runs start, which ticks are skipped, and what follows from a record of the
//! ledger. All functions are pure: they compute effects from an event and the time. The leader's event loop
//! carries the effects out. The effects name runs and what is stored of them, so this room is above `run` and `store`.

mod active_run;
pub(super) mod effect;
mod group_freeze;
pub(super) mod housekeeping;
mod job_entry;
mod job_plan;
mod job_table;
pub(super) mod known_jobs;
mod led_jobs;
pub(super) mod open_request;
pub(super) mod planner;
mod ready_queue;
pub(super) mod reporter;
pub(super) mod requests;
pub(in crate::scheduler) mod stand_still;
mod takeover;
mod timer_queue;
mod unknown_runs;
