//! How a tick stands in the ledger, and what that means for whoever leads next.

mod delivery;
mod history;
mod outcome;
mod record;
mod request;
mod row;
mod wire;

pub(in crate::schedule) use delivery::rank;
pub use delivery::{
    Decision, Delivery, NodeAnswer, SkipReason, TickVerdict, first_opened, goes_forward, inherited, is_open,
    memory_needed, overwrites, verdict, voided,
};
pub use history::{TickCause, TickEnd, TickHistory};
pub(in crate::schedule) use outcome::{RunOutcome, tail};
pub use record::{OpenRun, RecordError, TickKey, TickRecord};
pub use request::{Answer, Ask, Request, RequestId, RequestIdError};
pub(in crate::schedule) use row::FOR_EVER;
pub use row::{JobRow, Paused};
