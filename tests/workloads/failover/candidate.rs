use crate::{
    harness::{Assignment, Journal, LeaseLog},
    work::{CHECK_EVERY, Failure, GRACE, until_told_to_end},
};
use quorate::{
    election::{Election, Term},
    env::BootTime,
    quorum::Quorum,
};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use tokio_util::sync::CancellationToken;

/// The group in which a process is a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(super) group: String,
}

/// Campaigns until SIGTERM, and writes each term to the journal.
pub(crate) async fn work(
    task: &Task,
    assignment: &Assignment,
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    let ttl = assignment.ttl;
    let election = Election::new(quorum, &task.group).ttl(ttl).step_down_grace(GRACE.min(ttl / 5));
    let lead = |term: Term| {
        let (journal, group) = (journal.clone(), task.group.clone());
        async move {
            let log = LeaseLog::begin(&journal, &group, term.token().get(), BootTime::default(), || {
                term.remaining()
            });
            if let Some(log) = log {
                Led { term, log }.watch().await;
            }
            Ok::<(), Infallible>(())
        }
    };
    let stop = CancellationToken::new();
    let campaign = async {
        let _stop = stop.clone().drop_guard();
        election.run(lead).until(stop.cancelled()).await
    };
    let (led, ended) = tokio::join!(campaign, until_told_to_end(&stop));
    led?;
    ended
}

/// A term, with the log that writes its end. The campaign drops this value when the lease is lost, or before it
/// releases the lease.
struct Led {
    term: Term,
    log: LeaseLog,
}

impl Led {
    /// Returns when the term has ended, or must end.
    async fn watch(&self) {
        while self.log.check(|| self.term.remaining()) {
            tokio::select! { biased;
                () = self.term.step_down_token().cancelled() => return,
                () = self.term.quorum().env().sleep(CHECK_EVERY * 10) => {}
            }
        }
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        self.log.end(|| self.term.remaining());
    }
}
