use super::{
    agreement::Agreement,
    client::Client,
    message::{Message, event_of},
    no_leader,
    queue::{Counts, ReceiverQueue},
};
use crate::config::{Config, JobConfig, NotifyEvent};
use futures_util::future::join_all;
use quorate::{
    election::Election,
    env::ScopedTask,
    quorum::Quorum,
    scheduler::{Job, JobAlert},
};
use std::{collections::BTreeMap, fmt, io, sync::Arc};

/// The receivers of notifications, with their tasks. Clones share them; the last one ends the tasks.
#[derive(Clone, Debug)]
pub(crate) struct Notices(Arc<Inner>);

pub(super) struct Inner {
    pub(super) group: Arc<str>,
    pub(super) worker: Arc<str>,
    pub(super) receivers: Vec<ReceiverQueue>,
    counts: BTreeMap<&'static str, Counts>,
}

impl Notices {
    /// Starts the queues of all receivers. Returns `None` if the configuration has no `[[notify]]`.
    pub(crate) fn start(quorum: &Quorum, group: &Arc<str>, config: &Config) -> io::Result<Option<Self>> {
        if config.notify.is_empty() {
            return Ok(None);
        }
        let client = Client::start()?;
        let start = |notify| {
            let agreement = Agreement::new(quorum, group, notify);
            ReceiverQueue::start(quorum.env(), notify, &client, agreement)
        };
        Ok(Some(Self(Arc::new(Inner {
            group: Arc::clone(group),
            worker: Arc::clone(&config.settings.worker),
            receivers: config.notify.iter().map(start).collect(),
            counts: NotifyEvent::ALL.map(|event| (event.as_str(), Counts::new(event.as_str()))).into(),
        }))))
    }

    /// Starts the task that watches whether there is a leader, if a receiver wants to know.
    pub(crate) fn watch_leader(&self, quorum: &Quorum, election: &Election) -> Option<ScopedTask<()>> {
        let wants = |receiver: &&ReceiverQueue| receiver.config.on.contains(&NotifyEvent::NoLeader);
        let after =
            self.0.receivers.iter().filter(wants).map(|receiver| receiver.config.no_leader_after).min()?;
        let watch = no_leader::watch(quorum.clone(), election.clone(), self.clone(), after);
        Some(quorum.env().spawn_scoped(watch))
    }

    /// Returns `job` with the function that notifies the receivers of its alerts. A job of which no receiver is
    /// notified gets none.
    pub(crate) fn attach(&self, config: &JobConfig, job: Job) -> Job {
        let of_job = |receiver: &ReceiverQueue| {
            let jobs = &receiver.config.jobs;
            jobs.as_ref().is_none_or(|jobs| jobs.contains(&config.name))
                && receiver.config.on.iter().any(|event| *event != NotifyEvent::NoLeader)
        };
        if !self.0.receivers.iter().any(of_job) {
            return job;
        }
        let notices = self.clone();
        job.on_alert(move |alert: JobAlert| {
            let notices = notices.clone();
            async move { notices.send_alert(&alert).await }
        })
    }

    async fn send_alert(&self, alert: &JobAlert) {
        let Some(event) = event_of(alert.kind) else { return };
        let message = Message::of_job(&self.0.group, &self.0.worker, alert);
        self.send(event, Some(&alert.job), &message).await;
    }

    /// Sends a message to all receivers of the event, and waits until each has got it or is given up.
    pub(super) async fn send(&self, event: NotifyEvent, job: Option<&Arc<str>>, message: &Message) {
        let wants = |receiver: &&ReceiverQueue| {
            let jobs = receiver.config.jobs.as_ref();
            let of_job = job.is_none_or(|job| jobs.is_none_or(|jobs| jobs.contains(job)));
            receiver.config.on.contains(&event) && of_job
        };
        let sends = self.0.receivers.iter().filter(wants).map(|receiver| receiver.send(message.clone()));
        for outcome in join_all(sends).await {
            if let Some(counts) = self.0.counts.get(event.as_str()) {
                counts.count(outcome);
            }
        }
    }

    pub(super) fn group(&self) -> &Arc<str> {
        &self.0.group
    }

    pub(super) fn worker(&self) -> &Arc<str> {
        &self.0.worker
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("receivers", &self.receivers.len()).finish_non_exhaustive()
    }
}
