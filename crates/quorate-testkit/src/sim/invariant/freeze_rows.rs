use super::{Event, MAJORITY};
use crate::sim::worker::POOL;
use quorate::{
    internals::JobRow,
    node::{FencingToken, Record, Reply, Request},
    scheduler::RequestId,
};
use std::collections::{BTreeMap, BTreeSet};

/// The rows of the group's freeze that the servers store.
///
/// The row lists the last requests that changed it. Each later row of the group builds on the row that a majority
/// stores. So the effect of a request is lost only if servers lose rows, until fewer than a majority have a row that
/// includes the request.
#[derive(Debug, Default)]
pub(super) struct FreezeRows {
    /// For each server, the row that it stores.
    rows: BTreeMap<String, Row>,
    /// For each request, the servers that have stored a row which the request changed.
    ever: BTreeMap<RequestId, BTreeSet<String>>,
    changes: BTreeMap<RequestId, Change>,
}

#[derive(Debug)]
struct Row {
    rank: Rank,
    requests: Vec<RequestId>,
}

/// The term and the revision of a row. Of several rows, the one with the highest rank counts.
type Rank = (FencingToken, u64);

/// A request that changed the row which a majority of the servers stored.
#[derive(Debug)]
struct Change {
    /// The lowest rank of these servers' rows. Each row of a higher rank includes the change.
    rank: Rank,
    lost: bool,
}

impl FreezeRows {
    pub(super) fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::Forgot { node } => {
                self.rows.remove(*node);
                self.note_losses();
            }
            Event::Ran {
                node,
                request: Request::Write { ledger, key, record, .. },
                reply: Reply::Written,
            } if **ledger == *POOL && **key == *JobRow::FREEZE => self.written(node, record),
            _ => {}
        }
    }

    /// Returns `true` if a majority of the servers has stored a row that the request changed, at the same time or one
    /// after another.
    pub(super) fn was_stored(&self, id: RequestId) -> bool {
        self.ever.get(&id).is_some_and(|on| on.len() >= MAJORITY)
    }

    /// Returns `true` if a majority of the servers has stored the effect of the request, and fewer do now or did at
    /// some time since. One of them may have lost the row before the last of them stored it.
    pub(super) fn is_lost(&self, id: RequestId) -> bool {
        self.was_stored(id) && self.changes.get(&id).is_none_or(|change| change.lost)
    }

    fn written(&mut self, node: &str, record: &Record) {
        let Ok(row) = JobRow::parse(&record.value) else { return };
        let row = Row { rank: (record.term, row.rev), requests: row.requests };
        let newest = row.requests.clone();
        self.rows.insert(node.to_owned(), row);
        for id in newest {
            self.ever.entry(id).or_default().insert(node.to_owned());
            let with = self.rows.values().filter(|row| row.requests.contains(&id));
            let ranks: Vec<Rank> = with.map(|row| row.rank).collect();
            if ranks.len() >= MAJORITY
                && let Some(rank) = ranks.into_iter().min()
            {
                self.changes.entry(id).or_insert(Change { rank, lost: false });
            }
        }
        self.note_losses();
    }

    fn note_losses(&mut self) {
        for (id, change) in &mut self.changes {
            let includes = |row: &&Row| row.requests.contains(id) || row.rank > change.rank;
            change.lost |= self.rows.values().filter(includes).count() < MAJORITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pool_log::made, *};

    /// Reports to `rows` that `servers` store the row of the freeze in this term, with the requests of these numbers.
    fn write(rows: &mut FreezeRows, servers: &[&str], term: u64, requests: &[u128]) {
        let requests: Vec<RequestId> = requests.iter().map(|id| made::id(*id)).collect();
        let row = JobRow { rev: requests.len() as u64, requests, ..JobRow::default() };
        let term = FencingToken::new(term);
        let record = Record { at: 0, term, last: false, value: row.to_value() };
        let (ledger, key) = (POOL.into(), JobRow::FREEZE.into());
        let request = Request::Write { ledger, term, key, seen: None, record };
        for node in servers {
            rows.see(&Event::Ran { node, request: &request, reply: &Reply::Written });
        }
    }

    #[test]
    fn a_change_is_lost_once_fewer_than_a_majority_have_it() {
        let mut rows = FreezeRows::default();
        write(&mut rows, &["n0", "n1"], 1, &[1]);
        assert!(!rows.was_stored(made::id(1)));
        write(&mut rows, &["n2"], 1, &[1]);
        assert!(rows.was_stored(made::id(1)) && !rows.is_lost(made::id(1)));
        // A later row includes the earlier changes, even if it does not list them any more.
        write(&mut rows, &["n0", "n1", "n2", "n3"], 2, &[2, 3]);
        assert!(!rows.is_lost(made::id(1)) && rows.was_stored(made::id(3)));
        rows.see(&Event::Forgot { node: "n4" });
        rows.see(&Event::Forgot { node: "n0" });
        assert!(!rows.is_lost(made::id(1)));
        rows.see(&Event::Forgot { node: "n1" });
        assert!([1, 2, 3].iter().all(|id| rows.is_lost(made::id(*id))));
        write(&mut rows, &["n0", "n1"], 3, &[2, 3, 4]);
        assert!(rows.is_lost(made::id(3)) && !rows.is_lost(made::id(4)), "a loss is not undone");
    }

    #[test]
    fn a_change_is_lost_if_a_server_lost_it_before_a_majority_had_it() {
        let mut rows = FreezeRows::default();
        write(&mut rows, &["n0", "n1"], 1, &[1]);
        rows.see(&Event::Forgot { node: "n0" });
        assert!(!rows.was_stored(made::id(1)) && !rows.is_lost(made::id(1)));
        write(&mut rows, &["n2"], 1, &[1]);
        assert!(rows.was_stored(made::id(1)) && rows.is_lost(made::id(1)), "two servers have it");
    }
}
