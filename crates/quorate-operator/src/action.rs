use crate::{
    ActionError, Verb,
    answer::Done,
    error::{NAME_MAX, TEXT_MAX},
    operator::{Entry, Operator},
};
use quorate::{
    Claims, FencingToken,
    claim::ClaimState,
    election::{Election, ResignError},
    internals::JobAction,
    plain::plain,
    quorum::Quorum,
    scheduler::Jobs,
};
use std::time::Duration;

/// An action of an operator, with its target.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A request to the leader, about one job or all jobs of the group.
    Job(JobAction),
    /// Make the leader of the group resign, if it leads this term.
    Resign {
        /// The term; `None` for any.
        term: Option<FencingToken>,
    },
    /// Make a message that was given up count as new.
    Reset {
        /// The set of claims.
        set: String,
        /// The message.
        id: String,
    },
}

impl Action {
    /// Returns the kind of the action.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Job(what) => Verb::of(what),
            Self::Resign { .. } => Verb::Resign,
            Self::Reset { .. } => Verb::Reset,
        }
    }

    /// Returns the target for people: a job, a message, or the group.
    pub fn target(&self, group: &str) -> String {
        match self {
            Self::Job(what) if !what.job().is_empty() => plain(what.job(), NAME_MAX),
            Self::Reset { set, id } => plain(&format!("{set}/{id}"), NAME_MAX * 2),
            Self::Job(_) | Self::Resign { .. } => plain(group, NAME_MAX),
        }
    }

    /// Checks that the target exists. The check only reads: if the list of nodes is mistyped, it finds no target, and
    /// nothing is written to these nodes.
    ///
    /// # Errors
    /// There is no such target, or the times of the action cannot be used, or too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn check(&self, quorum: &Quorum, group: &str) -> Result<(), ActionError> {
        match self {
            Self::Job(what) => {
                let jobs = Jobs::new(quorum, group)?;
                Jobs::check_times(what, quorum.wall())?;
                match what {
                    JobAction::Put { .. } => return Ok(jobs.check_reachable().await?),
                    JobAction::Remove { job, .. } => return Ok(jobs.check_stored(job).await?),
                    _ => {}
                }
                if !what.job().is_empty() {
                    return Ok(jobs.check_exists(what.job()).await?);
                }
                match jobs.list().await?.is_empty() {
                    true => Err(ActionError::NoJobs(plain(group, NAME_MAX))),
                    false => Ok(()),
                }
            }
            Self::Resign { .. } => {
                let leader = Election::new(quorum, group).observe()?.leader().await;
                match leader.map_err(ResignError::NoMajority)? {
                    Some(_) => Ok(()),
                    None => Err(ResignError::NoLeader { group: group.to_owned() }.into()),
                }
            }
            Self::Reset { set, id } => match Claims::new(quorum, set.as_str()).inspect(id).await? {
                ClaimState::Free { attempts: 0, payload: None } => {
                    let (set, id) = (plain(set, TEXT_MAX), plain(id, TEXT_MAX));
                    Err(ActionError::NoMessage { set, id })
                }
                _ => Ok(()),
            },
        }
    }

    /// Carries the action out, and enters it in the audit list. The target must [exist](Self::check). `wait` is the
    /// longest wait for the leader.
    ///
    /// # Cancel safety
    /// If the future is dropped, the action may have been carried out, or may still be.
    pub async fn carry_out(&self, quorum: &Quorum, group: &str, by: &Operator, wait: Duration) -> Done {
        match self {
            // The leader enters it in the audit list.
            Self::Job(what) => {
                let answer = async {
                    let jobs = Jobs::new(quorum, group)?;
                    jobs.requester(&by.by).wait(wait).send(what.clone()).await
                };
                Done::of_request(group, what, answer.await)
            }
            Self::Resign { term } => {
                let result = match Election::new(quorum, group).observe() {
                    Ok(mut observer) => {
                        observer.ask_to_resign(*term, wait).await.map_err(ActionError::Resign)
                    }
                    Err(error) => Err(ActionError::Group(error)),
                };
                let audited = match &result {
                    Ok((leader, _)) => Ok(format!("{} resigned", plain(&leader.worker, NAME_MAX))),
                    Err(error @ ActionError::Resign(ResignError::LeadsOn { .. })) => Err(error.to_string()),
                    // There was no leader that it could be sent to.
                    Err(_) => return Done::of_resignation(group, result, None),
                };
                let target = format!("election/{group}");
                let unaudited = note(quorum, by, ("resign", &target, Some(group)), &audited).await;
                Done::of_resignation(group, result, unaudited)
            }
            Self::Reset { set, id } => {
                let result = Claims::new(quorum, set.as_str()).reset(id).await.map(drop);
                let audited = match &result {
                    Ok(()) => Ok("counts as new".to_owned()),
                    Err(error) => Err(plain(&error.to_string(), TEXT_MAX)),
                };
                let target = format!("claim/{set}/{id}");
                let unaudited = note(quorum, by, ("claims-reset", &target, None), &audited).await;
                Done::of_reset((set, id), result, unaudited)
            }
        }
    }
}

async fn note(
    quorum: &Quorum,
    by: &Operator,
    (action, target, group): (&str, &str, Option<&str>),
    result: &Result<String, String>,
) -> Option<String> {
    let result = result.as_deref().map_err(String::as_str);
    by.note(quorum, &Entry { action, target, group, result }).await.err()
}
