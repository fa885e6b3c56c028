use super::{Leader, Observer};
use crate::{
    lease::request_release,
    node::{FencingToken, Owner},
    plain::plain,
    vote::NoMajority,
};
use std::time::Duration;

/// The maximum number of bytes of a worker's name that an error shows.
const NAME_MAX: usize = 200;

/// The time between two checks by which [`Observer::ask_to_resign`] finds out whether the leader has
/// resigned.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest time to wait for a new leader after the old one has resigned.
const SUCCESSOR: Duration = Duration::from_secs(1);
/// The time for which a resign request stays on the nodes after the caller has stopped waiting.
const REQUEST_OUTLIVES_WAIT: Duration = Duration::from_secs(1);

/// The reason why no leader resigned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResignError {
    /// There is no leader.
    #[error("the group {group} has no leader")]
    NoLeader {
        /// The group.
        group: String,
    },
    /// Another term has begun after the term that the caller named.
    #[error("the term {asked} is over: {} leads{}", plain(&leader.worker, NAME_MAX), term_of(leader))]
    OtherTerm {
        /// The term that was named.
        asked: FencingToken,
        /// The leader now.
        leader: Leader,
    },
    /// Too few nodes answered, or too few accepted the resign request.
    #[error(transparent)]
    NoMajority(#[from] NoMajority),
    /// The leader did not resign within the wait. It may be cut off from the nodes, it may be stuck, or it may
    /// not allow remote resignation.
    #[error("{}{} leads on after {waited:.1?}; it may be cut off, stuck, or not allow remote resignation", plain(&leader.worker, NAME_MAX), term_of(leader))]
    LeadsOn {
        /// The leader.
        leader: Leader,
        /// The time for which the caller waited.
        waited: Duration,
    },
}

fn term_of(leader: &Leader) -> String {
    leader.term.map_or_else(String::new, |term| format!(", term {term}"))
}

/// The leadership, as the nodes reported it in one inspection.
enum Seen {
    /// The leader, and the owner token of its lease.
    Leads(Owner, Leader),
    NoLeader,
    /// Only a minority of the nodes names a holder. Either an election is in progress, or the nodes that know
    /// of a leader did not all answer.
    Unclear,
}

impl Observer {
    /// Asks the leader to resign, and waits up to `wait` until it has resigned. If `term` is given, the
    /// request is made only if `term` is the leader's present term.
    ///
    /// The nodes report such a request to the leader at once. Reports may be lost, so the leader also looks every 5 s (every TTL if that is shorter), or every
    /// fifth of its TTL (100 ms to 2 s) while the nodes have reported nothing to it: a shorter `wait` may miss the leader. When it finds one, it asks its work to stop within the grace period, and then
    /// releases its lease.
    ///
    /// The request is stored on the nodes and applies to the current term only. The request expires one
    /// second after `wait` has passed. A leader that is cut off, is stuck, or does not allow remote
    /// resignation ([`Election::allow_remote_resign`](super::Election::allow_remote_resign)) does not resign.
    /// If no other candidate campaigns, the group may elect the same worker again after its back-off.
    ///
    /// Returns the leader that resigned. Also returns the new leader, if one was elected within a second and
    /// within `wait`.
    ///
    /// # Errors
    /// [`ResignError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the request stays on the nodes until it expires.
    pub async fn ask_to_resign(
        &mut self,
        term: Option<FencingToken>,
        wait: Duration,
    ) -> Result<(Leader, Option<Leader>), ResignError> {
        let env = self.quorum.env().clone();
        let began = env.now();
        let mut first = self.holder().await?;
        while matches!(first, Seen::Unclear) && env.now() < began + wait {
            env.sleep(LOOK_EVERY).await;
            first = self.holder().await?;
        }
        let Seen::Leads(owner, who) = first else {
            let group = self.resource.key().trim_start_matches("election/").to_owned();
            return Err(ResignError::NoLeader { group });
        };
        if let Some(asked) = term.filter(|asked| who.term != Some(*asked)) {
            return Err(ResignError::OtherTerm { asked, leader: who });
        }
        let lasts = wait.saturating_add(REQUEST_OUTLIVES_WAIT);
        let accepted = request_release(self.quorum.inner(), &self.resource, &owner, lasts).await;
        accepted.map_err(|report| report.of("a majority of nodes did not accept the resign request"))?;
        let mut gone_at = None;
        loop {
            match self.holder().await {
                Ok(Seen::Leads(now, _)) if now == owner => {}
                Ok(Seen::Leads(_, successor)) => return Ok((who, Some(successor))),
                Ok(Seen::NoLeader) => gone_at = gone_at.or(Some(env.now())),
                Ok(Seen::Unclear) => {}
                Err(error) if error.is_permanent() => return Err(error.into()),
                // A temporary error is ignored, because the next inspection may succeed.
                Err(_) => {}
            }
            match gone_at {
                Some(gone) if env.now() >= (gone + SUCCESSOR).min((began + wait).max(gone)) => {
                    return Ok((who, None));
                }
                None if env.now() >= began + wait => {
                    return Err(ResignError::LeadsOn { leader: who, waited: wait });
                }
                _ => env.sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn holder(&self) -> Result<Seen, NoMajority> {
        let seen = self.quorum.inspect(&self.resource).await?;
        let contended = seen.contended;
        let Some(owner) = seen.holder.filter(|owner| owner.reserved_for().is_none()) else {
            return Ok(if contended { Seen::Unclear } else { Seen::NoLeader });
        };
        let leader = Leader {
            worker: owner.worker().into(),
            term: seen.token,
            seen_since: self.quorum.env().wall(),
            remaining: seen.remaining,
        };
        Ok(Seen::Leads(owner, leader))
    }
}
