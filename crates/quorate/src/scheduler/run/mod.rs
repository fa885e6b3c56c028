//! The execution of a run: its attempts, on the leader or on a worker that takes the run through a slot.

mod attempts;
pub(super) mod cancel;
mod context;
mod guard;
pub(super) mod on_leader;
pub(super) mod opened;
pub(super) mod slot_attempt;
mod slot_watch;
pub(super) mod span;
pub(super) mod worker;

pub(super) use attempts::{Execution, ExecutionEnd, ExecutionResult};
pub(super) use cancel::{Cancel, on_request};
pub use context::RunContext;
pub(super) use context::RunOutput;
pub(super) use guard::RunGuard;
