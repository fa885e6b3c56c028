use super::{
    agreement::ReceiverClaims,
    client::Client,
    message::{Message, event_of},
    queue::{Counts, ReceiverQueue},
};
use crate::config::{Config, JobConfig, NotifyConfig, NotifyEvent};
use futures_util::future::join_all;
use quorate::{
    quorum::Quorum,
    scheduler::{Job, JobAlert, Scheduler},
};
use std::{collections::BTreeMap, fmt, io, sync::Arc, time::Duration};

/// The receivers of notifications, with their tasks. Clones share them; the last one ends the tasks.
#[derive(Clone, Debug)]
pub(crate) struct Notices(pub(super) Arc<Inner>);

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
            let agreement = ReceiverClaims::new(quorum, group, notify);
            ReceiverQueue::start(quorum.env(), notify, &client, agreement)
        };
        Ok(Some(Self(Arc::new(Inner {
            group: Arc::clone(group),
            worker: Arc::clone(&config.settings.worker),
            receivers: config.notify.iter().map(start).collect(),
            counts: NotifyEvent::ALL.map(|event| (event.as_str(), Counts::new(event.as_str()))).into(),
        }))))
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

    /// Lets the receivers be notified of alerts of the jobs on the nodes.
    pub(crate) fn attach_stored(&self, scheduler: Scheduler) -> Scheduler {
        let notices = self.clone();
        scheduler.on_stored_alert(move |alert: JobAlert| {
            let notices = notices.clone();
            async move { notices.send_alert(&alert).await }
        })
    }

    pub(super) async fn send_alert(&self, alert: &JobAlert) {
        let Some(event) = event_of(alert.kind) else { return };
        let message = Message::of_job(&self.0.group, &self.0.worker, alert);
        let wants = |receiver: &NotifyConfig| {
            // A job that runs on every worker reports the alerts of each as those of the job `JOB@WORKER`.
            let whole = alert.job.split('@').next().unwrap_or(&alert.job);
            let jobs = receiver.jobs.as_ref();
            receiver.on.contains(&event) && jobs.is_none_or(|jobs| jobs.contains(whole))
        };
        self.send(event, wants, &message).await;
    }

    /// Sends the message that there has been no leader for `after` to the receivers with this `no_leader_after`.
    pub(super) async fn send_no_leader(&self, after: Duration, message: &Message) {
        let wants = |receiver: &NotifyConfig| absence(receiver) == Some(after);
        self.send(NotifyEvent::NoLeader, wants, message).await;
    }

    /// Sends a message to the receivers that want it, and waits until each has got it or is given up.
    async fn send(&self, event: NotifyEvent, wants: impl Fn(&NotifyConfig) -> bool, message: &Message) {
        let receivers = self.0.receivers.iter().filter(|receiver| wants(&receiver.config));
        let sends = receivers.map(|receiver| receiver.send(message.clone()));
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

/// Returns the time without a leader after which the receiver is notified, if it is notified of that event.
pub(super) fn absence(receiver: &NotifyConfig) -> Option<Duration> {
    receiver.on.contains(&NotifyEvent::NoLeader).then_some(receiver.no_leader_after)
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("receivers", &self.receivers.len()).finish_non_exhaustive()
    }
}
