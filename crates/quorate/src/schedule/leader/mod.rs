//! What a leader does for its jobs: the plans are pure, `runner` and `run` are the shell around them.

mod asked;
mod plan;
mod registration;
mod run;
mod runner;

#[allow(dead_code, unused_imports, reason = "until the runner takes requests")]
pub(super) use asked::Asked;
pub(super) use plan::ticks_kept;
pub(super) use runner::lead;
