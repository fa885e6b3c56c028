//! The leader's side of a run that a worker executes. The leader opens the run to workers, watches the run's
//! slot, and closes the run. `docs/design/scheduler.md` describes the protocol.

use crate::{
    claim::{Claimed, SlotId, Slots},
    election::Term,
    env::WallTime,
    ledger::{LedgerError, TermLedger},
    node::DoneRecord,
    scheduler::{
        job::{Job, RunCause, RunOutcome},
        policy::Delivery,
        run::{
            Cancel, ExecutionEnd, ExecutionResult,
            cancel::Withdraw,
            on_leader::{RunEnd, RunSummary},
            pending_run::PendingRun,
            slot_watch::{Around, Look, SlotWatch},
        },
        store::{
            OpenRun, RunRecord, SlotResult, SlotRow,
            open_list::OpenList,
            record_life::LATE_AFTER,
            saved_state::SavedState,
            verdict::{first_opened, memory_needed, voided},
        },
    },
};
use std::{sync::Arc, time::Duration};

/// The time within which a worker may take a run if the misfire window does not limit this time. Such runs are
/// requested runs, catch-up runs, generations after the first, and runs of a schedule that counts from the ends
/// of runs.
const TAKE_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// The parameters of the time between `take_by` and the horizon. Workers take a run until `take_by`. After the
/// horizon, the nodes no longer allow a worker to take the run. The time in between is the job's gap between
/// ticks, multiplied by the first value, but at least the second value and at most the third.
const HORIZON: (u32, Duration, Duration) = (3_600, Duration::from_secs(3600), Duration::from_secs(24 * 3600));

/// A run that the leader opens, or continues if an earlier leader has opened it.
pub(in crate::scheduler) struct Opened {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) start: PendingRun,
    pub(in crate::scheduler) ledger: TermLedger,
    pub(in crate::scheduler) term: Term,
    pub(in crate::scheduler) slots: Slots,
    pub(in crate::scheduler) list: OpenList,
    pub(in crate::scheduler) state: SavedState,
    pub(in crate::scheduler) cancel: Cancel,
    pub(in crate::scheduler) withdraw: Withdraw,
    /// True if the leader has the run's job. If the leader does not have the job, it opens no further
    /// generation of a lost run.
    pub(in crate::scheduler) reopens: bool,
}

/// The end of one generation, which the leader reads from the slot.
#[derive(Debug)]
enum SlotEnd {
    /// The worker recorded this end.
    Done(SlotResult),
    /// This leader, or an earlier one, ended the generation before a worker took it. The values are the outcome
    /// and the reason.
    Void(RunOutcome, Arc<str>),
    /// A worker took the generation, or may have taken it. The worker's claim has ended, and no end is
    /// recorded. The values are the worker, if it is known, and the reason.
    Lost(Option<Arc<str>>, Arc<str>),
    /// The step-down began, the term ended, or the watch was [released](Withdraw::release). The run stays open.
    Left,
}

impl SlotEnd {
    fn of(ended: &DoneRecord) -> Self {
        match SlotRow::parse(&ended.result) {
            Some(SlotRow::Done(result)) => Self::Done(result),
            Some(SlotRow::Void { end, why }) => Self::Void(end, why),
            None => Self::Lost(None, "the end that its slot has cannot be read".into()),
        }
    }
}

/// The step that the leader takes after a generation has ended.
#[derive(Debug, PartialEq)]
enum Next {
    /// Closes the run.
    Close(RunOutcome),
    /// Opens the next generation.
    Reopen,
}

/// Decides how a run continues after its generation was lost or interrupted. The run gets another generation
/// only if its job is at-least-once and the run was not cancelled.
fn after_loss(delivery: Delivery, cancelled: bool, end: RunOutcome) -> Next {
    match delivery {
        _ if cancelled => Next::Close(RunOutcome::Cancelled),
        Delivery::AtLeastOnce => Next::Reopen,
        Delivery::AtMostOnce => Next::Close(end),
    }
}

impl Opened {
    /// Opens the run and watches its slot. Returns when the run is closed, the step-down begins, the term ends,
    /// or the leader must stop watching the run.
    pub(in crate::scheduler) async fn run(mut self) -> RunEnd {
        let mut open = match &self.start.seen {
            Some(RunRecord::Open(open)) => open.clone(),
            // If the run has a record, or if its past is unknown, an earlier leader may have executed the run
            // itself. That execution counts as the first generation, so this generation is the second.
            seen => self.generation(first_opened(seen.is_none() && !self.start.unknown), None),
        };
        loop {
            if self.must_end() {
                return RunEnd::Left;
            }
            if self.write(RunRecord::Open(open.clone())).await.is_err() {
                return RunEnd::Left;
            }
            let end = self.watch(&mut open).await;
            // A run that is left stays on the list, so that workers find it until the next leader lists it.
            if !matches!(end, SlotEnd::Left) {
                self.list.remove(&self.start.key);
            }
            let cancelled = self.cancel.is_for_good();
            let (next, outcome) = match end {
                SlotEnd::Left => return RunEnd::Left,
                SlotEnd::Void(end, why) => {
                    (Next::Close(voided(open.generation, end)), self.without_handler(&why))
                }
                SlotEnd::Lost(worker, why) => {
                    let ran = self.without_handler(&why);
                    let worker = worker.unwrap_or(ran.worker);
                    (after_loss(open.delivery, cancelled, RunOutcome::Lost), SlotResult { worker, ..ran })
                }
                SlotEnd::Done(outcome) => match outcome.end {
                    Some(end) => (Next::Close(end), outcome),
                    None => (after_loss(open.delivery, cancelled, RunOutcome::Cancelled), outcome),
                },
            };
            match next {
                Next::Close(end) => return self.close(&open, end, outcome).await,
                Next::Reopen if !self.reopens => {
                    if !self.job_ended().await {
                        return RunEnd::Left;
                    }
                    return self.close(&open, RunOutcome::Lost, outcome).await;
                }
                Next::Reopen => {
                    tracing::warn!(
                        job = &*self.job.name,
                        tick = self.job.schedule.format(self.start.tick),
                        generation = open.generation + 1,
                        "opened again: {}",
                        outcome.reason
                    );
                    open = self.generation(open.generation + 1, Some(&open));
                }
            }
        }
    }

    /// Returns a new generation of the run. `before` is the previous generation, if there is one.
    fn generation(&self, generation: u32, before: Option<&OpenRun>) -> OpenRun {
        let now = self.now();
        let scheduled = self.start.cause == RunCause::Scheduled && generation == 1;
        let chained = self.job.schedule.is_after_end();
        let take_by = match scheduled && !chained {
            true => self.start.not_before + self.job.misfire.within().max(LATE_AFTER),
            false => now.max(self.start.not_before) + TAKE_WITHIN,
        };
        let (gaps, least, most) = HORIZON;
        OpenRun {
            generation,
            at: self.memory(),
            not_before: before.map_or(self.start.not_before, |_| now),
            take_by,
            horizon: take_by + self.job.gap.saturating_mul(gaps).clamp(least, most),
            delivery: self.job.delivery,
            cause: match self.start.cause {
                RunCause::Scheduled if generation > 1 => RunCause::CatchUp,
                cause => cause,
            },
            term: before.map_or(self.term.token(), |before| before.term),
            state: self.state.text(),
            cancel: None,
        }
    }

    /// Watches the slot until the generation has ended. Returns the end of the generation.
    async fn watch(&mut self, open: &mut OpenRun) -> SlotEnd {
        let key = Arc::clone(&self.start.key);
        let slot = open.slot(&key);
        let env = self.term.env().clone();
        let step_down = self.term.step_down_token().clone();
        let mut watch = SlotWatch::new(open.not_before, self.now());
        loop {
            let (cancelled, withdrawn) = (self.cancel.is_cancelled(), self.withdraw.is_ordered());
            let ordered = cancelled || withdrawn;
            if watch.lists(ordered) {
                self.list.add(&key, open.not_before);
            }
            tokio::select! { biased;
                () = step_down.cancelled() => return SlotEnd::Left,
                () = self.cancel.cancelled(), if !cancelled => {}
                () = self.withdraw.ordered(), if !ordered => {}
                () = env.sleep(watch.pause(self.now(), ordered)) => {}
            }
            if self.must_end() {
                return SlotEnd::Left;
            }
            let Some(Some(shown)) = self.slots.inspect(std::slice::from_ref(&slot)).await.pop() else {
                continue;
            };
            if watch.note(&shown) {
                self.list.remove(&key);
            }
            let around = Around {
                past_horizon: self.slots.is_past_horizon(&slot),
                forgotten: self.is_forgotten(&slot),
                cancel_to_store: self.cancel.is_for_good() && open.cancel.is_none(),
            };
            let end = match watch.look(shown, around) {
                Look::Ended(ended) => Some(SlotEnd::of(&ended)),
                Look::Lost(why) => Some(SlotEnd::Lost(watch.holder().cloned(), why.into())),
                Look::EndTaken => self.end_slot(&slot, None, watch.holder()).await,
                Look::StoreCancel => {
                    self.store_cancel(open).await;
                    None
                }
                Look::Untaken => match self.void_for(open, self.now()) {
                    None => None,
                    void => self.end_slot(&slot, void, watch.holder()).await,
                },
                Look::Wait => None,
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Stores the cancellation in the run's record. The worker that executes the run reads this record about once a
    /// second, and then cancels the run.
    async fn store_cancel(&self, open: &mut OpenRun) {
        let cancelled = OpenRun { cancel: self.cancel.why(), ..open.clone() };
        if self.write(RunRecord::Open(cancelled.clone())).await.is_ok() {
            *open = cancelled;
        }
    }

    async fn write(&self, record: RunRecord) -> Result<(), LedgerError> {
        self.ledger.write(&self.start.key, record.to_value()).await
    }

    /// Returns a time for the slots of the run: a node counts for them only if its memory began before.
    fn memory(&self) -> WallTime {
        memory_needed(self.start.at, self.term.began())
    }

    /// Returns whether no worker can take the generation any more, because too few nodes remember it, while the
    /// leader can still write records of the run. The leader may then end the generation as lost (rule R9c).
    fn is_forgotten(&self, slot: &SlotId) -> bool {
        !self.slots.is_remembered(slot.at) && self.slots.is_remembered(self.memory())
    }

    /// Returns the outcome and the reason for which the leader must end the run now, if no worker has taken it.
    /// Returns `None` if the run may stay open.
    fn void_for(&self, open: &OpenRun, now: WallTime) -> Option<(RunOutcome, Arc<str>)> {
        if self.cancel.is_for_good()
            && let Some(why) = self.cancel.why()
        {
            return Some((RunOutcome::Cancelled, why));
        }
        let late = now > open.take_by;
        self.withdraw.why().or_else(|| {
            late.then(|| (RunOutcome::SkippedMisfire, "it waited for longer than the misfire window".into()))
        })
    }

    /// Tries to take the slot for the leader, so that no worker can take it, and ends the generation. If no
    /// node has counted an attempt to take the slot, the generation ends as given by `void`. If a node has
    /// counted an attempt, the generation ends as lost. Returns `None` if the leader cannot end the generation
    /// now.
    async fn end_slot(
        &self,
        slot: &SlotId,
        void: Option<(RunOutcome, Arc<str>)>,
        holder: Option<&Arc<str>>,
    ) -> Option<SlotEnd> {
        let claim = match self.slots.claim(slot).await {
            Claimed::Ended(ended) => return Some(SlotEnd::of(&ended)),
            Claimed::Held(_) | Claimed::Unavailable => return None,
            Claimed::Counted(claim) => claim,
            Claimed::Free(claim) => {
                // Before a worker starts a run, the nodes count its attempt to take the slot. No node has
                // counted an attempt, so no worker has started this generation. The generation is not lost, and
                // the leader ends it only if `void` has an outcome.
                let (end, why) = void?;
                if claim.take().await {
                    let void = SlotRow::Void { end, why: Arc::clone(&why) };
                    if let Err(error) = claim.complete(&void.to_text()).await {
                        tracing::debug!(run = &*slot.run, "the end of its slot is not recorded yet: {error}");
                    }
                    return Some(SlotEnd::Void(end, why));
                }
                claim
            }
        };
        let worker = holder.map_or("a worker", |holder| holder);
        let why = format!("it was started by {worker}, which recorded no end").into();
        claim.fill().await.then(|| SlotEnd::Lost(holder.cloned(), why))
    }

    /// Writes the closed record of the run to a majority. Returns the data of the run's history entry, or
    /// [`RunEnd::Left`] if the record could not be written.
    async fn close(&self, open: &OpenRun, end: RunOutcome, outcome: SlotResult) -> RunEnd {
        let SlotResult { worker, reason, began, took, attempts, error, state, output, .. } = outcome;
        if let Some(text) = state
            && let Err(error) = self.state.set(text, &self.ledger).await
        {
            tracing::warn!(job = &*self.job.name, "its state is not stored at a majority yet: {error}");
        }
        let ran = attempts > 0;
        let took_here = took.filter(|_| ran);
        let closed = RunRecord::closed(&worker, (end, &reason), took_here, (open.term, self.start.at));
        if let Err(error) = self.write(closed).await {
            // The run stays open in the ledger. The next leader finds the end of the run in the slot, and
            // closes the run.
            tracing::warn!(job = &*self.job.name, "not closed: {error}");
            return RunEnd::Left;
        }
        let took = took.unwrap_or_default();
        let worked =
            ExecutionResult { end: ExecutionEnd::Done, reason, error, attempts, took, state: None, output };
        RunEnd::Ended(
            end,
            RunSummary { began: ran.then_some(began), worker: Some(worker), term: Some(open.term), worked },
        )
    }

    /// Returns the result of a generation whose handler may not have run. The result has no duration and no
    /// output.
    fn without_handler(&self, why: &str) -> SlotResult {
        SlotResult {
            worker: Arc::clone(&self.term.quorum().config().worker),
            end: None,
            reason: why.into(),
            began: WallTime::default(),
            took: None,
            attempts: 0,
            error: None,
            state: None,
            output: None,
        }
    }

    fn now(&self) -> WallTime {
        self.term.quorum().wall()
    }

    /// Waits until the run's job has ended. The leader then withdraws the run, because no leader will open
    /// another generation of it. Returns false if the step-down begins first, or if the leader gets the job
    /// first.
    async fn job_ended(&self) -> bool {
        tokio::select! { biased;
            () = self.term.step_down_token().cancelled() => false,
            () = self.withdraw.ordered() => !self.must_end(),
        }
    }

    fn must_end(&self) -> bool {
        let term = &self.term;
        term.step_down_token().is_cancelled() || !term.is_valid() || self.withdraw.is_released()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_at_least_once_run_that_is_not_cancelled_is_opened_again() {
        let (most, least) = (Delivery::AtMostOnce, Delivery::AtLeastOnce);
        assert_eq!(after_loss(most, false, RunOutcome::Lost), Next::Close(RunOutcome::Lost));
        assert_eq!(after_loss(least, false, RunOutcome::Lost), Next::Reopen);
        assert_eq!(after_loss(least, true, RunOutcome::Lost), Next::Close(RunOutcome::Cancelled));
        assert_eq!(after_loss(most, false, RunOutcome::Cancelled), Next::Close(RunOutcome::Cancelled));
    }
}
