use crate::scheduler::{
    job::Job,
    store::{HistoryEntry, RunRecord},
};
use std::sync::Arc;

/// A history entry, and the closed record that must be written before the entry, if there is one.
#[derive(Debug)]
pub(in crate::scheduler) struct RunReport {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) entry: HistoryEntry,
    pub(in crate::scheduler) close: Option<Close>,
}

/// A closed record that this leader must write before the history entry of the run. The leader dropped the run,
/// or did not execute it in this term.
#[derive(Debug)]
pub(in crate::scheduler) struct Close {
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) record: RunRecord,
}
