//! Everything that the scheduler keeps in the ledger: the records of runs, the rows of jobs, and the history.

mod history;
pub(super) mod history_writer;
pub(super) mod job_row;
pub(super) mod open_list;
mod record;
pub(super) mod retention;
pub(super) mod row_writer;
pub(super) mod run_writer;
mod slot_result;
pub(super) mod snapshot;
pub(super) mod wire;

pub use history::{HistoryEntry, RunCause, RunOutcome};
pub(super) use job_row::FOR_EVER;
pub use job_row::{JobRow, Paused};
pub(super) use open_list::OpenList;
pub(super) use record::Stage;
pub use record::{OpenRun, RecordError, RunKey, RunRecord};
pub(super) use slot_result::{SlotResult, tail};
