//! The execution of a run, on the leader or on the worker to which the leader has assigned it. The leader's other
//! decisions, in `plan`, use this room, which uses none of them.

pub(super) mod assign;
pub(super) mod assignment;
mod attempts;
pub(super) mod cancel;
pub(super) mod next_start;
pub(super) mod on_leader;
pub(super) mod opened;
mod pace;
pub(super) mod pending_run;
pub(super) mod span;
pub(super) mod worker;
mod worklist;

pub(super) use attempts::Execution;
pub(super) use cancel::{Cancel, on_request};
