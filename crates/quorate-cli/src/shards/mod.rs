//! The commands on balanced shards.

mod command;
mod list;
mod run;

pub(crate) use list::{Page, json, list};
pub(crate) use run::run;
