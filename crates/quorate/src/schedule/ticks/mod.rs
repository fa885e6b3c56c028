//! How a tick stands in the ledger, and what that means for whoever leads next.

mod delivery;
mod history;
mod record;
mod request;
mod row;
mod wire;

pub(in crate::schedule) use delivery::rank;
pub use delivery::{Decision, Delivery, NodeAnswer, SkipReason, TickVerdict, verdict};
pub use history::{TickCause, TickEnd, TickHistory};
pub use record::{RecordError, TickKey, TickRecord};
pub use request::{Answer, Ask, Request, RequestId, RequestIdError};
pub use row::{Cancelled, JobRow, Paused};
