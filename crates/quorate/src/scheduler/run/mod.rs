//! The execution of a run: its attempts, and the two ways to it, on the leader and through a slot.

mod attempts;
mod context;
mod guard;
pub(super) mod on_leader;
pub(super) mod opened;
pub(super) mod worker;

pub(super) use attempts::{Cancel, Work, WorkEnd, Worked, on_request};
pub(super) use context::Said;
pub use context::{StateError, Tick};
pub(super) use guard::Hold;
