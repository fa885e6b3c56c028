use super::{Leader, Observer};
use crate::{
    lease::request_release,
    node::{FencingToken, Owner},
    plain::plain,
    vote::NoMajority,
};
use std::time::Duration;

/// The most bytes of a worker's name that an error shows.
const NAME_MAX: usize = 200;

/// The time between two checks whether the leader has resigned.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The time for which a successor is awaited after that.
const SUCCESSOR: Duration = Duration::from_secs(1);
/// The time by which a resign request outlives the wait for it.
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
    /// Another term has begun since the one that was named.
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
    /// The leader goes on: it may be cut off from the nodes, be stuck, or not allow remote resignation.
    #[error("{}{} leads on after {waited:.1?}; it may be cut off, stuck, or not allow remote resignation", plain(&leader.worker, NAME_MAX), term_of(leader))]
    LeadsOn {
        /// The leader.
        leader: Leader,
        /// The time that was waited.
        waited: Duration,
    },
}

fn term_of(leader: &Leader) -> String {
    leader.term.map_or_else(String::new, |term| format!(", term {term}"))
}

/// The leadership as a majority reports it.
enum Seen {
    /// The leader, and the owner token of its lease.
    Leads(Owner, Leader),
    NoLeader,
    /// Only a minority names a holder: one that is being elected, or one of which too few nodes know.
    Unclear,
}

impl Observer {
    /// Asks the leader to resign, and waits up to `wait` for it to do so: its work is asked to stop, has its grace to end, and
    /// then the lease is released. With `term`, it asks only if that is the leader's term. The leader notices within half a
    /// second, or a tenth of its TTL where that is less.
    ///
    /// The request is stored on the nodes and applies to the current term only. It ends by itself a second after the wait. A
    /// leader that is cut off, is stuck, or does not allow it ([`Election::allow_remote_resign`](super::Election::allow_remote_resign))
    /// leads on. The group may elect the same worker again after its back-off, if no other candidate campaigns.
    ///
    /// Returns the leader that resigned, and the leader now, if one was elected within a second.
    ///
    /// # Errors
    /// [`ResignError`].
    ///
    /// # Cancel safety
    /// Dropping it leaves the request on the nodes, until it ends by itself.
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
        let lasts = wait + REQUEST_OUTLIVES_WAIT;
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
                // The next look may succeed.
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
