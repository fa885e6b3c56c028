//! The leader's decisions on requests to pause a job, to resume it, to run it, or to cancel its runs.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        job::{RequestId, RunOutcome},
        plan::{
            active_run::{ActiveRun, Withdrawal},
            effect::Effect,
            job_id::JobId,
            led_job::LedJob,
            open_request::{NextRun, OpenRequest},
            requests::{Asked, Granted, OPEN_MAX},
        },
        policy::Placement,
        run::on_request,
        store::{GroupFreeze, JobAction, JobRequest, JobResponse, JobRow, Paused, verdict::SkipReason},
    },
};
use refusal::{FOLLOWED, too_late};
use std::{collections::BTreeSet, sync::Arc};

pub(super) mod refusal;

impl Planner {
    /// Takes over the requests that earlier leaders accepted and whose runs have not all ended.
    pub(super) fn resume_requests(&mut self, now: WallTime) {
        let found: Vec<_> = self.sealed.requests().collect();
        for row in found {
            let (id, closed) = (row.id(), row.is_closed());
            self.requests.take_over(&row);
            // If this worker does not have the job of the request, another version of the program may have it. So the
            // request stays open for a later leader.
            let Some((_, led)) = self.table.find(row.job()).filter(|_| !closed) else { continue };
            let request = OpenRequest::resume(row, led.job());
            self.effects.push(put(&request));
            self.requests.resume(request);
            self.enqueue_next(id, now);
        }
    }

    /// Decides on a request. `is_open` is false if the leader starts no more runs, because it is stepping down
    /// or its scheduler is being drained.
    pub(in crate::scheduler) fn ask(&mut self, request: &JobRequest, is_open: bool, now: WallTime) -> Asked {
        let asked = match self.requests.repeat(request.id) {
            Some(asked) => asked,
            None => self.decide(request, is_open, now).unwrap_or_else(|why| self.refuse(request, why, now)),
        };
        self.requests.decided(request.id, &asked);
        asked
    }

    /// Decides on a request that has not arrived before.
    ///
    /// # Errors
    /// The reason for which the leader refuses the request.
    fn decide(&mut self, request: &JobRequest, is_open: bool, now: WallTime) -> Result<Asked, Arc<str>> {
        if matches!(request.what, JobAction::Freeze { .. } | JobAction::Unfreeze) {
            return self.decide_freeze(request, now);
        }
        match request.what {
            JobAction::Put { .. } => return self.decide_put(request, now),
            JobAction::Remove { .. } => return self.decide_remove(request, now),
            _ => {}
        }
        let id = self.job_of(request, now)?;
        match &request.what {
            JobAction::Pause { reason, until, .. } => {
                let (by, reason) = (Arc::clone(&request.by), reason.clone());
                self.decide_pause(request, Paused { by, at: now, reason, until: *until }, id)
            }
            JobAction::Resume { .. } => self.decide_resume(request, id, now),
            JobAction::Cancel { tick, .. } => self.decide_cancel(request, id, *tick, now).map(Asked::Answer),
            _ => self.accept(request, id, is_open, now),
        }
    }

    /// Handles the event that a majority has stored the row of a request. Returns the answer to the request.
    pub(in crate::scheduler) fn stored(&mut self, granted: Granted, now: WallTime) -> JobResponse {
        let id = granted.id;
        self.confirm_definitions(id);
        let (answer, is_new) = self.requests.stored(granted);
        if is_new {
            self.enqueue_next(id, now);
        }
        answer
    }

    /// Handles the event that this leader could not store the row of a request. The leader gives no answer for
    /// now, and the inbox passes the request to the leader again.
    pub(in crate::scheduler) fn not_stored(&mut self) {
        self.requests.not_stored();
    }

    /// Handles the end of one run of a request, and adds the request's next run to the waiting runs.
    pub(super) fn requested_run_ended(&mut self, id: RequestId, now: WallTime) {
        let Some(request) = self.requests.get(id) else { return };
        request.on_run_end(now);
        if !request.remaining().is_empty() {
            self.effects.push(put(request));
        }
        self.enqueue_next(id, now);
    }

    /// Cancels the requests for a job that was removed. `active` are the requests that have an active run. This
    /// run continues to its end.
    pub(super) fn drop_requests_of(&mut self, job: &str, active: &BTreeSet<RequestId>, now: WallTime) {
        for id in self.requests.of_job(job) {
            self.drop_runs(id, active.contains(&id), Withdrawal::Removed.reason(), now);
            // A request with an active run is closed too, because no further run of the request follows.
            self.close(id, now);
        }
    }

    /// Closes the open requests for a job that has ended. The leader found these requests in the ledger.
    pub(super) fn close_requests_of(&mut self, job: &str, now: WallTime) {
        let of_job = self.sealed.requests().filter(|row| !row.is_closed() && **row.job() == *job);
        self.effects.extend(of_job.map(|row| {
            let key = row.id().key();
            Effect::PutRow { key, value: row.closed_at(now).to_value() }
        }));
    }

    /// Returns the job of a request.
    ///
    /// # Errors
    /// The leader does not have the job, or the request has expired. If the job's row shows that an earlier leader
    /// carried the request out, an expired request is no error.
    fn job_of(&self, request: &JobRequest, now: WallTime) -> Result<JobId, Arc<str>> {
        let job = request.what.job();
        let found = self.table.find(job);
        let late = request.valid_until().until(now);
        let is_done = |led: &LedJob| led.row().requests.contains(&request.id);
        if !late.is_zero() && !found.is_some_and(|(_, led)| is_done(led)) {
            return Err(too_late(&request.what, late).into());
        }
        let unknown = || format!("the leader {} knows no job called {job:?}", self.reporter.worker());
        found.map(|(id, _)| id).ok_or_else(|| unknown().into())
    }

    /// Accepts a request for runs, unless the leader cannot start them or too many requests are open.
    fn accept(
        &mut self,
        request: &JobRequest,
        job: JobId,
        is_open: bool,
        now: WallTime,
    ) -> Result<Asked, Arc<str>> {
        if !is_open {
            return Err("the leader is being drained; ask the next one".into());
        }
        if self.requests.is_full() {
            return Err(format!("{OPEN_MAX} such requests are open; wait until one is over").into());
        }
        let Some(led) = self.table.get(job) else { return Err(being_removed()) };
        if led.job().rules.placement == Placement::EveryWorker {
            let name = request.what.job();
            let why = match &request.what {
                JobAction::Trigger { payload: Some(_), .. } => {
                    "with the payload of its definition; leave the payload out"
                }
                JobAction::Backfill { .. } => {
                    "and each has a history of its own; fill those of single workers"
                }
                _ => "",
            };
            if !why.is_empty() {
                return Err(
                    format!("the job {name} runs on every worker, {why}, or use {name}@WORKER").into()
                );
            }
        }
        let open = OpenRequest::accept(request, led.job(), now)?.at_tick(self.requests.tick_of(request));
        Ok(Asked::opened(open))
    }

    /// Cancels runs of a job. If the request has a tick, only the run of this tick is cancelled. Otherwise the
    /// active runs that are due are cancelled, and the requested runs that have not started are dropped. Runs
    /// that are open ahead of their ticks continue, because the operator wants to cancel the present runs.
    fn decide_cancel(
        &mut self,
        request: &JobRequest,
        id: JobId,
        tick: Option<WallTime>,
        now: WallTime,
    ) -> Result<JobResponse, Arc<str>> {
        let (name, why) = (request.what.job(), on_request(&request.by));
        let selects = |run: &ActiveRun| tick.map_or_else(|| run.is_due(now), |tick| tick == run.tick);
        let jobs = self.with_parts(id);
        let count: usize = jobs.into_iter().map(|id| self.cancel(id, selects, &why.as_str().into())).sum();
        let mut dropped = 0;
        if tick.is_none() {
            let active = self.table.get(id).map(LedJob::active_requests).unwrap_or_default();
            self.table.change(id, LedJob::drop_requested);
            let why = format!("dropped before it began, {why}");
            for id in self.requests.of_job(name) {
                dropped += self.drop_runs(id, active.contains(&id), &why, now);
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
    fn drop_runs(&mut self, id: RequestId, active: bool, why: &str, now: WallTime) -> usize {
        let Some(request) = self.requests.get(id) else { return 0 };
        let dropped: Vec<WallTime> = request.remaining().iter().skip(usize::from(active)).copied().collect();
        if let (Some(&first), Some(&last)) = (dropped.first(), dropped.last()) {
            let (cause, end) = (request.cause(), RunOutcome::Cancelled);
            let report = self.reporter.not_run(request.job(), (first, last), cause, end, why);
            self.effects.push(Effect::Report(Box::new(report)));
        }
        if active {
            request.keep_active();
        } else {
            request.drop_all();
            self.close(id, now);
        }
        dropped.len()
    }

    /// Adds the next run of a request to the job's waiting runs. If no run is left, closes the request.
    fn enqueue_next(&mut self, id: RequestId, now: WallTime) {
        while let Some(request) = self.requests.get(id) {
            let Some((job_id, led)) = self.table.find(request.row().job()) else {
                self.drop_runs(id, false, Withdrawal::Removed.reason(), now);
                return;
            };
            let job = Arc::clone(led.job());
            match request.next(&job, &self.sealed) {
                NextRun::Run(run) => {
                    self.table.change(job_id, |led| led.add_requested(run));
                    return;
                }
                NextRun::Skip(run, why) => {
                    request.on_run_end(run.at);
                    if is_lost(why) {
                        self.lose(&job, run, now);
                    }
                }
                NextRun::Finished => return self.close(id, now),
            }
        }
    }

    fn close(&mut self, id: RequestId, now: WallTime) {
        if let Some(request) = self.requests.close(id) {
            let value = request.row().clone().closed_at(now).to_value();
            self.effects.push(Effect::PutRow { key: id.key(), value });
        }
    }

    /// Refuses a request. An earlier leader may have accepted it, and stored that on a minority of the nodes, where a
    /// later leader may find it. So this leader answers only once a majority stores a row of its own term that says
    /// otherwise: the closing row of a request for runs, or the row that the request would have changed.
    fn refuse(&self, request: &JobRequest, why: Arc<str>, now: WallTime) -> Asked {
        let (id, answer) = (request.id, JobResponse::Refused { why });
        let led = self.table.find(request.what.job()).map(|(_, led)| led);
        let is_new = request.valid_until().until(now).is_zero();
        let (key, value, open) = match (&request.what, led) {
            (JobAction::Trigger { .. } | JobAction::Backfill { .. }, Some(led)) => {
                let open = OpenRequest::refused(request.clone(), answer.clone(), led.job(), now);
                (id.key(), open.row().to_value(), Some(open))
            }
            (JobAction::Pause { .. } | JobAction::Resume { .. }, Some(led)) if !is_new => {
                (JobRow::key(&led.job().name), led.row().to_value(), None)
            }
            (JobAction::Freeze { .. } | JobAction::Unfreeze, _) if !is_new => {
                (GroupFreeze::KEY.into(), self.freeze.to_value(), None)
            }
            _ => return Asked::Answer(answer),
        };
        Asked::Store(Box::new(Granted { id, answer, rows: vec![(key, Some(value))], open }))
    }

    /// Pauses a job from `paused.at` on. If the job is already paused and this pause has a reason or an end, both
    /// replace the present reason and end.
    fn decide_pause(&mut self, request: &JobRequest, paused: Paused, id: JobId) -> Result<Asked, Arc<str>> {
        let Some(led) = self.table.get(id) else { return Err(being_removed()) };
        let is_repeated = led.row().requests.contains(&request.id);
        if !is_repeated && paused.ended(paused.at).is_some() {
            return Err(format!("the pause would have ended already; {FOLLOWED}").into());
        }
        let has_details = paused.reason.is_some() || paused.until.is_some();
        let text = match led.row().paused.is_some() && !is_repeated {
            true if has_details => "was paused already; its reason and its end are replaced",
            true => "was paused already",
            false => "paused",
        };
        self.pause(id, request.id, paused);
        self.row_granted(request, text, id)
    }

    fn decide_resume(&mut self, request: &JobRequest, id: JobId, now: WallTime) -> Result<Asked, Arc<str>> {
        let Some(led) = self.table.get(id) else { return Err(being_removed()) };
        let was_active = led.row().paused.is_none() && !led.row().requests.contains(&request.id);
        self.resume(id, request.id, now);
        let text = match (was_active, self.freeze.active(now).is_some()) {
            (true, false) => "was not paused",
            (false, false) => "resumed",
            (true, true) => "was not paused; the group is frozen, so it does not run yet",
            (false, true) => "resumed; the group is frozen, so it does not run yet",
        };
        self.row_granted(request, text, id)
    }

    /// Freezes the group, or ends its freeze.
    fn decide_freeze(&mut self, request: &JobRequest, now: WallTime) -> Result<Asked, Arc<str>> {
        let freeze = &self.freeze;
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
                let (by, reason) = (Arc::clone(&request.by), reason.clone());
                self.freeze(request.id, Paused { by, at: now, reason, until: Some(*until) }, now);
                match was_frozen && !is_repeated {
                    true => "was frozen already; its reason and its end are replaced",
                    false => "frozen",
                }
            }
            _ => {
                self.unfreeze(request.id, now);
                if was_frozen || is_repeated { "unfrozen" } else { "was not frozen" }
            }
        };
        let (key, value) = (GroupFreeze::KEY.into(), self.freeze.to_value());
        Ok(Asked::changed(request.id, text, key, value))
    }

    /// Grants a request to pause or resume a job. The row is written even if this request did not change it,
    /// because an earlier write may not have reached a majority.
    fn row_granted(&self, request: &JobRequest, text: &str, id: JobId) -> Result<Asked, Arc<str>> {
        let Some(led) = self.table.get(id) else { return Err(being_removed()) };
        Ok(Asked::changed(request.id, text, JobRow::key(&led.job().name), led.row().to_value()))
    }
}

fn put(request: &OpenRequest) -> Effect {
    Effect::PutRow { key: request.row().id().key(), value: request.row().to_value() }
}

/// Returns the reason for the refusal of a request for a job that the leader no longer has.
fn being_removed() -> Arc<str> {
    "the job is being removed".into()
}

/// Returns whether a requested run that does not start must be reported as lost. A run that has ended (`Final`)
/// is already in the history. If the run is older than the ledger's low-water mark (`Pruned`), it has ended, or waited for longer
/// than the ledger keeps its record.
fn is_lost(why: SkipReason) -> bool {
    !matches!(why, SkipReason::Final | SkipReason::Pruned)
}

#[cfg(test)]
mod tests;
