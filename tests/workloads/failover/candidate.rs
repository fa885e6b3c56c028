use crate::{
    harness::{Assignment, Journal},
    work::{CHECK_EVERY, Failure, GRACE, leadership::Leadership, until_told_to_end},
};
use quorate::{
    election::{Election, Term},
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
            if let Some(leadership) = Leadership::begin(&journal, &group, term, CHECK_EVERY * 10) {
                leadership.watch_until_step_down().await;
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
