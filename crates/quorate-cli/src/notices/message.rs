use crate::{config::NotifyEvent, time::rfc3339};
use quorate::{
    env::WallTime,
    plain::plain,
    scheduler::{AlertKind, JobAlert},
};
use serde::Serialize;
use std::sync::Arc;

/// The longest reason in a message, in bytes.
const REASON_MAX: usize = 600;
/// The longest name in a message, in bytes.
const NAME_MAX: usize = 200;

/// A notification, as a command gets it on its standard input and a webhook in its body.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    /// Identifies the event. A notification that is sent again has the same id.
    pub(super) id: String,
    pub(super) event: &'static str,
    pub(super) group: String,
    /// The job; `null` for `no-leader`.
    pub(super) job: Option<String>,
    /// The time of the event: the tick of the run, or the beginning of the state.
    pub(super) time: String,
    pub(super) reason: String,
    /// The worker that sends the message.
    pub(super) worker: String,
    /// The message in one line.
    pub(super) text: String,
}

/// The event of an alert; `None` for a kind that this version does not know.
pub(super) fn event_of(kind: AlertKind) -> Option<NotifyEvent> {
    match kind {
        AlertKind::Failed => Some(NotifyEvent::Failed),
        AlertKind::Recovered => Some(NotifyEvent::Recovered),
        AlertKind::Overdue => Some(NotifyEvent::Overdue),
        AlertKind::Paused => Some(NotifyEvent::Paused),
        _ => None,
    }
}

impl Message {
    pub(super) fn of_job(group: &str, worker: &Arc<str>, alert: &JobAlert) -> Self {
        let (group, job) = (plain(group, NAME_MAX), plain(&alert.job, NAME_MAX));
        let (event, time) = (alert.kind.as_str(), rfc3339(alert.at));
        let reason = plain(&alert.reason, REASON_MAX);
        let what = match alert.kind {
            AlertKind::Failed => format!("job {job} of group {group} failed at {time}"),
            AlertKind::Recovered => format!("job {job} of group {group} succeeded again at {time}"),
            _ => format!("job {job} of group {group} is {event} since {time}"),
        };
        let text = if reason.is_empty() { what } else { format!("{what}: {reason}") };
        let id = format!("{group}/{job}/{event}/{}", alert.at.as_micros());
        Self { id, event, group, job: Some(job), time, reason, worker: plain(worker, NAME_MAX), text }
    }

    /// Returns the message that there has been no leader since `since`. `id` distinguishes the times without one.
    pub(super) fn no_leader(group: &str, worker: &str, since: WallTime, id: &str, reason: &str) -> Self {
        let (group, worker, time) = (plain(group, NAME_MAX), plain(worker, NAME_MAX), rfc3339(since));
        let (event, reason) = (NotifyEvent::NoLeader.as_str(), plain(reason, REASON_MAX));
        let text = format!("group {group} has no leader since {time}, no job starts: {reason}");
        Self { id: format!("{group}/no-leader/{id}"), event, group, job: None, time, reason, worker, text }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_without_control_characters_and_says_what_happened() {
        let at = WallTime::from_micros(1_800_000_000_000_000);
        let alert: JobAlert = serde_json::from_value(serde_json::json!({
            "job": "j\u{1b}[2J", "kind": "failed", "at": at, "reason": "exit\nstatus 1"
        }))
        .unwrap();
        let message = Message::of_job("g", &"w".into(), &alert);
        let json = message.to_json();
        assert!(message.text.starts_with("job j"), "{json}");
        assert!(message.text.contains("of group g failed at 2027-01-15T08:00:00Z: exit"), "{json}");
        assert!(!json.contains(quorate::plain::steers) && !message.text.contains('\n'), "{json}");
        assert_eq!(
            message.id,
            Message::of_job("g", &"other".into(), &alert).id,
            "another worker sends it again"
        );
        let none = Message::no_leader("g", "w", at, "7", "1 of 3 nodes vote, 2 required");
        assert_eq!((none.event, none.job.is_none(), &*none.id), ("no-leader", true, "g/no-leader/7"));
    }
}
