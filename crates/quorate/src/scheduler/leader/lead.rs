//! One term of the leader: the leader seals the ledger, runs the event loop, and writes the ends of runs.

use crate::{
    election::Term,
    ledger::TermLedger,
    sabotage::Sabotage,
    scheduler::{
        control::IncomingRequest,
        leader::{
            event_loop::EventLoop, history_writer::HistoryWriter, leading::Leading,
            ledger_writes::LedgerWrites,
        },
        plan::{definitions::Definitions, planner::Planner},
        registry::Phase,
        run::next_start::NextStart,
        store::{
            recorded_ends::{Ends, requested_ends},
            retention::Retention,
            snapshot::LedgerSnapshot,
        },
    },
};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Plans and runs the registry's jobs under the term. Returns once the term must end and every run has ended. What is left of a
/// term with very many jobs takes a while to drop, so the caller gets it and drops it after the release of the lease.
///
/// # Cancel safety
/// Dropping the future drops the active runs. The ledger then has the starts of these runs, but not their ends.
pub(in crate::scheduler) async fn lead(
    leading: Leading,
    requests: mpsc::Receiver<IncomingRequest>,
) -> Option<Planner> {
    let writes = LedgerWrites::new(&leading.term, leading.ttl, leading.registry.counts().copies());
    let leading = Leading { ledger: leading.ledger.clone().observed_by(Arc::new(writes)), ..leading };
    let Leading { registry, ledger, term, .. } = &leading;
    // Dropping this guard reports to the registry that this scheduler no longer plans jobs under the term. The guard
    // is dropped when this function returns, or when its future is dropped. `SchedulerHandle::drain` waits
    // until then.
    let _lead = registry.lead()?;
    let taken = tokio::select! { biased;
        // The draining began before the ledger was taken over. No run may start, so there is nothing to do.
        () = registry.reached(Phase::Draining) => return None,
        () = term.step_down_token().cancelled() => return None,
        taken = TermLedger::take_over(ledger, term.unchecked_token(), may_found(term)) => taken,
    };
    let (led, adopted, mut copying) = match taken {
        Ok(taken) => taken,
        // A later leader has sealed the ledger: either this term is over and this worker has not noticed yet, or fencing tokens
        // went backwards. Or too many nodes have forgotten. In both of the last cases, only a new term can seal the ledger.
        Err(error) => {
            tracing::error!(
                group = &**term.group(),
                term = term.unchecked_token().get(),
                "resigning: {error}"
            );
            term.resign();
            return None;
        }
    };
    let sealed = LedgerSnapshot::take(adopted).await;
    let definitions = Definitions::read(term.group(), &sealed, registry.handlers()).await;
    let definitions = match term.quorum().config().sabotaged(Sabotage::StoredJobsNotTakenOver) {
        true => Definitions::default(),
        false => definitions,
    };
    let many = definitions.jobs().filter(|job| !job.is_single_run());
    *registry.on_nodes() = many.map(|job| Arc::clone(job.name())).collect();
    let jobs = registry.jobs();
    let mut requested = requested_ends(&sealed);
    let mut find = |job: &str| {
        Ends::find(
            definitions.job(job).or_else(|| jobs.get(job))?,
            &sealed,
            requested.remove(job).unwrap_or_default(),
        )
    };
    let ends = sealed.jobs_with_runs().into_iter().filter_map(&mut find).collect();
    let next_start = NextStart::new();
    let (history, mut noting) =
        HistoryWriter::start(ledger, &led, term, registry.counts().clone(), ends, next_start.starts());
    // The worker vouches for its jobs from its start on, and may have set the lifetimes of the ledgers before the seal has
    // created this one. A ledger without a lifetime lasts for the nodes' default.
    let kept = async {
        if let Err(error) = Retention::new(ledger).keep_main(&registry.jobs()).await {
            tracing::debug!(group = &**term.group(), "the lifetime of the ledger is not set yet: {error}");
        }
    };
    let event_loop = EventLoop::new(&leading, (sealed, definitions), led.clone(), history, next_start);
    let leads = async { tokio::join!(event_loop.run(requests), kept) };
    let mut leads = std::pin::pin!(leads);
    let planner = tokio::select! { biased;
        // The task ends while its handle exists only if this leader can no longer write the ledger. So it can start no more
        // runs. The resignation cancels the active runs and gives them the grace period to end. Otherwise a run that takes
        // hours would keep the lease, and no leader could start runs.
        _ = &mut copying => {
            tracing::error!(group = &**term.group(), term = term.unchecked_token().get(), "resigning: the ledger cannot be written any more");
            term.resign();
            return Some(leads.await.0);
        }
        (planner, ()) = &mut leads => planner,
    };
    // Without a handle, the task of the ledger ends once it has written what was ordered.
    drop(led);
    // The term releases its lease when this function returns. The ends of some runs may not be written yet. So
    // this function first waits for these writes, within the time that the term still allows.
    let written = async { tokio::join!(&mut copying, &mut noting) };
    if let Some(until) = term.work_until() {
        term.env().before(until, written).await;
    }
    Some(planner)
}

/// Returns whether the leader may found the ledger: whether its lease is valid.
fn may_found(term: &Term) -> impl Fn() -> bool + Send + 'static {
    let term = term.clone();
    move || term.is_valid()
}
