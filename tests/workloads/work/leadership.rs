use super::await_step_down;
use crate::harness::{Journal, LeaseLog};
use quorate::{election::Term, env::BootTime};
use std::time::Duration;

/// A term, with the log that writes its events. The work of a campaign owns this value: the campaign drops it when the
/// lease is lost, or before it releases the lease.
pub(crate) struct Leadership {
    pub(crate) term: Term,
    log: LeaseLog,
    check_every: Duration,
}

impl Leadership {
    /// Writes the begin of a term to the journal, where its election has the name `election`. Returns `None` if the term
    /// has already ended. Then no work may start.
    pub(crate) fn begin(
        journal: &Journal,
        election: &str,
        term: Term,
        check_every: Duration,
    ) -> Option<Self> {
        let requested = BootTime::default(); // It is not known.
        let log =
            LeaseLog::begin(journal, election, term.unchecked_token().get(), requested, || term.remaining())?;
        Some(Self { term, log, check_every })
    }

    /// Checks the term repeatedly until it has ended.
    pub(crate) async fn watch(&self) {
        let Self { term, log, check_every } = self;
        while log.check(|| term.remaining()) {
            tokio::select! { biased;
                () = term.step_down_token().cancelled(), if !log.has_stepped_down() => log.step_down(),
                () = term.quorum().env().sleep(*check_every) => {}
            }
        }
        self.await_step_down().await;
    }

    /// Checks the term repeatedly until its work gets the notice to step down, or until it has ended.
    pub(crate) async fn watch_until_step_down(&self) {
        tokio::select! { biased;
            () = self.term.step_down_token().cancelled() => {}
            () = self.watch() => {}
        }
    }

    /// Waits until the work of a term that has ended gets the notice to step down.
    pub(crate) async fn await_step_down(&self) {
        await_step_down(self.term.quorum().env(), &self.log, self.term.step_down_token()).await;
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        if self.term.step_down_token().is_cancelled() {
            self.log.step_down();
        }
        self.log.end(|| self.term.remaining());
    }
}
