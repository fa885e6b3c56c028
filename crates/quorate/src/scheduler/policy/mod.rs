//! The rules of a job besides its schedule. They cover missed ticks, overlapping runs, failed attempts,
//! delivery, placement and jitter. All functions are pure.

mod concurrency;
mod delivery;
mod jitter;
mod labels;
mod misfire;
mod overlap;
mod placement;
mod retry;

pub use concurrency::Concurrency;
pub use delivery::Delivery;
pub(super) use jitter::Jitter;
pub use labels::Labels;
pub(super) use misfire::due_with;
pub use misfire::{DUE_MAX, DueTicks, Misfire, MisfireReason, MisfiredTicks, due};
pub use overlap::Overlap;
pub use placement::Placement;
pub use retry::Retry;
