use crate::access::{Access, AccessRules};
use quorate::election::Election;
use quorate_operator::state::{NodeSource, Watched};
use std::{sync::Arc, time::Duration};

/// The settings of the pages of one group. [`router`](crate::router) makes a router of them.
#[derive(Clone, Debug)]
pub struct Page {
    pub(crate) watched: Watched,
    pub(crate) access: AccessRules,
    pub(crate) sets: Vec<String>,
}

impl Page {
    /// Returns the settings for the quorum and the group of `election`. The process need not campaign.
    ///
    /// Every client of the router may read, and none may operate: see [`Page::check_token`],
    /// [`Page::closed`] and [`Viewer`](crate::Viewer).
    pub fn new(election: &Election) -> Self {
        Self {
            watched: Watched { election: election.clone(), ttl: None, jobs: true, source: None },
            access: AccessRules { open: true, check_token: None },
            sets: Vec::new(),
        }
    }

    /// Sets the TTL of the leader's lease. With it, the page shows how much of the lease is left as a bar.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.watched.ttl = Some(ttl);
        self
    }

    /// Leaves out the pages about jobs, for a group that has none.
    #[must_use]
    pub fn without_jobs(mut self) -> Self {
        self.watched.jobs = false;
        self
    }

    /// Lets viewers sign in with a token. `check` returns what the owner of a token may do, and must compare in
    /// constant time.
    #[must_use]
    pub fn check_token(mut self, check: impl Fn(&str) -> Option<Access> + Send + Sync + 'static) -> Self {
        self.access.check_token = Some(Arc::new(check));
        self
    }

    /// Refuses to show anything to a viewer who has not signed in, and whom no [`Viewer`](crate::Viewer) describes.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.access.open = false;
        self
    }

    /// Adds the facts about each node, and the messages of sets of claims.
    #[must_use]
    pub fn source(mut self, source: impl NodeSource) -> Self {
        self.watched.source = Some(Arc::new(source));
        self
    }

    /// Sets the names of the sets of claims that the page about messages suggests.
    #[must_use]
    pub fn sets<S: Into<String>>(mut self, sets: impl IntoIterator<Item = S>) -> Self {
        self.sets = sets.into_iter().map(Into::into).collect();
        self
    }
}
