use crate::{
    env::WallTime,
    lease::InspectError,
    node::{FencingToken, Resource},
    quorum::Quorum,
};
use std::{sync::Arc, time::Duration};

/// How often an observer looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Watches who leads, without competing. What it says was true a moment ago.
#[derive(Debug)]
pub struct Observer {
    pub(super) quorum: Quorum,
    pub(super) resource: Resource,
    last: Option<Leader>,
    looked: bool,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq)]
pub struct Leader {
    /// The worker's name, from its owner token.
    pub worker: Arc<str>,
    /// The term, once a majority has counted it.
    pub term: Option<FencingToken>,
    /// When this observer first saw it lead, by its own wall clock.
    pub seen_since: WallTime,
    /// How long it leads yet, if it extends no more.
    pub remaining: Option<Duration>,
}

impl Observer {
    pub(super) fn new(quorum: Quorum, resource: Resource) -> Self {
        Self { quorum, resource, last: None, looked: false }
    }

    /// Who leads now.
    ///
    /// # Errors
    /// [`InspectError`] where fewer than a majority answered.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn leader(&mut self) -> Result<Option<Leader>, InspectError> {
        let seen = self.quorum.inspect(&self.resource).await?;
        // What is kept for an heir nobody leads yet.
        let holder = seen.holder.filter(|holder| holder.owner.reserved_for().is_none());
        let leader = holder.map(|holder| {
            let worker: Arc<str> = holder.owner.worker().into();
            let same = self.last.as_ref().filter(|last| last.worker == worker && last.term == seen.token);
            let seen_since = same.map_or_else(|| self.quorum.env().wall(), |last| last.seen_since);
            Leader { worker, term: seen.token, seen_since, remaining: holder.remaining }
        });
        self.last.clone_from(&leader);
        Ok(leader)
    }

    /// Waits until another leader or term is seen than the last one told, or none any more. The first call
    /// gives what is seen first.
    ///
    /// # Errors
    /// [`InspectError`] where fewer than a majority answered; call it again to go on.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    pub async fn change(&mut self) -> Result<Option<Leader>, InspectError> {
        let key = |leader: &Option<Leader>| leader.as_ref().map(|l| (Arc::clone(&l.worker), l.term));
        loop {
            let before = key(&self.last);
            let now = self.leader().await?;
            if !std::mem::replace(&mut self.looked, true) || key(&now) != before {
                return Ok(now);
            }
            let env = self.quorum.env();
            env.sleep(LOOK_EVERY).await;
        }
    }
}
