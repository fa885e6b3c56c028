//! What a job is told to do with its ticks beside when they are due: pure rules.

mod jitter;
mod overlap;
mod placement;
mod retry;

pub(super) use jitter::Jitter;
pub use overlap::Overlap;
pub use placement::Placement;
pub use retry::Retry;
