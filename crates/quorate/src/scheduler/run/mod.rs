//! The execution of a run: its attempts, and the two ways to it, on the leader and through a slot.

mod attempts;
mod context;
mod guard;
pub(super) mod on_leader;
pub(super) mod opened;
pub(super) mod worker;

pub(super) use attempts::{Cancel, Execution, ExecutionEnd, ExecutionResult, on_request};
pub(super) use context::RunOutput;
pub use context::{RunContext, StateError};
pub(super) use guard::RunGuard;
