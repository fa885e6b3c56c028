//! The sessions of workers. A worker that works for a leader holds one lease, its *session*: a worker of a scheduler, and a
//! worker of a set of shards. Each session has a name of its own, so that it never begins again once it has ended. A worker
//! announces its session to the leader, in a part of the group's ledger.

use crate::{
    claim::ClaimData,
    config::SettingError,
    env::WallTime,
    lease::{AskOrder, AttemptResult, InspectTarget, Lease, LeaseParams, attempt_each_with, inspect_each},
    ledger::Answered,
    node::{FencingToken, Record, Resource},
    quorum::Quorum,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The state of a session, as the nodes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A majority names its worker.
    Held,
    /// No majority can name its worker.
    Free,
}

/// The sessions of one group.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    quorum: Quorum,
    group: Arc<str>,
    ttl: Duration,
    grace: Duration,
}

impl Sessions {
    pub(crate) fn new(quorum: &Quorum, group: &Arc<str>, ttl: Duration, grace: Duration) -> Self {
        Self { quorum: quorum.clone(), group: Arc::clone(group), ttl, grace }
    }

    /// Returns the states of `sessions` of this group (see [`look`](Self::look)).
    pub(crate) async fn look_at(&self, sessions: &[Arc<str>]) -> Vec<(Arc<str>, Seen)> {
        Self::look(&self.quorum, &self.group, sessions).await
    }

    /// Returns the duration of a session that is not extended.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Begins a session of this worker. Returns its name and its lease, or `None` if too few nodes grant it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease is released.
    pub(crate) async fn begin(&self) -> Option<(Arc<str>, Lease)> {
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
    pub(crate) async fn end(&self, session: &str) -> bool {
        let Some(lease) = self.acquire(session, false).await else { return false };
        // The lease is released in any case when its handle is dropped.
        let _ = lease.release().await;
        true
    }

    /// Returns the states of `sessions` that the nodes show. A session whose state is not known is left out.
    ///
    /// # Cancel safety
    /// Safe: the nodes change nothing.
    pub(crate) async fn look(quorum: &Quorum, group: &str, sessions: &[Arc<str>]) -> Vec<(Arc<str>, Seen)> {
        let seen = Self::look_long(quorum, group, sessions).await;
        seen.into_iter().map(|(session, seen, _)| (session, seen)).collect()
    }

    /// Returns the same as [`look`](Self::look), and for each session that is held the time after which it is over if it is not
    /// extended.
    ///
    /// # Cancel safety
    /// Safe: the nodes change nothing.
    pub(crate) async fn look_long(
        quorum: &Quorum,
        group: &str,
        sessions: &[Arc<str>],
    ) -> Vec<(Arc<str>, Seen, Option<Duration>)> {
        if sessions.is_empty() {
            return Vec::new();
        }
        let resources: Vec<Resource> =
            sessions.iter().map(|session| Resource::session(group, session)).collect();
        let nodes = quorum.pool().len();
        let looks = inspect_each(quorum.inner(), &resources).await;
        let seen = looks.into_iter().zip(sessions).filter_map(|(look, session)| {
            let look = look?;
            let seen = match look.whose(nodes) {
                InspectTarget::Nobody => Seen::Free,
                InspectTarget::Of(_) => Seen::Held,
                InspectTarget::Unknown => return None,
            };
            Some((Arc::clone(session), seen, look.remaining))
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

/// Returns the record of what a worker announces at `now`.
pub(crate) fn announcement(who: &impl Serialize, now: WallTime) -> Record {
    let value = serde_json::to_string(who).unwrap_or_default().into();
    Record { at: now.as_micros(), term: FencingToken::default(), last: false, value }
}

/// Returns the latest announcement of each session that the nodes have. One that this version cannot read is left out.
pub(crate) fn announced<T: DeserializeOwned>(answers: &[Answered]) -> Vec<(Arc<str>, T)> {
    let mut latest: BTreeMap<&Arc<str>, (u64, T)> = BTreeMap::new();
    for (session, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        let Ok(who) = serde_json::from_str(&record.value) else { continue };
        if latest.get(session).is_none_or(|(at, _)| *at < record.at) {
            latest.insert(session, (record.at, who));
        }
    }
    latest.into_iter().map(|(session, (_, who))| (Arc::clone(session), who)).collect()
}
