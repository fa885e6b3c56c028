//! What the leader does when it is asked: to pause, to resume, to run, to stop.

use crate::scheduler::{
    control::IncomingRequest,
    leader::event_loop::Leader,
    plan::{
        job_plan::ToClose,
        requests::{Next, OpenRequest, PREFIX, RequestRow},
    },
};
use crate::{
    env::WallTime,
    scheduler::{
        JobAction, JobRequest, JobResponse, JobRow, Paused, RequestId, RunCause, RunOutcome, SkipReason,
        registry::Phase, run::on_request,
    },
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// How many requests that make runs may be open.
const OPEN_MAX: usize = 1_000;
/// How many answers are remembered for who asks again.
const ANSWERS_MAX: usize = 10_000;
/// Why what was asked of a job that was removed does not run.
pub(in crate::scheduler) const REMOVED: &str = "given up: the job was removed";

/// That what a request changes stands in the ledger, or never will.
pub(in crate::scheduler) struct Accepted {
    id: RequestId,
    answer: JobResponse,
    open: Option<OpenRequest>,
    stands: Result<(), Arc<str>>,
    reply: oneshot::Sender<JobResponse>,
}

impl Leader<'_> {
    /// The requests that earlier leaders accepted and did not see to the end.
    pub(in crate::scheduler) fn reopen(&mut self) {
        let found: Vec<_> =
            self.sealed.rows(PREFIX).filter_map(|(_, records)| RequestRow::find(records)).collect();
        for (row, over) in found {
            let id = row.request.id;
            self.answers.insert(id, row.answer.clone());
            if over {
                continue;
            }
            let index = self.names.get(row.request.what.job()).copied();
            let entry = index.and_then(|index| self.entries[index].as_ref());
            // A job that this worker does not know may be one of a newer version: the next leader may know it.
            let Some(entry) = entry else { continue };
            let ask = OpenRequest::resume(row, &entry.plan.job);
            self.rows.put(&RequestRow::key(&ask.row.request), ask.row.to_value());
            self.asks.insert(id, ask);
            self.feed(id);
        }
    }

    /// Answers a request at once, or once what it changes stands in the ledger.
    pub(in crate::scheduler) fn asked(&mut self, asked: IncomingRequest) {
        let IncomingRequest { request, reply } = asked;
        let id = request.id;
        let known = self.answers.get(&id).cloned();
        let answer = match known {
            Some(answer) => answer,
            None => match self.grant(request, reply) {
                Ok(()) => return,
                Err((answer, reply)) => {
                    self.remember(id, &answer);
                    // Where nobody waits any more, nobody is told.
                    let _ = reply.send(answer);
                    return;
                }
            },
        };
        let _ = reply.send(answer);
    }

    /// Does what is asked; gives the answer back where nothing need be written for it.
    fn grant(
        &mut self,
        request: JobRequest,
        reply: oneshot::Sender<JobResponse>,
    ) -> Result<(), (JobResponse, oneshot::Sender<JobResponse>)> {
        let granted = match &request.what {
            JobAction::Pause { job } => self.pause(job, &request),
            JobAction::Resume { job } => self.resume(job, &request),
            JobAction::Trigger { .. } | JobAction::Backfill { .. } => self.open(request),
            JobAction::Cancel { job, tick } => self.cancel(job, *tick, &request),
        };
        let grant = match granted {
            Ok(grant) => grant,
            Err(why) => return Err((JobResponse::Refused { why }, reply)),
        };
        let Grant { id, answer, write, open } = grant;
        let Some((key, value)) = write else { return Err((answer, reply)) };
        // Until it stands, whoever asks again is not answered: this leader may yet fail to write it.
        let written = self.rows.insist(&key, value);
        self.accepting
            .push(Box::pin(async move { Accepted { id, answer, open, stands: written.await, reply } }));
        Ok(())
    }

    /// What a request changes stands in the ledger.
    pub(in crate::scheduler) fn accepted(&mut self, accepted: Accepted) {
        let Accepted { id, answer, open, stands, reply } = accepted;
        // Not written: no answer is better than a wrong one. Who asked asks again.
        if stands.is_err() {
            return;
        }
        // Asked twice before it stood, it is opened once.
        let first = !self.answers.contains_key(&id);
        self.remember(id, &answer);
        if let Some(open) = open.filter(|_| first) {
            self.asks.insert(id, open);
            self.feed(id);
        }
        let _ = reply.send(answer);
    }

    fn remember(&mut self, id: RequestId, answer: &JobResponse) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.pop_first();
        }
        self.answers.insert(id, answer.clone());
    }

    /// The job of a request that came in time.
    fn job_of(&self, job: &Arc<str>, request: &JobRequest) -> Result<usize, Arc<str>> {
        let late = (request.at + request.valid_for).until(self.now());
        if !late.is_zero() {
            return Err(format!("it came too late, by {late:.1?}").into());
        }
        let unknown =
            || format!("the leader {} knows no job called {job:?}", self.term.quorum().config().worker);
        self.names.get(job).copied().ok_or_else(|| unknown().into())
    }

    fn pause(&mut self, job: &Arc<str>, request: &JobRequest) -> Result<Grant, Arc<str>> {
        let (index, now) = (self.job_of(job, request)?, self.now());
        let Some(entry) = self.entries[index].as_mut() else { return Err("the job is leaving".into()) };
        let key = JobRow::key(&entry.plan.job.name);
        // What it says may have been written by nobody yet: it is answered once the row stands.
        if entry.row.requests.contains(&request.id) {
            return Ok(Grant::row(request.id, "paused", key, &entry.row));
        }
        if entry.row.paused.is_some() {
            return Ok(Grant::row(request.id, "was paused already", key, &entry.row));
        }
        // A tick that came due in this very moment is skipped with those that follow.
        entry.row.paused = Some(Paused { by: Arc::clone(&request.by), at: entry.plan.decided(now) });
        entry.row.changed_by(request.id);
        let not_run = entry.plan.pause();
        let job = Arc::clone(&entry.plan.job);
        let grant = Grant::row(request.id, "paused", key, &entry.row);
        entry.plan.withdraw(RunOutcome::SkippedPaused, "the job was paused while it waited");
        for not in not_run {
            self.not_run(&job, not);
        }
        self.settle(index);
        Ok(grant)
    }

    fn resume(&mut self, job: &Arc<str>, request: &JobRequest) -> Result<Grant, Arc<str>> {
        let (index, now) = (self.job_of(job, request)?, self.now());
        let Some(entry) = self.entries[index].as_mut() else { return Err("the job is leaving".into()) };
        let key = JobRow::key(&entry.plan.job.name);
        if entry.row.requests.contains(&request.id) {
            return Ok(Grant::row(request.id, "resumed", key, &entry.row));
        }
        let Some(paused) = entry.row.paused.take() else {
            return Ok(Grant::row(request.id, "was not paused", key, &entry.row));
        };
        // No leader may make up what came due meanwhile.
        entry.row.since = entry.row.since.max(now).max(entry.plan.looked());
        entry.row.changed_by(request.id);
        let span = entry.plan.resume(paused.at, now);
        let job = Arc::clone(&entry.plan.job);
        let grant = Grant::row(request.id, "resumed", key, &entry.row);
        if let Some((first, last)) = span {
            let why = format!("the job was paused by {}", paused.by);
            let until = (first != last).then_some(last);
            self.enter(&job, first, until, RunCause::Scheduled, RunOutcome::SkippedPaused, &why, None);
        }
        self.settle(index);
        Ok(grant)
    }

    /// A request that makes runs.
    fn open(&mut self, request: JobRequest) -> Result<Grant, Arc<str>> {
        let index = self.job_of(request.what.job(), &request)?;
        let Some(entry) = self.entries[index].as_ref() else { return Err("the job is leaving".into()) };
        if self.leading.registry.phase() != Phase::Open {
            return Err("the leader is being drained; ask the next one".into());
        }
        if self.asks.len() + self.accepting.len() >= OPEN_MAX {
            return Err(format!("{OPEN_MAX} such requests are open; wait until one is over").into());
        }
        let (id, key) = (request.id, RequestRow::key(&request));
        let ask = OpenRequest::accept(request, &entry.plan.job, self.now())?;
        let (answer, value) = (ask.row.answer.clone(), ask.row.to_value());
        Ok(Grant { id, answer, write: Some((key, value)), open: Some(ask) })
    }

    /// Cancels the active runs of a job; without a tick also gives up what was asked for and has not begun.
    fn cancel(
        &mut self,
        job: &Arc<str>,
        tick: Option<WallTime>,
        request: &JobRequest,
    ) -> Result<Grant, Arc<str>> {
        let index = self.job_of(job, request)?;
        let Some(entry) = self.entries[index].as_ref() else { return Err("the job is leaving".into()) };
        let job = Arc::clone(&entry.plan.job);
        let (count, given_up) = self.stop_here(index, tick, &on_request(&request.by));
        if count + given_up == 0 {
            return Err(format!("nothing of {} runs that could be cancelled", job.name).into());
        }
        let text = format!("{count} told to stop, {given_up} given up before they began").into();
        let answer = JobResponse::Accepted { text, count: (count + given_up) as u64 };
        Ok(Grant { id: request.id, answer, write: None, open: None })
    }

    /// Cancels the active runs of a job, and without a tick gives up what waits: how many of each.
    fn stop_here(&mut self, index: usize, tick: Option<WallTime>, why: &str) -> (usize, usize) {
        let Some(entry) = self.entries[index].as_mut() else { return (0, 0) };
        let mine = entry.plan.running.iter().filter(|going| tick.is_none_or(|tick| tick == going.tick));
        let count = mine.map(|going| going.cancel.cancel(why)).count();
        if tick.is_some() {
            return (count, 0);
        }
        let job = Arc::clone(&entry.plan.job.name);
        let running: Vec<_> = entry.plan.running.iter().filter_map(|going| going.request).collect();
        entry.plan.unask();
        let of_job = self.asks.iter().filter(|(_, ask)| *ask.row.request.what.job() == job);
        let open: Vec<RequestId> = of_job.map(|(id, _)| *id).collect();
        let why = format!("given up {why}");
        let given_up = open.into_iter().map(|id| self.give_up(id, running.contains(&id), &why)).sum();
        self.settle(index);
        (count, given_up)
    }

    /// Gives up what an open request has not begun; its run that goes on stays until it has stopped. Gives how many
    /// runs that were.
    fn give_up(&mut self, id: RequestId, runs: bool, why: &str) -> usize {
        let Some(ask) = self.asks.get_mut(&id) else { return 0 };
        let left: Vec<WallTime> = ask.left().iter().skip(usize::from(runs)).copied().collect();
        let (job, cause) = (Arc::clone(&ask.job), ask.cause());
        if runs {
            ask.keep_first();
        } else {
            ask.give_up();
        }
        if let (Some(first), Some(last)) = (left.first(), left.last()) {
            let until = (first != last).then_some(*last);
            self.enter(&job, *first, until, cause, RunOutcome::Cancelled, why, None);
        }
        if !runs {
            self.close_ask(id);
        }
        left.len()
    }

    /// A job is no more, and with it what was asked of it: what runs goes on to its end, and nothing comes after it.
    pub(in crate::scheduler) fn disown(&mut self, job: &Arc<str>) {
        let of_job = self.asks.iter().filter(|(_, ask)| ask.row.request.what.job() == job);
        let open: Vec<RequestId> = of_job.map(|(id, _)| *id).collect();
        for id in open {
            let runs = self.began.values().any(|(_, _, cause, _)| cause.request() == Some(id));
            self.give_up(id, runs, REMOVED);
            // Also where a run goes on: its end has nothing to go on to.
            self.close_ask(id);
        }
    }

    /// One of a request's runs has ended: the next one's turn.
    pub(in crate::scheduler) fn ask_ended(&mut self, id: RequestId) {
        let now = self.now();
        if let Some(ask) = self.asks.get_mut(&id) {
            ask.ended(now);
            let (key, value) = (RequestRow::key(&ask.row.request), ask.row.to_value());
            if !ask.left().is_empty() {
                self.rows.put(&key, value);
            }
            self.feed(id);
        }
    }

    /// Has the next run of a request wait for its turn; closes it after the last.
    pub(in crate::scheduler) fn feed(&mut self, id: RequestId) {
        loop {
            let Some(ask) = self.asks.get_mut(&id) else { return };
            let index = self.names.get(ask.row.request.what.job()).copied();
            // The job is no more, and with it its runs.
            let Some((index, entry)) = index.and_then(|index| Some((index, self.entries[index].as_mut()?)))
            else {
                self.give_up(id, false, REMOVED);
                return;
            };
            match ask.next(&entry.plan.job, &self.sealed) {
                Next::Run(start) => {
                    entry.plan.ask(start);
                    self.settle(index);
                    return;
                }
                Next::Close(found) => {
                    let job = Arc::clone(&entry.plan.job);
                    ask.ended(found.start.at);
                    self.close_found(&job, *found);
                }
                Next::Lost(start, why) => {
                    let job = Arc::clone(&entry.plan.job);
                    ask.ended(start.at);
                    if is_lost(why) {
                        self.close_found(&job, ToClose { start, end: RunOutcome::Lost, why: None });
                    }
                }
                Next::Over => return self.close_ask(id),
            }
        }
    }

    fn close_ask(&mut self, id: RequestId) {
        if let Some(ask) = self.asks.remove(&id) {
            self.rows.close(&RequestRow::key(&ask.row.request), ask.row.to_value(), self.now(), true);
        }
    }
}

/// Whether a request's run that will not be made is to be told of. One that has ended is told of; and where the ledger
/// has forgotten its time, its request was closed before, or nobody knew the job for so long: the row that is left
/// of it came from a node that was away, and would tell of a thousand runs that are not lost.
fn is_lost(why: SkipReason) -> bool {
    !matches!(why, SkipReason::Final | SkipReason::Pruned)
}

/// What a request comes to.
struct Grant {
    id: RequestId,
    answer: JobResponse,
    /// What must stand in the ledger before it is answered.
    write: Option<(Arc<str>, Arc<str>)>,
    open: Option<OpenRequest>,
}

impl Grant {
    /// That a job's row says so, once it stands.
    fn row(id: RequestId, text: &str, key: Arc<str>, row: &JobRow) -> Self {
        let answer = JobResponse::Accepted { text: text.into(), count: 0 };
        Self { id, answer, write: Some((key, row.to_value())), open: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_ledger_has_forgotten_is_not_told_as_lost() {
        let told =
            [SkipReason::Started, SkipReason::Unknown, SkipReason::Final, SkipReason::Pruned].map(is_lost);
        assert_eq!(told, [true, true, false, false]);
    }
}
