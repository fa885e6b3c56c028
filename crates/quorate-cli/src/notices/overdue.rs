//! Reports the overdue jobs while no leader can. The leader reports an overdue job once a majority of the nodes has
//! stored the alert. Without a leader, or if the nodes refuse what the leader writes, the workers read which jobs are
//! overdue, and the receivers' claims decide which worker sends the message. Without these claims each worker sends it.

use super::{
    hook::Notices,
    no_leader::{Absence, LOOK_EVERY, has_leader},
};
use futures_util::future::join_all;
use quorate::{
    election::Election,
    env::{BootTime, WallTime},
    quorum::Quorum,
    scheduler::{JobAlert, Jobs},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The time between two reads of the overdue jobs.
const READ_EVERY: Duration = Duration::from_secs(5);
/// The longest wait for the nodes' answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The largest number of messages that wait at the same time. The queues of the receivers hold more.
const AT_ONCE: usize = 32;

/// The overdue jobs that this worker has reported since there was a leader. Pure.
#[derive(Debug, Default)]
struct Reported(BTreeSet<(Arc<str>, WallTime)>);

impl Reported {
    /// Returns those of `alerts` that were not returned before, at most [`AT_ONCE`].
    fn take_new(&mut self, alerts: Vec<JobAlert>) -> Vec<JobAlert> {
        let is_new = |alert: &JobAlert| self.0.insert((Arc::clone(&alert.job), alert.at));
        alerts.into_iter().filter(is_new).take(AT_ONCE).collect()
    }
}

/// Reports the overdue jobs while there has been no leader that can write for `after`, until the task is dropped.
pub(super) async fn watch(quorum: Quorum, election: Election, notices: Notices, after: Duration) {
    let env = quorum.env().clone();
    let (mut absence, mut reported) = (Absence::default(), Reported::default());
    let mut read_at = BootTime::default();
    loop {
        let (now, wall) = (env.now(), env.wall());
        absence.look(has_leader(&election), (now, wall), after);
        match absence.lasts(now) {
            Some(time) if time >= after && now >= read_at => {
                read_at = now + READ_EVERY;
                let new = reported.take_new(overdue(&quorum, &notices).await);
                join_all(new.iter().map(|alert| notices.send_alert(alert))).await;
            }
            Some(_) => {}
            None => reported = Reported::default(),
        }
        env.sleep(LOOK_EVERY).await;
    }
}

/// Reads the overdue jobs. Returns none if too few nodes answer: then only the message that there is no leader is sent.
async fn overdue(quorum: &Quorum, notices: &Notices) -> Vec<JobAlert> {
    let read = async {
        let jobs = Jobs::new(quorum, notices.group())?;
        jobs.overdue().await
    };
    let env = quorum.env();
    match env.before(env.now() + ANSWER_WITHIN, read).await {
        Some(Ok(alerts)) => alerts,
        Some(Err(error)) => {
            tracing::debug!("cannot read which jobs are overdue: {error}");
            Vec::new()
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_overdue_job_is_reported_once_and_a_few_at_a_time() {
        let alert = |job: usize, at: u64| -> JobAlert {
            let alert =
                serde_json::json!({ "job": format!("j{job:03}"), "kind": "overdue", "at": at, "reason": "" });
            serde_json::from_value(alert).unwrap()
        };
        let all: Vec<JobAlert> = (0..AT_ONCE + 3).map(|job| alert(job, 7)).collect();
        let mut reported = Reported::default();
        assert_eq!(reported.take_new(all.clone()), all[..AT_ONCE]);
        assert_eq!(reported.take_new(all.clone()), all[AT_ONCE..], "the others follow");
        assert_eq!(reported.take_new(all), []);
        assert_eq!(reported.take_new(vec![alert(0, 9)]).len(), 1, "it succeeded, and is overdue again");
    }
}
