//! Running a handler: what it is given, under what it runs, its attempts and its end.

mod attempts;
mod hold;
mod tick;

pub(super) use attempts::{Cancel, Work, WorkEnd, Worked, on_request};
pub(super) use hold::Hold;
pub(super) use tick::Said;
pub use tick::{StateError, Tick};
