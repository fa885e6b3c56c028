//! The leader's decisions on requests to pause a job, to resume it, to run it, or to cancel its runs.

use crate::{
    env::WallTime,
    scheduler::{
        job::{RequestId, RunOutcome},
        plan::{
            active_run::ActiveRun,
            effect::Effect,
            led_jobs::LedJobs,
            open_request::{NextRun, OpenRequest, RequestRow, requests_in},
            reporter::{NotRun, REMOVED},
        },
        run::on_request,
        store::{JobAction, JobRequest, JobResponse, JobRow, Paused, verdict::SkipReason},
    },
};
use refusal::{FOLLOWED, being_removed, place_of, too_late};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The largest number of open requests for runs.
const OPEN_MAX: usize = 1_000;
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
    id: RequestId,
    answer: JobResponse,
    key: Arc<str>,
    value: Arc<str>,
    open: Option<OpenRequest>,
}

impl Granted {
    /// Creates the grant of a request to pause or resume a job. `row` is the job's changed row.
    fn row(id: RequestId, text: &str, job: &str, row: &JobRow) -> Self {
        let answer = JobResponse::Accepted { text: text.into(), count: 0 };
        Self { id, answer, key: JobRow::key(job), value: row.to_value(), open: None }
    }

    /// Returns the key and the value of the row that the leader must store before it answers.
    pub(in crate::scheduler) fn to_store(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.key), Arc::clone(&self.value))
    }
}

impl Requests {
    /// Takes over the requests that earlier leaders accepted and whose runs have not all ended.
    pub(in crate::scheduler) fn resume(&mut self, jobs: &mut LedJobs, now: WallTime, out: &mut Vec<Effect>) {
        let found: Vec<_> = requests_in(jobs.sealed()).collect();
        for row in found {
            let (id, closed) = (row.id(), row.is_closed());
            self.answers.insert(id, row.answer().clone());
            if !closed {
                self.unconfirmed.insert(id, row.to_value());
            }
            let place = jobs.table().place(row.job()).filter(|_| !closed);
            // This worker does not have the job of the request. Another version of the program may have it, so
            // the request stays open for a later leader.
            let Some(entry) = place.and_then(|place| jobs.table().get(place)) else { continue };
            let request = OpenRequest::resume(row, entry.job());
            for tick in request.remaining() {
                self.triggered.insert((Arc::clone(request.row().job()), *tick), id);
            }
            put(&request, out);
            self.open.insert(id, request);
            self.enqueue_next(id, jobs, now, out);
        }
    }

    /// Decides on a request. `is_open` is false if the leader starts no more runs.
    pub(in crate::scheduler) fn ask(
        &mut self,
        request: JobRequest,
        is_open: bool,
        jobs: &mut LedJobs,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> Asked {
        let id = request.id;
        if let Some(answer) = self.answers.get(&id) {
            let answer = answer.clone();
            let Some(taken_over) = self.unconfirmed.get(&id) else { return Asked::Answer(answer) };
            let now = self.open.get(&id).map(|open| open.row().to_value());
            let value = now.unwrap_or_else(|| Arc::clone(taken_over));
            self.storing += 1;
            return Asked::Store(Box::new(Granted { id, answer, key: id.key(), value, open: None }));
        }
        if matches!(request.what, JobAction::Freeze { .. } | JobAction::Unfreeze) {
            let asked =
                freeze(&request, jobs, now, out).unwrap_or_else(|why| refuse(&request, why, jobs, now));
            return self.decided(id, asked);
        }
        let granted = place_of(&request, jobs, now).and_then(|place| match &request.what {
            JobAction::Pause { reason, until, .. } => {
                let (by, reason) = (Arc::clone(&request.by), reason.clone());
                pause(&request, Paused { by, at: now, reason, until: *until }, place, jobs, out)
            }
            JobAction::Resume { .. } => resume(&request, place, jobs, now, out),
            JobAction::Trigger { .. } | JobAction::Backfill { .. } => {
                self.accept(&request, place, is_open, jobs, now)
            }
            JobAction::Cancel { tick, .. } => {
                self.cancel(place, *tick, &on_request(&request.by), jobs, now, out).map(Asked::Answer)
            }
            // These concern all jobs, and were decided on above.
            JobAction::Freeze { .. } | JobAction::Unfreeze => Err("the request names no job".into()),
        });
        let asked = granted.unwrap_or_else(|why| refuse(&request, why, jobs, now));
        self.decided(id, asked)
    }

    /// Notes the decision on a request.
    fn decided(&mut self, id: RequestId, asked: Asked) -> Asked {
        match &asked {
            Asked::Answer(answer) => self.remember(id, answer),
            Asked::Store(_) => self.storing += 1,
        }
        asked
    }

    /// Handles the event that a majority has stored the row of a request. Returns the answer to the request.
    pub(in crate::scheduler) fn stored(
        &mut self,
        granted: Granted,
        jobs: &mut LedJobs,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> JobResponse {
        self.storing -= 1;
        let Granted { id, answer, open, .. } = granted;
        // If a request arrives twice before its row is stored, the leader grants the request twice, but must
        // open it only once.
        let first = !self.answers.contains_key(&id);
        self.remember(id, &answer);
        self.unconfirmed.remove(&id);
        if let Some(open) = open.filter(|_| first) {
            self.open.insert(id, open);
            self.enqueue_next(id, jobs, now, out);
        }
        answer
    }

    /// Handles the event that this leader could not store the row of a request. The leader gives no answer for
    /// now, and the inbox passes the request to the leader again.
    pub(in crate::scheduler) fn not_stored(&mut self) {
        self.storing -= 1;
    }

    /// Handles the end of one run of a request, and adds the request's next run to the waiting runs.
    pub(in crate::scheduler) fn on_run_end(
        &mut self,
        id: RequestId,
        jobs: &mut LedJobs,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        let Some(request) = self.open.get_mut(&id) else { return };
        request.on_run_end(now);
        if !request.remaining().is_empty() {
            put(request, out);
        }
        self.enqueue_next(id, jobs, now, out);
    }

    /// Cancels the requests for a job that was removed. `active` are the requests that have an active run. This
    /// run continues to its end.
    pub(in crate::scheduler) fn drop_job(
        &mut self,
        job: &Arc<str>,
        active: &BTreeSet<RequestId>,
        jobs: &LedJobs,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        for id in self.of_job(job) {
            self.drop_runs(id, active.contains(&id), REMOVED, jobs, now, out);
            // A request with an active run is closed too, because no further run of the request follows.
            self.close(id, now, out);
        }
    }

    /// Returns the time from which on the ledger must keep records for the open requests.
    pub(in crate::scheduler) fn oldest(&self) -> Option<WallTime> {
        self.open.values().map(|request| request.row().oldest()).min()
    }

    fn remember(&mut self, id: RequestId, answer: &JobResponse) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.pop_first();
        }
        self.answers.insert(id, answer.clone());
    }

    fn of_job(&self, job: &str) -> Vec<RequestId> {
        self.open.iter().filter(|(_, request)| **request.row().job() == *job).map(|(id, _)| *id).collect()
    }

    /// Returns the tick of the run that a request triggers: the time of the request, or the first microsecond after it
    /// that no other request for the job has. A request that arrives again keeps its tick.
    fn tick_of(&mut self, request: &JobRequest) -> WallTime {
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

    /// Accepts a request for runs, unless the leader cannot start them or too many requests are open.
    fn accept(
        &mut self,
        request: &JobRequest,
        place: usize,
        is_open: bool,
        jobs: &LedJobs,
        now: WallTime,
    ) -> Result<Asked, Arc<str>> {
        let Some(entry) = jobs.table().get(place) else { return Err(being_removed()) };
        if !is_open {
            return Err("the leader is being drained; ask the next one".into());
        }
        if self.open.len() + self.storing >= OPEN_MAX {
            return Err(format!("{OPEN_MAX} such requests are open; wait until one is over").into());
        }
        let id = request.id;
        let open = OpenRequest::accept(request, entry.job(), now)?;
        let open = open.at_tick(self.tick_of(request));
        let (answer, value) = (open.row().answer().clone(), open.row().to_value());
        let granted = Granted { id, answer, key: id.key(), value, open: Some(open) };
        Ok(Asked::Store(Box::new(granted)))
    }

    /// Cancels runs of a job. If the request has a tick, only the run of this tick is cancelled. Otherwise the
    /// active runs that are due are cancelled, and the requested runs that have not started are dropped. Runs
    /// that are open ahead of their ticks continue, because the operator wants to cancel the present runs.
    fn cancel(
        &mut self,
        place: usize,
        tick: Option<WallTime>,
        why: &str,
        jobs: &mut LedJobs,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> Result<JobResponse, Arc<str>> {
        let Some(entry) = jobs.table().get(place) else { return Err(being_removed()) };
        let name = Arc::clone(&entry.job().name);
        let selects = |run: &ActiveRun| tick.map_or_else(|| run.is_due(now), |tick| tick == run.tick);
        let count = jobs.cancel(place, selects, &why.into(), out);
        let mut dropped = 0;
        if tick.is_none() {
            let active = jobs.active_requests(place);
            jobs.drop_requested(place);
            for id in self.of_job(&name) {
                let why = format!("dropped before it began, {why}");
                dropped += self.drop_runs(id, active.contains(&id), &why, jobs, now, out);
            }
        }
        if count + dropped == 0 {
            return Err(format!("nothing of {name} runs that could be cancelled").into());
        }
        let text = format!("{count} cancelled, {dropped} dropped before they began").into();
        Ok(JobResponse::Accepted { text, count: (count + dropped) as u64 })
    }

    /// Drops those runs of a request that have not started, and returns their number. If `active` is true, one
    /// run of the request is active and continues. Otherwise the request is closed.
    fn drop_runs(
        &mut self,
        id: RequestId,
        active: bool,
        why: &str,
        jobs: &LedJobs,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) -> usize {
        let Some(request) = self.open.get_mut(&id) else { return 0 };
        let dropped: Vec<WallTime> = request.remaining().iter().skip(usize::from(active)).copied().collect();
        if let (Some(&tick), Some(&last)) = (dropped.first(), dropped.last()) {
            let (until, cause) = ((tick != last).then_some(last), request.cause());
            let ticks = NotRun { tick, until, cause, end: RunOutcome::Cancelled, why: why.into() };
            jobs.report_not_run(request.job(), ticks, out);
        }
        if active {
            request.keep_active();
        } else {
            request.drop_all();
            self.close(id, now, out);
        }
        dropped.len()
    }

    /// Adds the next run of a request to the job's waiting runs. If no run is left, closes the request.
    fn enqueue_next(&mut self, id: RequestId, jobs: &mut LedJobs, now: WallTime, out: &mut Vec<Effect>) {
        loop {
            let Some(request) = self.open.get_mut(&id) else { return };
            let place = jobs.table().place(request.row().job());
            let Some(entry) = place.and_then(|place| jobs.table().get(place)) else {
                self.drop_runs(id, false, REMOVED, jobs, now, out);
                return;
            };
            let job = Arc::clone(entry.job());
            match request.next(&job, jobs.sealed()) {
                NextRun::Run(run) => {
                    place.into_iter().for_each(|place| jobs.add_requested(place, run.clone()));
                    return;
                }
                NextRun::Skip(run, why) => {
                    request.on_run_end(run.at);
                    if is_lost(why) {
                        jobs.lose(&job, run, now, out);
                    }
                }
                NextRun::Finished => return self.close(id, now, out),
            }
        }
    }

    fn close(&mut self, id: RequestId, now: WallTime, out: &mut Vec<Effect>) {
        if let Some(request) = self.open.remove(&id) {
            self.unconfirmed.remove(&id);
            let value = request.row().clone().closed_at(now).to_value();
            out.push(Effect::PutRow { key: id.key(), value });
        }
    }
}

/// Returns the effects that close the open requests for a job that has ended. The leader found these requests
/// at the seal.
pub(in crate::scheduler) fn close_requests_of(job: &str, jobs: &LedJobs, now: WallTime) -> Vec<Effect> {
    let of_job = requests_in(jobs.sealed()).filter(|row| !row.is_closed() && **row.job() == *job);
    let close = |row: RequestRow| {
        let key = row.id().key();
        Effect::PutRow { key, value: row.closed_at(now).to_value() }
    };
    of_job.map(close).collect()
}

/// Refuses a request. An earlier leader may have accepted it, and stored that on a minority of the nodes, where a
/// later leader may find it. So this leader answers only once a majority stores a row of its own term that says
/// otherwise: the closing row of a request for runs, or the row that the request would have changed.
fn refuse(request: &JobRequest, why: Arc<str>, jobs: &LedJobs, now: WallTime) -> Asked {
    let (id, answer) = (request.id, JobResponse::Refused { why });
    let place = jobs.table().place(request.what.job());
    let entry = place.and_then(|place| jobs.table().get(place));
    let is_new = request.valid_until().until(now).is_zero();
    let (key, value, open) = match (&request.what, entry) {
        (JobAction::Trigger { .. } | JobAction::Backfill { .. }, Some(entry)) => {
            let open = OpenRequest::refused(request.clone(), answer.clone(), entry.job(), now);
            (id.key(), open.row().to_value(), Some(open))
        }
        (JobAction::Pause { .. } | JobAction::Resume { .. }, Some(entry)) if !is_new => {
            (JobRow::key(&entry.job().name), entry.row().to_value(), None)
        }
        (JobAction::Freeze { .. } | JobAction::Unfreeze, _) if !is_new => {
            (JobRow::FREEZE.into(), jobs.group_freeze().to_value(), None)
        }
        _ => return Asked::Answer(answer),
    };
    Asked::Store(Box::new(Granted { id, answer, key, value, open }))
}

/// Pauses a job from `paused.at` on. If the job is already paused and this pause has a reason or an end, both
/// replace the present reason and end.
fn pause(
    request: &JobRequest,
    paused: Paused,
    place: usize,
    jobs: &mut LedJobs,
    out: &mut Vec<Effect>,
) -> Result<Asked, Arc<str>> {
    let Some(entry) = jobs.table().get(place) else { return Err(being_removed()) };
    let is_repeated = entry.row().requests.contains(&request.id);
    if !is_repeated && paused.ended(paused.at).is_some() {
        return Err(format!("the pause would have ended already; {FOLLOWED}").into());
    }
    let has_details = paused.reason.is_some() || paused.until.is_some();
    let text = match entry.row().paused.is_some() && !is_repeated {
        true if has_details => "was paused already; its reason and its end are replaced",
        true => "was paused already",
        false => "paused",
    };
    jobs.pause(place, request.id, paused, out);
    row_granted(request, text, place, jobs)
}

/// Freezes the group, or ends its freeze.
fn freeze(
    request: &JobRequest,
    jobs: &mut LedJobs,
    now: WallTime,
    out: &mut Vec<Effect>,
) -> Result<Asked, Arc<str>> {
    let freeze = jobs.group_freeze();
    let (is_repeated, was_frozen) = (freeze.has_done(request.id), freeze.active(now).is_some());
    let late = request.valid_until().until(now);
    if !late.is_zero() && !is_repeated {
        return Err(too_late(&request.what, late).into());
    }
    let text = match &request.what {
        JobAction::Freeze { until, .. } if *until <= now && !is_repeated => {
            return Err(format!("the freeze would have ended already; {FOLLOWED}").into());
        }
        JobAction::Freeze { reason, until } => {
            let (by, reason) = (Arc::clone(&request.by), Some(Arc::clone(reason)));
            let paused = Paused { by, at: now, reason, until: Some(*until) };
            jobs.freeze(request.id, paused, now, out);
            match was_frozen && !is_repeated {
                true => "was frozen already; its reason and its end are replaced",
                false => "frozen",
            }
        }
        _ => {
            jobs.unfreeze(request.id, now, out);
            if was_frozen || is_repeated { "unfrozen" } else { "was not frozen" }
        }
    };
    let answer = JobResponse::Accepted { text: text.into(), count: 0 };
    let (key, value) = (JobRow::FREEZE.into(), jobs.group_freeze().to_value());
    Ok(Asked::Store(Box::new(Granted { id: request.id, answer, key, value, open: None })))
}

fn resume(
    request: &JobRequest,
    place: usize,
    jobs: &mut LedJobs,
    now: WallTime,
    out: &mut Vec<Effect>,
) -> Result<Asked, Arc<str>> {
    let Some(entry) = jobs.table().get(place) else { return Err(being_removed()) };
    let was_active = entry.row().paused.is_none() && !entry.row().requests.contains(&request.id);
    jobs.resume(place, request.id, now, out);
    let text = match (was_active, jobs.group_freeze().active(now).is_some()) {
        (true, false) => "was not paused",
        (false, false) => "resumed",
        (true, true) => "was not paused; the group is frozen, so it does not run yet",
        (false, true) => "resumed; the group is frozen, so it does not run yet",
    };
    row_granted(request, text, place, jobs)
}

/// Grants a request to pause or resume a job. The row is written even if this request did not change it,
/// because an earlier write may not have reached a majority.
fn row_granted(request: &JobRequest, text: &str, place: usize, jobs: &LedJobs) -> Result<Asked, Arc<str>> {
    let Some(entry) = jobs.table().get(place) else { return Err(being_removed()) };
    let granted = Granted::row(request.id, text, &entry.job().name, entry.row());
    Ok(Asked::Store(Box::new(granted)))
}

fn put(request: &OpenRequest, out: &mut Vec<Effect>) {
    out.push(Effect::PutRow { key: request.row().id().key(), value: request.row().to_value() });
}

/// Returns whether a requested run that does not start must be reported as lost. A run that has ended (`Final`)
/// is already in the history. If the run is older than the ledger's low-water mark (`Pruned`), it has ended, or waited for longer
/// than the ledger keeps its record.
fn is_lost(why: SkipReason) -> bool {
    !matches!(why, SkipReason::Final | SkipReason::Pruned)
}

mod refusal;

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
