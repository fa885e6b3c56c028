//! What a leader does for its jobs: the plans are pure, `runner` and `run` are the shell around them.

mod plan;
mod registration;
mod run;
mod runner;

pub(super) use plan::ticks_kept;
pub(super) use runner::lead;
