//! What a leader does for its jobs: the plans are pure, `runner` and `run` are the shell around them.

mod ask;
mod asked;
mod chronicle;
mod desk;
mod ended;
mod entry;
mod forget;
mod open_list;
mod opened;
mod plan;
mod roll;
mod rows;
mod run;
mod runner;
mod sealed;
mod write;

pub(super) use asked::Asked;
pub(super) use open_list::OpenList;
pub(super) use plan::{needed, ticks_kept};
pub(super) use runner::{Leading, lead};

#[cfg(test)]
mod tests;
