//! How a tick stands in the ledger, and what that means for whoever leads next.

mod delivery;
mod record;

pub use delivery::{Decision, Delivery, NodeAnswer, SkipReason, TickVerdict, verdict};
pub use record::{RecordError, TickKey, TickRecord};
