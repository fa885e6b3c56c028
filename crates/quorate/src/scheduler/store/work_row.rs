//! The row `work/SESSION` of a worker: what the leader knows of the worker, and the runs that are assigned to it. The worker
//! reads this one row to find its runs. The row is only a hint: the nodes decide by the records of the runs.

use crate::{
    node::{FencingToken, copy::AssignmentId},
    scheduler::policy::Labels,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// The row of one worker's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct WorkRow {
    #[serde(flatten)]
    pub(in crate::scheduler) who: Announcement,
    /// The runs, by the keys of their records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::scheduler) runs: BTreeMap<Arc<str>, WorkRun>,
}

/// The announcement of a worker, in the part `workers` of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct Announcement {
    /// The name of the worker.
    pub(in crate::scheduler) worker: Arc<str>,
    /// The number of runs that the worker executes at the same time.
    pub(in crate::scheduler) room: usize,
    /// The labels of the worker.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(in crate::scheduler) labels: Labels,
    /// A number that grows when the jobs of the worker change.
    pub(in crate::scheduler) jobs: u64,
    /// The names of the handlers that the worker has registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::scheduler) handlers: Vec<Arc<str>>,
}

/// One run of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct WorkRun {
    /// The term of the assignment's id.
    term: FencingToken,
    /// The number of the assignment's id.
    seq: u64,
    /// The reason for which the worker must cancel the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) cancel: Option<Arc<str>>,
}

impl WorkRow {
    const PREFIX: &str = "work/";
    /// The part of the ledger in which workers announce themselves.
    pub(in crate::scheduler) const PART: &str = "workers";

    pub(in crate::scheduler) fn key(session: &str) -> Arc<str> {
        format!("{}{session}", Self::PREFIX).into()
    }

    /// Returns the prefix of the keys of all rows.
    pub(in crate::scheduler) const fn prefix() -> &'static str {
        Self::PREFIX
    }

    /// Returns the text that the ledger stores.
    pub(in crate::scheduler) fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads a row. Returns `None` if [`to_value`](Self::to_value) could not have written it.
    pub(in crate::scheduler) fn parse(value: &str) -> Option<Self> {
        serde_json::from_str(value).ok()
    }
}

impl WorkRun {
    pub(in crate::scheduler) fn new(id: AssignmentId, cancel: Option<Arc<str>>) -> Self {
        Self { term: id.term, seq: id.seq, cancel }
    }

    pub(in crate::scheduler) fn id(&self) -> AssignmentId {
        AssignmentId { term: self.term, seq: self.seq }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_a_round_trip() {
        let who = Announcement {
            worker: "a".into(),
            room: 4,
            labels: Default::default(),
            jobs: 2,
            handlers: Vec::new(),
        };
        let id = AssignmentId { term: FencingToken::new(7), seq: 3 };
        let run = WorkRun::new(id, None);
        let row = WorkRow { who, runs: [("tick/j/1".into(), run)].into() };
        let text = r#"{"worker":"a","room":4,"jobs":2,"runs":{"tick/j/1":{"term":7,"seq":3}}}"#;
        assert_eq!(&*row.to_value(), text);
        assert_eq!(WorkRow::parse(text), Some(row));
    }
}
