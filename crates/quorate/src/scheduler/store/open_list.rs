use crate::{env::WallTime, ledger::Memory, node::Record, scheduler::store::row_writer::RowWriter};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The list of the runs that are open to workers and that, as far as the leader knows, no worker has taken. The
/// list is one row of the ledger. The leader writes it, and the workers read it.
///
/// A worker uses the list only to find runs. Before it takes a run, it reads the run's record. Only this record
/// decides whether the worker may take the run.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct OpenList {
    rows: RowWriter,
    runs: Arc<Mutex<Listed>>,
}

/// The listed runs, by key. The value is the time before which no worker starts the run.
type Listed = BTreeMap<Arc<str>, WallTime>;

impl OpenList {
    /// The key of the row.
    pub(in crate::scheduler) const KEY: &str = "open";

    /// Creates the list of a new leader from `found`, the list that an earlier leader wrote. Runs that are not
    /// in `open` are left out, because they have ended.
    pub(in crate::scheduler) fn new(
        rows: &RowWriter,
        found: &[Option<Record>],
        open: &BTreeSet<Arc<str>>,
    ) -> Self {
        let mut runs = newest(found.iter().flatten());
        let before = runs.len();
        runs.retain(|key, _| open.contains(key));
        let changed = runs.len() != before;
        let list = Self { rows: rows.clone(), runs: Arc::new(Mutex::new(runs)) };
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

    /// Returns the listed runs. `shown` are the answers of a majority of the nodes to a read of the row.
    pub(in crate::scheduler) fn read(shown: &[(Memory, Option<Record>)]) -> BTreeMap<Arc<str>, WallTime> {
        newest(shown.iter().filter_map(|(_, record)| record.as_ref()))
    }

    fn put(&self, runs: &Listed) {
        self.rows.put(&Self::KEY.into(), serde_json::to_string(runs).unwrap_or_default().into());
    }

    fn runs(&self) -> MutexGuard<'_, Listed> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the union of those lists that have the highest term. A leader writes its list many times, so nodes
/// may store different lists of one term.
fn newest<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Listed {
    let Some(term) = records.clone().map(|record| record.term).max() else { return Listed::new() };
    let of_term = records.filter(|record| record.term == term);
    of_term.filter_map(|record| serde_json::from_str::<Listed>(&record.value).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FencingToken;

    #[test]
    fn the_lists_of_the_highest_term_are_merged() {
        let list = |term, keys: &[&str]| {
            let runs: Listed = keys.iter().map(|key| (Arc::from(*key), WallTime::from_micros(5))).collect();
            let value = serde_json::to_string(&runs).unwrap().into();
            Record { at: 0, term: FencingToken::new(term), last: false, value }
        };
        let records = [list(3, &["old"]), list(4, &["a"]), list(4, &["a", "b"])];
        assert_eq!(newest(records.iter()).into_keys().collect::<Vec<_>>(), ["a".into(), "b".into()]);
        assert!(newest([].iter()).is_empty());
    }
}
