use crate::ledger::{LedgerError, TermLedger};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that a run of a job saves for the job's later runs. Clones of this value share the state.
///
/// The ledger has it under the key `state/NAME`.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct SavedState {
    key: Arc<str>,
    text: Arc<Mutex<Option<Arc<str>>>>,
}

impl SavedState {
    /// The prefix of the keys of states.
    pub(in crate::scheduler) const PREFIX: &str = "state/";

    pub(in crate::scheduler) fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    /// Creates the state of `job` from its stored text.
    pub(in crate::scheduler) fn new(job: &str, text: Option<Arc<str>>) -> Self {
        Self { key: Self::key(job), text: Arc::new(Mutex::new(text)) }
    }

    /// Removes the state of a removed job from the ledger.
    pub(in crate::scheduler) fn remove(&self, ledger: &TermLedger) {
        if self.text().is_some() {
            ledger.put(&self.key, None);
        }
    }

    /// Writes the state of a job that was added again, so that the ledger has it again.
    pub(in crate::scheduler) fn keep(&self, ledger: &TermLedger) {
        if let Some(text) = self.text() {
            ledger.put(&self.key, Some(text));
        }
    }

    pub(in crate::scheduler) fn text(&self) -> Option<Arc<str>> {
        self.locked().clone()
    }

    /// Sets a new text and writes it. The returned future completes when a majority stores the text, or the term has
    /// ended.
    pub(in crate::scheduler) fn set(
        &self,
        text: Arc<str>,
        ledger: &TermLedger,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        *self.locked() = Some(Arc::clone(&text));
        ledger.write(&self.key, text)
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
