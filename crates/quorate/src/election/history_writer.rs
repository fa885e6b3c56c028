use super::{
    Election, Term,
    end::{End, lost_because},
    history::{PastTerm, TermEnd, TermEndCause, TermRecords},
};
use crate::{
    env::{Env, ScopedTask},
    lease::StepDownCause,
    ledger::{Ledger, LedgerError},
};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// The largest number of beginnings and ends that wait to be written.
const QUEUE_MAX: usize = 32;
/// The pause after the first write that failed, and the longest pause.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The longest time for which the end of a campaign waits for the last entry.
const LAST_ENTRY: Duration = Duration::from_millis(500);
/// The number of times that a candidate renews the lifetime of the entries within that lifetime.
const RENEWALS: u32 = 8;
/// The number of terms after which the writer removes the oldest terms.
const PRUNE_EVERY: u32 = 16;

/// Writes the terms of one campaign to the nodes, in a task of its own. The campaign waits for it only at its end,
/// and not for long.
pub(super) struct HistoryWriter {
    env: Env,
    priority: u32,
    /// `None` if the group's name cannot be used, so that the campaign fails anyway.
    task: Option<(mpsc::Sender<PastTerm>, ScopedTask<()>)>,
}

impl HistoryWriter {
    pub(super) fn start(election: &Election) -> Self {
        let env = election.quorum().env().clone();
        let ledger = Ledger::new(election.quorum(), election.group());
        let task = ledger.ok().map(|ledger| {
            let (queue, entries) = mpsc::channel(QUEUE_MAX);
            let writing = serve(env.clone(), TermRecords::new(&ledger), entries);
            (queue, env.spawn_scoped(writing))
        });
        Self { env, priority: election.preference().priority, task }
    }

    /// Writes the beginning of a term.
    pub(super) fn begun(&self, term: &Term) {
        self.enter(self.entry(term, None));
    }

    /// Writes the end of a term, for the reason `end`. A term whose lease expired ended with the lease. The leader may
    /// have noticed that later, after a pause of its process.
    pub(super) fn ended<E: Display>(&self, term: &Term, end: &End<E>, step_down: Option<StepDownCause>) {
        let (cause, reason) = cause(end, step_down, term.successor(), &lost_because(term.failed_extension()));
        let late = term.lease().expired_at().map_or(Duration::ZERO, |at| at.until(term.env().now()));
        let at = term.quorum().wall() - late;
        self.enter(self.entry(term, Some(TermEnd { at, cause, reason: reason.into() })));
    }

    /// Waits for a short time until the last entry is written.
    pub(super) async fn finish(self) {
        let Some((queue, task)) = self.task else { return };
        drop(queue);
        let _ = self.env.before(self.env.now() + LAST_ENTRY, task).await;
    }

    fn entry(&self, term: &Term, end: Option<TermEnd>) -> PastTerm {
        let (holder, priority) = (Arc::clone(&term.quorum().config().worker), self.priority);
        PastTerm { term: term.unchecked_token(), holder, began: term.began(), priority, end }
    }

    fn enter(&self, entry: PastTerm) {
        if let Some((queue, _)) = &self.task
            && let Err(error) = queue.try_send(entry)
        {
            tracing::debug!("the history of terms lacks an entry: {error}");
        }
    }
}

/// Returns the cause of the end of a term, and its details.
fn cause<E: Display>(
    end: &End<E>,
    step_down: Option<StepDownCause>,
    successor: Option<Arc<str>>,
    lost_because: &str,
) -> (TermEndCause, String) {
    match end {
        End::ShutDown => (TermEndCause::ShutDown, String::new()),
        End::Failed(failure) => (TermEndCause::WorkFailed, failure.to_string()),
        End::Resigned => {
            let to = |worker: Arc<str>| {
                format!("the lease is handed over to {}", crate::plain::plain(&worker, 200))
            };
            (TermEndCause::Resigned, successor.map_or_else(String::new, to))
        }
        End::Done | End::Lost { .. } if step_down == Some(StepDownCause::MaxHold) => {
            (TermEndCause::MaxHold, String::new())
        }
        End::Done | End::Lost { .. } if step_down == Some(StepDownCause::Unhealthy) => {
            (TermEndCause::Unhealthy, String::new())
        }
        // The work ended because it was asked to, since too few nodes extended the lease.
        End::Done if step_down == Some(StepDownCause::NotExtended) => {
            (TermEndCause::LeaseLost, format!("the work ended before the lease did: {lost_because}"))
        }
        End::Done => (TermEndCause::WorkEnded, String::new()),
        End::Lost { without_notice: true } => (
            TermEndCause::LeaseLost,
            format!(
                "without notice: the process was paused or its runtime was blocked, or nodes lost the lease: {lost_because}"
            ),
        ),
        End::Lost { .. } => (TermEndCause::LeaseLost, lost_because.to_owned()),
    }
}

/// Writes the entries, until the campaign is over and the queue is empty. While no term begins or ends, renews the
/// lifetime of the entries from time to time.
async fn serve(env: Env, records: TermRecords, mut entries: mpsc::Receiver<PastTerm>) {
    let mut begun: u32 = 0;
    loop {
        let entry = tokio::select! { biased;
            entry = entries.recv() => entry,
            () = env.sleep(records.retention() / RENEWALS) => {
                if let Err(error) = records.keep().await {
                    tracing::debug!("cannot renew the lifetime of the history of terms: {error}");
                }
                continue;
            }
        };
        let Some(entry) = entry else { return };
        write(&env, &records, &entry, &entries).await;
        if entry.end.is_some() {
            continue;
        }
        if begun.is_multiple_of(PRUNE_EVERY)
            && let Err(error) = records.prune().await
        {
            tracing::debug!("cannot prune the history of terms: {error}");
        }
        begun = begun.wrapping_add(1);
    }
}

/// Writes an entry. Repeats a write that too few nodes answered, for as long as the campaign runs.
async fn write(env: &Env, records: &TermRecords, entry: &PastTerm, queue: &mpsc::Receiver<PastTerm>) {
    let (mut pause, longest) = RETRY;
    loop {
        let error = match records.write(entry).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let is_last_try = queue.is_closed() || !matches!(error, LedgerError::NoMajority(_));
        if is_last_try {
            tracing::debug!(term = entry.term.get(), "the history of terms lacks an entry: {error}");
            return;
        }
        env.sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::end::Failure;

    #[test]
    fn each_end_of_a_term_has_its_cause() {
        let of = |end: End<&str>, step_down| cause(&end, step_down, None, "").0;
        let lost = || End::Lost { without_notice: false };
        assert_eq!(of(End::ShutDown, None), TermEndCause::ShutDown);
        assert_eq!(of(End::Resigned, None), TermEndCause::Resigned);
        assert_eq!(of(End::Done, None), TermEndCause::WorkEnded);
        assert_eq!(of(lost(), Some(StepDownCause::NotExtended)), TermEndCause::LeaseLost);
        assert_eq!(of(End::Done, Some(StepDownCause::NotExtended)), TermEndCause::LeaseLost);
        assert_eq!(of(lost(), Some(StepDownCause::MaxHold)), TermEndCause::MaxHold);
        assert_eq!(of(End::Done, Some(StepDownCause::Unhealthy)), TermEndCause::Unhealthy);
        let failed = cause(&End::Failed(Failure::Error("no such table")), None, None, "");
        assert_eq!(failed, (TermEndCause::WorkFailed, "no such table".to_owned()));
        let handed = cause(&End::<&str>::Resigned, None, Some("oak".into()), "");
        assert_eq!(handed.1, "the lease is handed over to oak");
        for (end, step_down) in [(lost(), None), (End::Done, Some(StepDownCause::NotExtended))] {
            let (_, reason) = cause(&end, step_down, None, "0 of 3 nodes agreed");
            assert!(reason.ends_with("0 of 3 nodes agreed"), "{reason}");
        }
    }
}
