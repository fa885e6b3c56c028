//! The open requests for runs, and the answers to all requests.

use crate::{
    env::WallTime,
    scheduler::{
        job::RequestId,
        plan::open_request::OpenRequest,
        store::{JobRequest, JobResponse, RequestRow},
    },
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The largest number of open requests for runs.
pub(in crate::scheduler) const OPEN_MAX: usize = 1_000;
/// The largest number of answers that the leader stores. If a request arrives again, the leader repeats its
/// answer.
const ANSWERS_MAX: usize = 10_000;

/// The open requests, and the answers to earlier requests.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Requests {
    open: BTreeMap<RequestId, OpenRequest>,
    answers: BTreeMap<RequestId, JobResponse>,
    /// The rows of those requests of earlier leaders that may be stored on a minority of the nodes only, by the
    /// id of the request. The leader answers such a request only once a majority stores its row. Otherwise the
    /// next leader might not find a request that was already answered.
    unconfirmed: BTreeMap<RequestId, Arc<str>>,
    /// The number of requests whose rows are being written now.
    storing: usize,
    /// The ticks of the triggered runs, by job. Requests of one microsecond get different ticks.
    triggered: BTreeMap<(Arc<str>, WallTime), RequestId>,
}

/// The decision on a request, or the answer to it.
#[derive(Debug)]
pub(in crate::scheduler) enum Asked {
    Answer(JobResponse),
    /// The request is granted if this row can be stored. The leader answers once a majority stores the row.
    Store(Box<Granted>),
}

/// A request that the leader grants, and answers once the row of the request is stored.
#[derive(Debug)]
pub(in crate::scheduler) struct Granted {
    pub(super) id: RequestId,
    pub(super) answer: JobResponse,
    /// The rows to store, by their keys, in this order. A row without a value is removed.
    pub(super) rows: Vec<(Arc<str>, Option<Arc<str>>)>,
    pub(super) open: Option<OpenRequest>,
}

impl Granted {
    /// Takes the rows that the leader must store before it answers.
    pub(in crate::scheduler) fn take_rows(&mut self) -> Vec<(Arc<str>, Option<Arc<str>>)> {
        std::mem::take(&mut self.rows)
    }

    /// Returns the key and the value of the first row.
    #[cfg(test)]
    pub(in crate::scheduler) fn stored_row(&self) -> (Arc<str>, Arc<str>) {
        let (key, value) = self.rows[0].clone();
        (key, value.unwrap_or_default())
    }
}

impl Asked {
    /// Grants a request that changes the row under `key`.
    pub(in crate::scheduler) fn changed(id: RequestId, text: &str, key: Arc<str>, value: Arc<str>) -> Self {
        Self::stored(id, text, vec![(key, Some(value))])
    }

    /// Grants a request that changes these rows.
    pub(in crate::scheduler) fn stored(
        id: RequestId,
        text: &str,
        rows: Vec<(Arc<str>, Option<Arc<str>>)>,
    ) -> Self {
        let answer = JobResponse::Accepted { text: text.into(), count: 0 };
        Self::Store(Box::new(Granted { id, answer, rows, open: None }))
    }

    /// Answers a request for runs once its row is stored.
    pub(in crate::scheduler) fn opened(open: OpenRequest) -> Self {
        let (id, answer, value) = (open.row().id(), open.row().answer.clone(), open.row().to_value());
        Self::Store(Box::new(Granted { id, answer, rows: vec![(id.key(), Some(value))], open: Some(open) }))
    }
}

impl Requests {
    /// Notes a request that the ledger has.
    pub(in crate::scheduler) fn take_over(&mut self, row: &RequestRow) {
        self.answers.insert(row.id(), row.answer.clone());
        if !row.is_closed() {
            self.unconfirmed.insert(row.id(), row.to_value());
        }
    }

    /// Continues a request that an earlier leader accepted.
    pub(in crate::scheduler) fn resume(&mut self, request: OpenRequest) {
        let id = request.row().id();
        for tick in request.remaining() {
            self.triggered.insert((Arc::clone(request.row().job()), *tick), id);
        }
        self.open.insert(id, request);
    }

    /// Returns the decision on a request that arrives again.
    pub(in crate::scheduler) fn repeat(&mut self, id: RequestId) -> Option<Asked> {
        let answer = self.answers.get(&id)?.clone();
        let Some(taken_over) = self.unconfirmed.get(&id) else { return Some(Asked::Answer(answer)) };
        let now = self.open.get(&id).map(|open| open.row().to_value());
        let value = now.unwrap_or_else(|| Arc::clone(taken_over));
        Some(Asked::Store(Box::new(Granted { id, answer, rows: vec![(id.key(), Some(value))], open: None })))
    }

    /// Notes the decision on a request.
    pub(in crate::scheduler) fn decided(&mut self, id: RequestId, asked: &Asked) {
        match asked {
            Asked::Answer(answer) => self.remember(id, answer),
            Asked::Store(_) => self.storing += 1,
        }
    }

    /// Handles the event that a majority has stored the row of a request. Returns the answer, and whether a request for
    /// runs is open from now on.
    pub(in crate::scheduler) fn stored(&mut self, granted: Granted) -> (JobResponse, bool) {
        self.storing -= 1;
        let Granted { id, answer, open, .. } = granted;
        // If a request arrives twice before its row is stored, the leader grants the request twice, but must
        // open it only once.
        let first = !self.answers.contains_key(&id);
        self.remember(id, &answer);
        self.unconfirmed.remove(&id);
        let opened = open.filter(|_| first);
        let is_new = opened.is_some();
        self.open.extend(opened.map(|open| (id, open)));
        (answer, is_new)
    }

    /// Handles the event that the row of a request could not be stored.
    pub(in crate::scheduler) fn not_stored(&mut self) {
        self.storing -= 1;
    }

    /// Returns an open request.
    pub(in crate::scheduler) fn get(&mut self, id: RequestId) -> Option<&mut OpenRequest> {
        self.open.get_mut(&id)
    }

    /// Removes an open request.
    pub(in crate::scheduler) fn close(&mut self, id: RequestId) -> Option<OpenRequest> {
        let closed = self.open.remove(&id)?;
        self.unconfirmed.remove(&id);
        Some(closed)
    }

    /// Returns whether no further request for runs may be opened.
    pub(in crate::scheduler) fn is_full(&self) -> bool {
        self.open.len() + self.storing >= OPEN_MAX
    }

    /// Returns the open requests for a job.
    pub(in crate::scheduler) fn of_job(&self, job: &str) -> Vec<RequestId> {
        self.open.iter().filter(|(_, request)| **request.row().job() == *job).map(|(id, _)| *id).collect()
    }

    /// Returns the time from which on the ledger must keep records for the open requests.
    pub(in crate::scheduler) fn oldest(&self) -> Option<WallTime> {
        self.open.values().map(|request| request.row().moved).min()
    }

    /// Returns the tick of the run that a request triggers: the time of the request, or the first microsecond after it
    /// that no other request for the job has. A request that arrives again keeps its tick.
    pub(in crate::scheduler) fn tick_of(&mut self, request: &JobRequest) -> WallTime {
        let (mut tick, job) = (request.at, request.what.job());
        while self.triggered.get(&(Arc::clone(job), tick)).is_some_and(|id| *id != request.id) {
            tick = tick + Duration::from_micros(1);
        }
        if self.triggered.len() >= ANSWERS_MAX {
            self.triggered.pop_first();
        }
        self.triggered.insert((Arc::clone(job), tick), request.id);
        tick
    }

    fn remember(&mut self, id: RequestId, answer: &JobResponse) {
        if self.answers.len() >= ANSWERS_MAX && !self.answers.contains_key(&id) {
            self.answers.pop_first();
        }
        self.answers.insert(id, answer.clone());
    }
}
