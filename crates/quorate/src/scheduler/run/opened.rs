//! The leader's task for one run that workers execute: it gives the run to the workers, and closes it when it has ended.

use crate::{
    election::Term,
    env::WallTime,
    ledger::TermLedger,
    sabotage::Sabotage,
    scheduler::{
        job::{Job, Payload, RunCause},
        run::{
            assign::{OpenEnd, OpenRuns},
            on_leader::{RunEnd, store_state},
            pending_run::PendingRun,
        },
        store::{OpenRun, RunRecord, TAKE_WITHIN, record_life::LATE_AFTER, verdict::first_opened},
    },
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A run that workers execute.
pub(in crate::scheduler) struct Opened {
    start: PendingRun,
    job: Arc<Job>,
    ledger: TermLedger,
    end: oneshot::Receiver<OpenEnd>,
}

impl Opened {
    /// Gives the run to the workers. `reopens` is true if this leader has the job, so that another generation may follow one
    /// that was lost. After the ledger was founded, no worker of before executes a run any more once `unknown_from`
    /// has come.
    pub(in crate::scheduler) fn new(
        (job, start, payload): (Arc<Job>, PendingRun, Option<Payload>),
        (term, ledger, runs): (&Term, &TermLedger, &OpenRuns),
        state: Option<Arc<str>>,
        reopens: bool,
        unknown_from: WallTime,
    ) -> Self {
        let (open, stored) = match &start.seen {
            Some(RunRecord::Open(open)) => (open.clone(), true),
            _ => {
                let open = first_generation(&job, &start, term, state, unknown_from);
                (OpenRun { payload, job: job.for_worker(), ..open }, false)
            }
        };
        let end = runs.open(&start.key, (&job, open), reopens, stored);
        Self { start, job, ledger: ledger.clone(), end }
    }

    /// Waits for the end of the run, and closes the run.
    pub(in crate::scheduler) async fn run(self) -> RunEnd {
        let Self { start, job, ledger, end } = self;
        let Ok(OpenEnd { open, end, mut result }) = end.await else { return RunEnd::Left };
        let state = result.state.take();
        store_state(&job.name, state.as_ref(), &ledger).await;
        let of = (open.term, start.at);
        let closed = RunRecord::closed(&result.worker, (end, &result.reason), result.handler_took(), of);
        if let Err(error) = ledger.write(&start.key, closed.to_value()).await {
            // The run stays open in the ledger. The next leader finds the end of the run on the nodes, and closes it.
            tracing::warn!(job = &*job.name, "not closed: {error}");
            return RunEnd::Left;
        }
        let entry = result.entry(&job.name, (start.tick, start.cause), end, open.term);
        RunEnd::Ended { entry: Box::new(entry), state }
    }
}

/// Returns the generation with which this leader opens the run.
fn first_generation(
    job: &Job,
    start: &PendingRun,
    term: &Term,
    state: Option<Arc<str>>,
    unknown_from: WallTime,
) -> OpenRun {
    let now = term.quorum().wall();
    // If the run has a record, or if its past is unknown, an earlier leader may have executed the run itself. That
    // execution counts as the first generation, so this generation is the second.
    let generation = first_opened(start.seen.is_none() && !start.unknown);
    let not_before =
        if start.is_unfinished() { start.not_before.max(unknown_from) } else { start.not_before };
    let scheduled = start.cause == RunCause::Scheduled && generation == 1;
    let take_by = match scheduled && !job.schedule.is_after_end() {
        true => not_before + job.misfire_rule().within().max(LATE_AFTER),
        false => now.max(not_before) + TAKE_WITHIN,
    };
    OpenRun {
        generation,
        at: start.at,
        not_before,
        take_by,
        delivery: job.rules.delivery,
        cause: match start.cause {
            RunCause::Scheduled if generation > 1 => RunCause::CatchUp,
            cause => cause,
        },
        term: term.unchecked_token(),
        labels: match term.quorum().config().sabotaged(Sabotage::LabelsIgnored) {
            true => Default::default(),
            false => job.rules.labels.clone(),
        },
        uses: start.uses(job),
        state,
        cancel: None,
        payload: None,
        job: None,
        token: Default::default(),
        to: None,
    }
}
