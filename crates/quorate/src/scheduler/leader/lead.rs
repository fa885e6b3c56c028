//! One term of the leader: the leader seals the ledger, runs the event loop, and writes the ends of runs.

use crate::{
    election::Term,
    env::Env,
    ledger::{Ledger, LedgerError},
    scheduler::{
        control::IncomingRequest,
        leader::{event_loop::EventLoop, leading::Leading, ledger_writes::LedgerWrites},
        plan::open_request::requests_in,
        registry::Phase,
        store::{
            history_writer::HistoryWriter,
            next_start::NextStart,
            recorded_ends::{Ends, requested_ends},
            retention::Retention,
            row_writer::RowWriter,
            snapshot::LedgerSnapshot,
        },
    },
};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// The pause after an attempt to seal that found no majority.
const SEAL_AGAIN: Duration = Duration::from_millis(50);

/// Plans and runs the registry's jobs under the term. Returns once the term must end and every run has ended.
///
/// # Cancel safety
/// Dropping the future drops the active runs. The ledger then has the starts of these runs, but not their ends.
pub(in crate::scheduler) async fn lead(leading: Leading, requests: mpsc::Receiver<IncomingRequest>) {
    let writes = LedgerWrites::new(&leading.term, leading.ttl);
    let leading = Leading { ledger: leading.ledger.clone().observed_by(Arc::new(writes)), ..leading };
    let Leading { registry, ledger, term, .. } = &leading;
    // Dropping this guard reports to the registry that this scheduler no longer plans jobs under the term. The guard
    // is dropped when this function returns, or when its future is dropped. `SchedulerHandle::drain` waits
    // until then.
    let Some(_lead) = registry.lead() else { return };
    let sealed = tokio::select! { biased;
        // The draining began before the ledger was sealed. No run may start, so there is nothing to do.
        () = registry.reached(Phase::Draining) => return,
        sealed = seal(ledger, term, term.env()) => sealed,
    };
    let Some(sealed) = sealed else { return };
    let (rows, mut writing) = RowWriter::start(ledger, term, &sealed);
    let jobs = registry.jobs();
    let causes = requests_in(&sealed).map(|(row, _)| (row.id(), row.cause())).collect();
    let mut requested = requested_ends(&sealed, &causes);
    let mut find = |job: &str| Ends::find(jobs.get(job)?, &sealed, requested.remove(job).unwrap_or_default());
    let ends = sealed.jobs_with_runs().into_iter().filter_map(&mut find).collect();
    let next_start = NextStart::new();
    let (history, mut noting) =
        HistoryWriter::start(ledger, term, registry.counts().clone(), ends, next_start.starts());
    // The worker vouches for its jobs from its start on, and may have set the lifetimes of the ledgers before the seal has
    // created this one. A ledger without a lifetime lasts for the nodes' default.
    let kept = async {
        if let Err(error) = Retention::new(ledger).keep_main(&registry.jobs()).await {
            tracing::debug!(group = &**term.group(), "the lifetime of the ledger is not set yet: {error}");
        }
    };
    tokio::join!(EventLoop::new(&leading, sealed, rows, history, next_start).run(requests), kept);
    // The term releases its lease when this function returns. The ends of some runs may not be written yet. So
    // this function first waits for these writes, within the time that the term still allows.
    let written = async { tokio::join!(&mut writing, &mut noting) };
    if let Some(until) = term.work_until() {
        term.env().before(until, written).await;
    }
}

/// Seals the ledger, and repeats the attempt until a majority has answered. Returns `None` if the term must end
/// first.
async fn seal(ledger: &Ledger, term: &Term, env: &Env) -> Option<LedgerSnapshot> {
    let config = term.quorum().config();
    let mut warned = false;
    loop {
        let sealed = tokio::select! { biased;
            () = term.step_down_token().cancelled() => return None,
            sealed = ledger.seal_unsorted(term.token()) => sealed,
        };
        match sealed {
            Ok(answers) => {
                let quorum = term.quorum().pool().majority();
                return Some(LedgerSnapshot::take(answers, quorum, config.max_clock_offset).await);
            }
            // A later leader has sealed the ledger. Either this term is over and this worker has not noticed
            // yet, or fencing tokens went backwards. In the second case, only a new term can seal the ledger.
            Err(error @ LedgerError::Superseded { .. }) => {
                tracing::error!(group = &**term.group(), term = term.token().get(), "resigning: {error}");
                term.resign();
                return None;
            }
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(group = &**term.group(), "cannot seal the ledger yet: {error}");
                }
                env.sleep(SEAL_AGAIN).await;
            }
        }
    }
}
