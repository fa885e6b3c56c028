//! A leader that is asked to resign.

use super::{Leader, Observer};
use crate::{
    lease::{InspectError, ask_to_let_go},
    node::{FencingToken, Owner},
    plain::plain,
    vote::Report,
};
use std::time::Duration;

/// The most bytes of a worker's name that an error shows.
const NAME_MAX: usize = 200;

/// How often it is looked whether the leader has gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a successor is waited for once it has.
const SUCCESSOR: Duration = Duration::from_secs(1);
/// A wish lasts longer than it is waited for by this.
const WISH_LASTS: Duration = Duration::from_secs(1);

/// What came of [`Observer::ask_to_resign`].
#[derive(Clone, Debug, PartialEq)]
pub struct Resigned {
    /// Who led, and does no more.
    pub who: Leader,
    /// Who leads now, if anybody did within a second after.
    pub successor: Option<Leader>,
}

/// Why nobody resigned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResignError {
    /// There is no leader.
    #[error("nobody leads {group}")]
    NobodyLeads {
        /// Which group.
        group: String,
    },
    /// Another term has begun than the one that was named.
    #[error("the term {asked} is over: {} leads{}", plain(&leader.worker, NAME_MAX), term_of(leader))]
    OtherTerm {
        /// The term that was named.
        asked: FencingToken,
        /// Who leads now.
        leader: Leader,
    },
    /// Too few nodes answered.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// Too few nodes took the wish.
    #[error("too few nodes took the wish: {report}")]
    NotTold {
        /// What each node said.
        report: Report,
    },
    /// It leads on: it may be cut off from the nodes, or not obey.
    #[error("{}{} leads on after {waited:.1?}; it may be cut off, stuck, or told not to obey", plain(&leader.worker, NAME_MAX), term_of(leader))]
    NotObeyed {
        /// Who.
        leader: Leader,
        /// For how long it was waited for.
        waited: Duration,
    },
}

fn term_of(leader: &Leader) -> String {
    leader.term.map_or_else(String::new, |term| format!(", term {term}"))
}

/// What a majority says of the leadership.
enum Seen {
    /// Who leads, and what signs its lease.
    Leads(Owner, Leader),
    Nobody,
    /// A minority names somebody: one who is being elected, or one of whom too few nodes could tell.
    Unclear,
}

impl Observer {
    /// Asks the leader to resign, and waits up to `wait` for it to go: its work is told to stop, has its grace to
    /// end, and then the lease is released. With `term`, only if that is its term. The leader hears within half a
    /// second, or a tenth of its TTL where that is less.
    ///
    /// The wish is written on the nodes, bound to this one tenure: it never concerns a later leader, and ends by
    /// itself a second after the wait. A leader that is cut off, stuck, or told not to obey
    /// ([`Election::allow_remote_resign`](super::Election::obeys_resign)) leads on. The group may elect the same worker
    /// again after its back-off, if no other campaigns.
    ///
    /// # Errors
    /// [`ResignError`].
    ///
    /// # Cancel safety
    /// Dropping it leaves the wish standing, until it ends by itself.
    pub async fn ask_to_resign(
        &mut self,
        term: Option<FencingToken>,
        wait: Duration,
    ) -> Result<Resigned, ResignError> {
        let env = self.quorum.env().clone();
        let began = env.now();
        let mut first = self.holder().await?;
        while matches!(first, Seen::Unclear) && env.now() < began + wait {
            env.sleep(LOOK_EVERY).await;
            first = self.holder().await?;
        }
        let Seen::Leads(owner, who) = first else {
            let group = self.resource.key().trim_start_matches("election/").to_owned();
            return Err(ResignError::NobodyLeads { group });
        };
        if let Some(asked) = term.filter(|asked| who.term != Some(*asked)) {
            return Err(ResignError::OtherTerm { asked, leader: who });
        }
        let told = ask_to_let_go(self.quorum.inner(), &self.resource, &owner, wait + WISH_LASTS).await;
        told.map_err(|report| ResignError::NotTold { report })?;
        let mut gone_at = None;
        loop {
            match self.holder().await {
                Ok(Seen::Leads(now, _)) if now == owner => {}
                Ok(Seen::Leads(_, successor)) => return Ok(Resigned { who, successor: Some(successor) }),
                Ok(Seen::Nobody) => gone_at = gone_at.or(Some(env.now())),
                Ok(Seen::Unclear) => {}
                Err(error) if error.is_permanent() => return Err(error.into()),
                // A look that fails otherwise is no answer: the next may be one.
                Err(_) => {}
            }
            match gone_at {
                Some(gone) if env.now() >= (gone + SUCCESSOR).min((began + wait).max(gone)) => {
                    return Ok(Resigned { who, successor: None });
                }
                None if env.now() >= began + wait => {
                    return Err(ResignError::NotObeyed { leader: who, waited: wait });
                }
                _ => env.sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn holder(&self) -> Result<Seen, InspectError> {
        let seen = self.quorum.inspect(&self.resource).await?;
        let contended = seen.contended;
        let Some(holder) = seen.holder.filter(|holder| holder.owner.reserved_for().is_none()) else {
            return Ok(if contended { Seen::Unclear } else { Seen::Nobody });
        };
        let leader = Leader {
            worker: holder.owner.worker().into(),
            term: seen.token,
            seen_since: self.quorum.env().wall(),
            remaining: holder.remaining,
        };
        Ok(Seen::Leads(holder.owner, leader))
    }
}
