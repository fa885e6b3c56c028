use crate::{env::WallTime, ledger::TermLedger};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The list of the runs that are open to workers and that, as far as the leader knows, no worker has taken. The
/// list is one row of the ledger. The leader writes it, and the workers read it.
///
/// A worker uses the list only to find runs. Before it takes a run, it reads the run's record. Only this record
/// decides whether the worker may take the run.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct OpenList {
    ledger: TermLedger,
    runs: Arc<Mutex<Listed>>,
}

/// The listed runs, by key. The value is the time before which no worker starts the run.
type Listed = BTreeMap<Arc<str>, WallTime>;

impl OpenList {
    /// The key of the row.
    pub(in crate::scheduler) const KEY: &str = "open";

    /// Creates the list of a new leader from `found`, the list that an earlier leader wrote. Runs that are not
    /// open are left out, because they have ended.
    pub(in crate::scheduler) fn new(
        ledger: &TermLedger,
        found: Option<&Arc<str>>,
        is_open: impl Fn(&str) -> bool,
    ) -> Self {
        let mut runs = found.map(|text| Self::read(text)).unwrap_or_default();
        let before = runs.len();
        runs.retain(|key, _| is_open(key));
        let changed = runs.len() != before;
        let list = Self { ledger: ledger.clone(), runs: Arc::new(Mutex::new(runs)) };
        if changed {
            list.put(&list.runs());
        }
        list
    }

    /// Adds an open run to the list, and writes the row.
    pub(in crate::scheduler) fn add(&self, key: &Arc<str>, not_before: WallTime) {
        let mut runs = self.runs();
        if runs.insert(Arc::clone(key), not_before) != Some(not_before) {
            self.put(&runs);
        }
    }

    /// Removes a run from the list, because a worker has taken the run or because the run has ended.
    pub(in crate::scheduler) fn remove(&self, key: &str) {
        let mut runs = self.runs();
        if runs.remove(key).is_some() {
            self.put(&runs);
        }
    }

    /// Returns the listed runs. `text` is the row.
    pub(in crate::scheduler) fn read(text: &str) -> BTreeMap<Arc<str>, WallTime> {
        serde_json::from_str(text).unwrap_or_default()
    }

    fn put(&self, runs: &Listed) {
        self.ledger.put(&Self::KEY.into(), Some(serde_json::to_string(runs).unwrap_or_default().into()));
    }

    fn runs(&self) -> MutexGuard<'_, Listed> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
