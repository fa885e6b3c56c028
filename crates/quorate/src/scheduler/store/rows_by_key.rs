use crate::node::Record;
use std::{collections::BTreeMap, sync::Arc};

/// The construction of a snapshot yields to other tasks, such as the renewal of the lease, each time after this
/// number of records.
pub(super) const RECORDS_PER_TURN: usize = 2_000;

/// The rows while the answers are read. Each key is compared with others only once, and not for each node: with 100,000
/// rows that takes longer than all else.
pub(super) struct RowsByKey {
    nodes: usize,
    rows: Vec<(Arc<str>, Vec<Option<Record>>)>,
    #[expect(clippy::disallowed_types, reason = "it is only looked up, so its order is never used")]
    index: std::collections::HashMap<Arc<str>, usize>,
}

impl RowsByKey {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, rows: Vec::new(), index: Default::default() }
    }

    /// Adds the record that a node stores under `key`. It replaces an earlier record of this node.
    pub(super) fn add(&mut self, node: usize, key: Arc<str>, record: Record) {
        let at = *self.index.entry(key).or_insert_with_key(|key| {
            self.rows.push((Arc::clone(key), vec![None; self.nodes]));
            self.rows.len() - 1
        });
        self.rows[at].1[node] = Some(record);
    }

    /// Returns the rows in the order of their keys. Yields to other tasks from time to time.
    pub(super) async fn sort(self) -> BTreeMap<Arc<str>, Vec<Option<Record>>> {
        let mut sorted = BTreeMap::new();
        for (number, (key, row)) in self.rows.into_iter().enumerate() {
            sorted.insert(key, row);
            if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        sorted
    }
}
