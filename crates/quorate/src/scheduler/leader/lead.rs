//! One term of the leader: seals the ledger, runs the event loop, and writes what has ended.

use crate::scheduler::{
    control::IncomingRequest,
    leader::{event_loop::EventLoop, leading::Leading},
    registry::Phase,
    store::{
        history_writer::{Ends, HistoryWriter},
        row_writer::RowWriter,
        snapshot::LedgerSnapshot,
    },
};
use crate::{
    election::Term,
    env::Env,
    ledger::{Ledger, LedgerError},
};
use std::time::Duration;
use tokio::sync::mpsc;

/// The pause between attempts to seal without a majority.
const SEAL_AGAIN: Duration = Duration::from_millis(50);

/// Runs the registry's jobs under the term until the term is to end and every run has ended.
///
/// # Cancel safety
/// Dropping it drops the active runs. Their ticks stay as started and not ended.
pub(in crate::scheduler) async fn lead(leading: Leading, requests: mpsc::Receiver<IncomingRequest>) {
    let Leading { registry, ledger, term, .. } = &leading;
    // Dropped on every way out, also with this future, so that the callers that drain the registry go on.
    let Some(_lead) = registry.lead() else { return };
    let sealed = tokio::select! { biased;
        // Nothing has started yet, and nothing will.
        () = registry.reached(Phase::Draining) => return,
        sealed = seal(ledger, term, term.env()) => sealed,
    };
    let Some(sealed) = sealed else { return };
    let (rows, mut writing) = RowWriter::start(ledger, term, &sealed);
    let ends = registry.jobs().values().filter_map(|job| Ends::find(job, &sealed)).collect();
    let (history, mut noting) = HistoryWriter::start(ledger, term, registry.counts().clone(), ends);
    EventLoop::new(&leading, sealed, rows, history).run(requests).await;
    // What has ended is written before the lease is released, if a majority answers in time.
    let written = async { tokio::join!(&mut writing, &mut noting) };
    if let Some(until) = term.work_until() {
        term.env().before(until, written).await;
    }
}

/// Seals the ledger. Returns `None` if the term is to end first.
async fn seal(ledger: &Ledger, term: &Term, env: &Env) -> Option<LedgerSnapshot> {
    let config = term.quorum().config();
    let mut warned = false;
    loop {
        let sealed = tokio::select! { biased;
            () = term.step_down_token().cancelled() => return None,
            sealed = ledger.seal(term.token()) => sealed,
        };
        match sealed {
            Ok(answers) => {
                let quorum = term.quorum().pool().majority();
                return Some(LedgerSnapshot::take(answers, quorum, config.max_clock_offset).await);
            }
            // A later leader has sealed it. Either this term is over, and will notice, or fencing tokens went backwards,
            // and only a new term can help.
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
