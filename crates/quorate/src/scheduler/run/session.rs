//! The sessions of workers. A worker that executes runs for a leader holds one lease, its *session*. Each session has a name
//! of its own, so that it never begins again once it has ended.

use super::assign::Seen;
use crate::{
    claim::ClaimData,
    config::SettingError,
    lease::{AskOrder, AttemptResult, InspectTarget, Lease, LeaseParams, attempt_each_with, inspect_each},
    node::Resource,
    quorum::Quorum,
};
use std::{sync::Arc, time::Duration};

/// The sessions of one group.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Sessions {
    quorum: Quorum,
    group: Arc<str>,
    ttl: Duration,
    grace: Duration,
}

impl Sessions {
    pub(in crate::scheduler) fn new(
        quorum: &Quorum,
        group: &Arc<str>,
        ttl: Duration,
        grace: Duration,
    ) -> Self {
        Self { quorum: quorum.clone(), group: Arc::clone(group), ttl, grace }
    }

    /// Returns the states of `sessions` of this group (see [`look`](Self::look)).
    pub(in crate::scheduler) async fn look_at(&self, sessions: &[Arc<str>]) -> Vec<(Arc<str>, Seen)> {
        Self::look(&self.quorum, &self.group, sessions).await
    }

    pub(in crate::scheduler) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Begins a session of this worker. Returns its name and its lease, or `None` if too few nodes grant it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease is released.
    pub(in crate::scheduler) async fn begin(&self) -> Option<(Arc<str>, Lease)> {
        let (worker, random) = (&self.quorum.config().worker, self.quorum.env().random());
        let session: Arc<str> = format!("{worker}/{random:016x}").into();
        let lease = self.acquire(&session, true).await?;
        Some((session, lease))
    }

    /// Makes sure that a session has ended: acquires its lease, and releases it. From then on no extension of the session
    /// counts. Returns false if its worker may still hold it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease is released.
    pub(in crate::scheduler) async fn end(&self, session: &str) -> bool {
        let Some(lease) = self.acquire(session, false).await else { return false };
        // The lease is released in any case when its handle is dropped.
        let _ = lease.release().await;
        true
    }

    /// Returns the states of `sessions` that the nodes show. A session whose state is not known is left out.
    ///
    /// # Cancel safety
    /// Safe: the nodes change nothing.
    pub(in crate::scheduler) async fn look(
        quorum: &Quorum,
        group: &str,
        sessions: &[Arc<str>],
    ) -> Vec<(Arc<str>, Seen)> {
        if sessions.is_empty() {
            return Vec::new();
        }
        let resources: Vec<Resource> =
            sessions.iter().map(|session| Resource::session(group, session)).collect();
        let nodes = quorum.pool().len();
        let looks = inspect_each(quorum.inner(), &resources).await;
        let seen = looks.into_iter().zip(sessions).filter_map(|(look, session)| {
            let seen = match look?.whose(nodes) {
                InspectTarget::Nobody => Seen::Free,
                InspectTarget::Of(_) => Seen::Held,
                InspectTarget::Unknown => return None,
            };
            Some((Arc::clone(session), seen))
        });
        seen.collect()
    }

    async fn acquire(&self, session: &str, extended: bool) -> Option<Lease> {
        let params = self.params(extended).ok()?;
        let (resource, data) =
            (Resource::session(&self.group, session), ClaimData::new(self.quorum.config()));
        let inner = self.quorum.inner();
        match attempt_each_with(inner, &[resource], params, &data, AskOrder::All).await.pop()? {
            AttemptResult::Held(lease, _) => Some(lease),
            AttemptResult::Lost(_) | AttemptResult::Closed => None,
        }
    }

    /// The fencing counter of a session is needed only while a request of its worker may be under way.
    fn params(&self, extended: bool) -> Result<LeaseParams, SettingError> {
        let config = self.quorum.config();
        let params = LeaseParams::checked(config, self.ttl, Some(self.grace), None, extended)?;
        Ok(LeaseParams { keep: config.reseed_after().max(self.ttl * 2), ..params })
    }
}
