use crate::{env::WallTime, scheduler::store::row_writer::RowWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that a run of a job saves for the job's later runs. Clones of this value share the state.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct SavedState {
    key: Arc<str>,
    row: Arc<Mutex<StateRow>>,
}

/// The value of a job's state in the ledger, under the key `state/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::scheduler) struct StateRow {
    /// The number of changes of the row. If nodes store different rows of the same term, the row with the
    /// highest revision counts.
    pub(in crate::scheduler) rev: u64,
    pub(in crate::scheduler) text: Option<Arc<str>>,
}

impl SavedState {
    /// The prefix of the keys of states.
    pub(in crate::scheduler) const PREFIX: &str = "state/";

    /// Returns the key of a job's state.
    pub(in crate::scheduler) fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    /// Creates the state of `job` from its stored row.
    pub(in crate::scheduler) fn new(job: &str, row: StateRow) -> Self {
        Self { key: Self::key(job), row: Arc::new(Mutex::new(row)) }
    }

    /// Writes the state of a removed job. The record has the time `now`, so that pruning removes it later.
    pub(in crate::scheduler) fn close(&self, rows: &RowWriter, now: WallTime) {
        if let Some(value) = self.next_value() {
            rows.close(&self.key, value, now, false);
        }
    }

    /// Writes the state of a job that was added again, so that pruning does not remove the state.
    pub(in crate::scheduler) fn keep(&self, rows: &RowWriter) {
        if let Some(value) = self.next_value() {
            rows.put(&self.key, value);
        }
    }

    /// Returns the value of a row with the same text and the next revision. Returns `None` if there is no text.
    fn next_value(&self) -> Option<Arc<str>> {
        let mut row = self.row();
        row.text.as_ref()?;
        row.rev += 1;
        Some(serde_json::to_string(&*row).unwrap_or_default().into())
    }

    pub(in crate::scheduler) fn text(&self) -> Option<Arc<str>> {
        self.row().text.clone()
    }

    /// Sets a new text and writes it. The returned future completes when a majority stores the text, or when a
    /// first attempt to write the text has not reached a majority.
    pub(in crate::scheduler) fn set(
        &self,
        text: Arc<str>,
        rows: &RowWriter,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        let mut row = self.row();
        *row = StateRow { rev: row.rev + 1, text: Some(text) };
        let value = serde_json::to_string(&*row).unwrap_or_default();
        rows.write(&self.key, value.into())
    }

    fn row(&self) -> MutexGuard<'_, StateRow> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
