//! The data that the scheduler stores in the ledger: the records of runs, the rows of jobs, the requests of operators,
//! and the history. Also the rules that decide from records, and for how long records are kept. The rooms `run`, `plan`
//! and `control` use this one, which uses none of them.

mod condition;
mod error;
mod failed_runs;
mod group_freeze;
pub(super) mod health;
mod history;
pub(super) mod job_row;
mod record;
pub(super) mod record_life;
pub(super) mod recorded_ends;
mod request;
mod request_row;
pub(super) mod retention;
pub(super) mod run_report;
pub(super) mod snapshot;
mod stored_job;
pub(crate) mod verdict;
mod work_end;
mod work_row;

pub use error::RecordError;
pub use group_freeze::GroupFreeze;
pub use history::HistoryEntry;
pub use job_row::{JobRow, Paused};
pub use record::{AssignedTo, OpenRun, RunKey, RunRecord};
pub(super) use record::{
    REQUESTED_PREFIX, TAKE_WITHIN, TICK_PREFIX, job_and_tick, request_of, requested_key,
};
pub(super) use request::VALID_MAX;
pub use request::{DefinitionText, Expect, JobAction, JobRequest, JobResponse};
pub(super) use request_row::RequestRow;
pub use stored_job::StoredJob;
pub(super) use stored_job::{ChangeLog, LackedJobs};
pub(super) use work_end::{WorkEnd, WorkResult};
pub(super) use work_row::{Announcement, WorkRow, WorkRun};

/// The largest number of bytes of a reason, and of an error, in a record of a run or in a history entry.
pub(in crate::scheduler) const REASON_MAX: usize = 512;
