//! The leader's decisions: which runs start, which ticks are skipped, and what a record means. Pure.

pub(super) mod job_entry;
pub(super) mod job_plan;
pub(super) mod requests;
pub(crate) mod verdict;

pub(super) use job_plan::{needed, ticks_kept};
