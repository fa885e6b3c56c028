//! Sends a request to the leader through the inbox, and waits for its answer.

use super::{Accepted, Jobs};
use crate::{
    election::Election,
    env::{BootTime, WallTime},
    ledger::LedgerError,
    node::Cause,
    scheduler::{
        control::{
            classify,
            error::{JobsError, utc},
            inbox,
        },
        job::RequestId,
        store::{JobAction, JobRequest, JobResponse},
    },
    vote::{NoMajority, NodeOutcome},
};
use std::{sync::Arc, time::Duration};

/// The pause between two attempts to post a request, and the longest one between two reads of its answer.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// The pause before the second read of the answer. It doubles with each further read.
const READ_ANSWER_AFTER: Duration = Duration::from_millis(5);

impl Jobs {
    /// Sends a request to the leader, and waits for its answer. Each action has a method of its own.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`], and [`JobsError::Input`] if a time of the action cannot be used.
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    #[doc(hidden)]
    pub async fn send(&self, what: JobAction) -> Result<Accepted, JobsError> {
        Self::check_times(&what, self.now())?;
        let what = what.shown();
        // Without this check, a request for an unknown job would wait for a leader's refusal, or for the
        // timeout if there is no leader.
        if let JobAction::Remove { job, .. } = &what {
            self.check_stored(job).await?;
        } else if !what.job().is_empty() && !matches!(what, JobAction::Put { .. }) {
            self.check_exists(what.job()).await?;
        }
        let env = self.quorum.env();
        let deadline = env.now() + self.wait;
        let id = RequestId::random(env);
        let request = JobRequest {
            id,
            by: Arc::clone(&self.requester),
            at: self.now(),
            valid_for: self.valid_for,
            what,
        };
        let request = self.post(request, deadline).await?;
        env.before(deadline, Election::new(&self.quorum, &self.group).ring_leader()).await;
        let inbox = inbox::part(&self.ledger);
        let mut pause = READ_ANSWER_AFTER;
        loop {
            match inbox.read().await {
                Ok(answers) => {
                    if let Some(answer) = classify::answer_to(&answers, id) {
                        return match answer.map_err(JobsError::unreadable)? {
                            JobResponse::Accepted { text, count } => Ok(Accepted { id, text, count }),
                            JobResponse::Refused { why: reason } => Err(JobsError::Refused { id, reason }),
                        };
                    }
                }
                Err(LedgerError::NoMajority(report)) if report.is_permanent() => {
                    let until = request.valid_until();
                    return Err(JobsError::AnswerUnread { id, until, report });
                }
                // The nodes may have an answer even if this read failed. So the loop reads again.
                Err(_) => {}
            }
            if env.now() >= deadline {
                return Err(self.unanswered(&request).await);
            }
            env.sleep(pause).await;
            pause = (pause * 2).min(RETRY_EVERY);
        }
    }

    /// Checks the times of an action.
    ///
    /// # Errors
    /// [`JobsError::Input`].
    #[doc(hidden)]
    pub fn check_times(what: &JobAction, now: WallTime) -> Result<(), JobsError> {
        let (until, fix) = match what {
            JobAction::Pause { until: Some(until), .. } if *until <= now => {
                (until, "the pause would have ended already; use a later time")
            }
            JobAction::Freeze { until, .. } if *until <= now => {
                (until, "the freeze would have ended already; use a later time")
            }
            JobAction::Backfill { from, until, .. } if from >= until => {
                (until, "this is not later than from; the span includes from and excludes until")
            }
            _ => return Ok(()),
        };
        Err(JobsError::Input { field: "until", value: utc(*until), fix })
    }

    /// Writes the request to a majority of the nodes. Returns the request, with the time of the record that the
    /// nodes store.
    async fn post(&self, request: JobRequest, deadline: BootTime) -> Result<JobRequest, JobsError> {
        let (env, inbox) = (self.quorum.env(), inbox::part(&self.ledger));
        let mut seen = None;
        let mut may_be_posted = false;
        loop {
            let record = classify::request_record(&request);
            let report = match inbox.write(&request.id.key(), seen.as_ref(), &record).await {
                Ok(()) => return Ok(request),
                // An earlier attempt reached a minority of the nodes. A leader found the request there, and has
                // already written its answer over it.
                Err(LedgerError::Standing(stored)) if stored.last => return Ok(request),
                Err(LedgerError::Standing(stored)) => {
                    seen = Some(stored);
                    continue;
                }
                Err(LedgerError::NoMajority(report)) => report,
                // Only a leader's own ledger has these errors. A write of a part has none of them.
                Err(LedgerError::Superseded { .. } | LedgerError::Stranded | LedgerError::Ended) => {
                    NoMajority::new(0, Vec::new())
                }
            };
            may_be_posted |= report.count(may_store_it) > 0;
            if env.now() >= deadline || report.is_permanent() {
                return Err(self.not_posted(&request, report, may_be_posted));
            }
            env.sleep(RETRY_EVERY).await;
        }
    }

    fn not_posted(&self, request: &JobRequest, report: NoMajority, may_be_posted: bool) -> JobsError {
        match may_be_posted {
            true => JobsError::PerhapsPosted { id: request.id, until: request.valid_until(), report },
            false => JobsError::NotPosted { report },
        }
    }

    async fn unanswered(&self, request: &JobRequest) -> JobsError {
        let leader = match Election::new(&self.quorum, &self.group).observe() {
            Ok(mut observer) => observer.leader().await.ok().flatten().map(|leader| leader.worker),
            Err(_) => None,
        };
        JobsError::Unanswered { id: request.id, leader, until: request.valid_until() }
    }
}

/// Returns whether a node may have stored the record. A node may have stored a record even if it did not
/// confirm the write, for example if its answer was lost.
fn may_store_it(outcome: &NodeOutcome) -> bool {
    match outcome {
        NodeOutcome::Granted | NodeOutcome::Pending | NodeOutcome::Done | NodeOutcome::Contended { .. } => {
            true
        }
        NodeOutcome::Unreachable(cause) => !matches!(
            cause,
            Cause::Unreachable(_) | Cause::Denied(_) | Cause::Misconfigured(_) | Cause::Stopped
        ),
        NodeOutcome::Untrusted(_) | NodeOutcome::Refused(_) => false,
    }
}
