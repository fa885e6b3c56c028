//! The tasks that watch whether there is a leader.

use super::{
    hook::{Notices, absence},
    no_leader, overdue,
};
use crate::config::{NotifyConfig, NotifyEvent};
use quorate::{election::Election, env::ScopedTask, quorum::Quorum};
use std::{collections::BTreeSet, time::Duration};

impl Notices {
    /// Starts the tasks that watch whether there is a leader: one for each `no_leader_after` of the receivers, and one
    /// that reports overdue jobs if there has been none for two of its TTLs.
    pub(crate) fn watch_leader(
        &self,
        quorum: &Quorum,
        election: &Election,
        ttl: Duration,
    ) -> Vec<ScopedTask<()>> {
        let configs = self.0.receivers.iter().map(|receiver| &*receiver.config);
        let start = |after| {
            let watch = no_leader::watch(quorum.clone(), election.clone(), self.clone(), after);
            quorum.env().spawn_scoped(watch)
        };
        let mut tasks: Vec<_> = absences(configs).into_iter().map(start).collect();
        if self.0.receivers.iter().any(|receiver| receiver.config.on.contains(&NotifyEvent::Overdue)) {
            let watch = overdue::watch(quorum.clone(), election.clone(), self.clone(), ttl * 2);
            tasks.push(quorum.env().spawn_scoped(watch));
        }
        tasks
    }
}

/// Returns the times without a leader after which receivers are notified, each once.
fn absences<'a>(receivers: impl Iterator<Item = &'a NotifyConfig>) -> BTreeSet<Duration> {
    receivers.filter_map(absence).collect()
}
