use super::{Event, MAJORITY};
use crate::sim::worker::POOL;
use quorate::{
    env::WallTime,
    internals::JobRow,
    node::{FencingToken, Reply, Request},
};
use std::{collections::BTreeMap, sync::Arc};

/// The rows of the jobs that the servers store, and the ends of pauses that the servers have lost.
///
/// A row stores the pause of its job. If a majority stores the row in which the pause has ended, every leader
/// finds this row. Servers may lose this row, so that fewer than a majority have it, while another server
/// still stores the pause. A new leader may then find only the pause, and the job is paused again.
#[derive(Debug, Default)]
pub(super) struct Resumptions {
    rows: BTreeMap<Arc<str>, BTreeMap<String, Row>>,
    /// For each job, the true times at which the end of a pause was lost.
    forgotten: BTreeMap<Arc<str>, Vec<WallTime>>,
}

#[derive(Debug)]
struct Row {
    /// The term and the revision of the row. Of several rows of a job, the one with the highest rank counts.
    rank: (FencingToken, u64),
    paused: bool,
}

impl Resumptions {
    /// Records an event that happens at the true wall time `now`.
    pub(super) fn see(&mut self, now: WallTime, event: &Event<'_>) {
        match event {
            Event::Forgot { node } => {
                for (job, rows) in &mut self.rows {
                    let known = is_known(rows);
                    rows.remove(*node);
                    if known && !is_known(rows) {
                        self.forgotten.entry(Arc::clone(job)).or_default().push(now);
                    }
                }
            }
            Event::Ran {
                node,
                request: Request::Write { ledger, key, record, .. },
                reply: Reply::Written,
            } if **ledger == *POOL => {
                let Some(job) = key.strip_prefix(JobRow::PREFIX) else { return };
                let Ok(row) = JobRow::parse(&record.value) else { return };
                let row = Row { rank: (record.term, row.rev), paused: row.paused.is_some() };
                self.rows.entry(job.into()).or_default().insert((*node).to_owned(), row);
            }
            _ => {}
        }
    }

    /// Returns `true` if servers lost the end of a pause of the job at the time `from` or later.
    pub(super) fn is_forgotten_since(&self, job: &str, from: WallTime) -> bool {
        self.forgotten.get(job).is_some_and(|times| times.iter().any(|at| from <= *at))
    }

    /// Returns the number of times that servers lost the end of a pause.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.values().map(|times| times.len() as u64).sum()
    }
}

/// Returns `true` if, for each pause that a server stores, a majority of the servers stores a later row in
/// which the pause has ended.
fn is_known(rows: &BTreeMap<String, Row>) -> bool {
    let ended = |pause: &Row| rows.values().filter(|row| !row.paused && row.rank > pause.rank).count();
    rows.values().filter(|row| row.paused).all(|pause| ended(pause) >= MAJORITY)
}
