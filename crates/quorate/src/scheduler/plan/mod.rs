//! The leader's decisions: which runs start, which ticks are skipped, and what follows from a record of the
//! ledger. All functions are pure: they compute effects from an event and the time. The leader's event loop
//! carries the effects out. The effects name runs and what is stored of them, so this room is above `run` and `store`.

pub(super) mod active_run;
pub(super) mod definitions;
pub(super) mod effect;
mod every_jobs;
pub(super) mod housekeeping;
pub(super) mod job_id;
mod job_table;
mod key_gate;
mod known_jobs;
mod led_job;
mod open_request;
pub(super) mod planner;
mod ready_queue;
mod reporter;
pub(super) mod requests;
pub(in crate::scheduler) mod stand_still;
mod timer_queue;
mod unknown_runs;
