//! One attempt of a worker to take a run that the leader has opened, and the execution of the run.

use crate::{
    claim::{Claimed, SlotClaim, Slots},
    env::WallTime,
    ledger::Ledger,
    node::copy::HEADER_KEY,
    quorum::Quorum,
    scheduler::{
        job::{Job, RunCause, RunGuard, RunOutcome, RunOutput},
        policy::Delivery,
        registry::JobRegistry,
        run::{
            Cancel, Execution, ExecutionEnd,
            span::{record_end, run_span},
        },
        store::{OpenRun, SlotResult, SlotRow, job_and_tick, verdict::is_open},
    },
};
use std::{sync::Arc, time::Duration};
use tracing::{Instrument, Span};

/// The longest sleep of a worker that waits until a run is due. The wall clock may step during a sleep, so the
/// worker reads it at least this often.
pub(super) const WALL_CLOCK_CHECK: Duration = Duration::from_millis(500);
/// The pause before the next attempt to take a run, after an attempt that too few nodes answered.
pub(super) const TAKE_RETRY: Duration = Duration::from_millis(200);

/// The settings with which a worker takes open runs.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Taking {
    pub(in crate::scheduler) registry: JobRegistry,
    pub(in crate::scheduler) quorum: Quorum,
    pub(in crate::scheduler) ledger: Ledger,
    pub(in crate::scheduler) group: Arc<str>,
    pub(in crate::scheduler) max_running: usize,
    /// The TTL of the claim on a slot. If a worker crashes after it has acquired the claim, no worker can take
    /// the slot for at most this time.
    pub(in crate::scheduler) ttl: Duration,
    /// The time that the handler of a cancelled run has to return.
    pub(in crate::scheduler) grace: Duration,
}

/// The result of an attempt to take a run.
#[derive(Debug)]
pub(super) enum Tried {
    /// The worker has executed the run, or must not take this generation of the run. It does not repeat the
    /// attempt.
    Finished,
    /// The worker has not taken the run. It may try again after this time.
    Again(Duration),
}

/// One attempt of this worker to take a run.
pub(super) struct Attempt {
    pub(super) key: Arc<str>,
    pub(super) job: Arc<Job>,
    pub(super) slots: Slots,
    pub(super) with: Taking,
    pub(super) cancel: Cancel,
}

impl Attempt {
    pub(super) async fn run(self) -> Tried {
        let open = match self.read().await {
            Ok(Some(open)) => open,
            Ok(None) => return Tried::Again(TAKE_RETRY),
            Err(tried) => return tried,
        };
        let now = self.with.quorum.wall();
        if open.not_before > now {
            return Tried::Again(now.until(open.not_before).min(WALL_CLOCK_CHECK));
        }
        if open.take_by < now || open.cancel.is_some() || self.cancel.is_cancelled() {
            return Tried::Finished;
        }
        match self.slots.claim(&open.slot(&self.key)).await {
            Claimed::Free(claim) => self.execute(claim, open).await,
            // The slot was taken before, or has ended. So a worker may have started the run, and the leader
            // decides whether another generation follows.
            Claimed::Counted(_) | Claimed::Ended(_) => Tried::Finished,
            Claimed::Held(after) => Tried::Again(after.unwrap_or(TAKE_RETRY).min(self.with.ttl)),
            Claimed::Unavailable => Tried::Again(TAKE_RETRY),
        }
    }

    /// Reads the open generation of the run, which a majority of nodes must store. Returns `None` if no record
    /// has a majority yet.
    async fn read(&self) -> Result<Option<OpenRun>, Tried> {
        let keys = [HEADER_KEY.into(), Arc::clone(&self.key)];
        match self.with.ledger.read_keys(&keys).await {
            Ok(answers) => Ok(is_open(&answers, &self.key, self.with.quorum.pool().len())),
            Err(error) => {
                tracing::debug!(run = &*self.key, "its record cannot be read yet: {error}");
                Err(Tried::Again(TAKE_RETRY))
            }
        }
    }

    async fn execute(self, claim: SlotClaim, open: OpenRun) -> Tried {
        let tick = job_and_tick(&self.key).map_or(open.not_before, |(_, tick)| tick);
        let span = run_span(&self.job, tick, open.cause, open.term);
        self.take_and_execute(claim, open, tick, span.clone()).instrument(span).await
    }

    /// Takes the slot: lets the nodes count this attempt, checks the claim, and executes the run within its
    /// span.
    async fn take_and_execute(self, claim: SlotClaim, open: OpenRun, tick: WallTime, span: Span) -> Tried {
        // Once this attempt is counted, no other attempt can take this slot. If a later step fails, the leader
        // closes the run or opens its next generation.
        if !claim.take().await || !claim.lease().is_valid() || self.cancel.is_cancelled() {
            span.record("outcome", "not started");
            return Tried::Finished;
        }
        let (env, quorum) = (self.with.quorum.env().clone(), &self.with.quorum);
        let began = quorum.wall();
        if open.cause == RunCause::Scheduled {
            self.with.registry.counts().late(&self.job.name, open.not_before.until(began));
        }
        let output = RunOutput::new(open.state.clone(), self.job.keep_output);
        let taken = TakenSlot { output: output.clone(), claim };
        let work = Execution {
            job: Arc::clone(&self.job),
            tick,
            cause: open.cause,
            guard: RunGuard::Claim(Arc::clone(taken.claim.lease()), env.clone()),
            output: output.clone(),
            cancel: self.cancel.clone(),
            grace: self.with.grace,
        };
        let lost = taken.claim.lease().lost_token().clone();
        let result = tokio::select! { biased;
            result = work.run() => Some(result),
            () = lost.cancelled() => None,
        };
        let Some(result) = result else {
            span.record("outcome", RunOutcome::Lost.as_str());
            tracing::warn!(job = &*self.job.name, run = &*self.key, "dropped: its claim was lost");
            return Tried::Finished;
        };
        // If the handler stopped only because this worker is shutting down, the run's result is *interrupted*.
        // Another worker then executes the run again.
        let again = result.end == ExecutionEnd::Cancelled
            && self.job.delivery == Delivery::AtLeastOnce
            && !self.cancel.is_for_good();
        let end = result.end.of_tick().filter(|_| !again);
        record_end(&span, end.map_or("interrupted", RunOutcome::as_str), &result);
        let row = SlotRow::Done(SlotResult {
            worker: Arc::clone(&quorum.config().worker),
            end,
            reason: result.reason,
            began,
            took: Some(result.took),
            attempts: result.attempts,
            error: result.error,
            state: result.state,
            output: result.output,
        });
        if output.is_unreleased() {
            // Processes of the handler may still be running. So the worker records the end of the run only one
            // TTL later. The next run then starts no earlier than it would if the claim had expired.
            env.sleep(self.with.ttl).await;
        }
        if let Err(error) = taken.claim.complete(&row.to_text()).await {
            tracing::warn!(job = &*self.job.name, run = &*self.key, "its end is not recorded: {error}");
        }
        Tried::Finished
    }
}

/// A slot that this worker has taken. If this value is dropped while the handler runs, the claim is released,
/// so that the leader sees at once that the run is lost. If the handler has called
/// [`end_without_release`](crate::scheduler::RunContext::end_without_release), the claim is not released, but
/// expires.
struct TakenSlot {
    claim: SlotClaim,
    output: RunOutput,
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        if self.output.is_unreleased() {
            self.claim.let_run_out();
        }
    }
}
