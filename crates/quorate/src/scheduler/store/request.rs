use crate::{
    env::WallTime,
    plain::plain,
    scheduler::{
        job::{JobDefinition, Payload, RequestId},
        store::REASON_MAX,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// A request to the leader, as the inbox stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The id.
    pub id: RequestId,
    /// The requester: the name of a worker, or USER@HOST.
    pub by: Arc<str>,
    /// The time of the request.
    pub at: WallTime,
    /// The time after `at` within which a leader may accept the request. Stored in milliseconds.
    #[serde(with = "crate::scheduler::wire::millis")]
    pub valid_for: Duration,
    /// The action.
    pub what: JobAction,
}

/// The longest validity of a request. The record of its answer is kept for a limited time, and the request must
/// not be valid after that.
pub(in crate::scheduler) const VALID_MAX: Duration = Duration::from_secs(1800);

impl JobRequest {
    /// Returns the time until which a leader may accept the request.
    pub(in crate::scheduler) fn valid_until(&self) -> WallTime {
        self.at + self.valid_for.min(VALID_MAX)
    }
}

/// An action on a job, or on all jobs of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum JobAction {
    /// Pauses the job: every leader skips its ticks until the pause ends or the job is resumed.
    Pause {
        /// The job.
        job: Arc<str>,
        /// The reason, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
        /// The time at which the pause ends; `None` if the job stays paused until it is resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<WallTime>,
    },
    /// Skips the ticks of all jobs of the group until a time, under every leader.
    Freeze {
        /// The reason, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
        /// The time at which the freeze ends.
        until: WallTime,
    },
    /// Ends the freeze of the group.
    Unfreeze,
    /// Resumes the job: its ticks run again from now on.
    Resume {
        /// The job.
        job: Arc<str>,
    },
    /// Runs the job once now, in addition to its schedule.
    Trigger {
        /// The job.
        job: Arc<str>,
        /// The payload of the run. Without it, the run has that of the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<Payload>,
    },
    /// Stores jobs on the nodes, in place of earlier ones of the same names.
    Put {
        /// The first job. The definitions count; this is for people.
        job: Arc<str>,
        /// The definitions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        definitions: Vec<DefinitionText>,
        /// The version that must be stored now. `None` if that does not matter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expect: Option<Expect>,
    },
    /// Removes a job from the nodes.
    Remove {
        /// The job.
        job: Arc<str>,
        /// The version that must be stored now. `None` if that does not matter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expect: Option<Expect>,
    },
    /// Runs the job once for each tick in the span, the oldest first. Ticks that have run before run again.
    Backfill {
        /// The job.
        job: Arc<str>,
        /// The beginning of the span, included.
        from: WallTime,
        /// The end of the span, excluded.
        until: WallTime,
    },
    /// Cancels the run of one tick. Without a tick, cancels the active runs whose ticks are due, and the
    /// requested runs that have not started.
    Cancel {
        /// The job.
        job: Arc<str>,
        /// The tick whose run must be cancelled. `None` for all active runs whose ticks are due, and all
        /// requested runs that have not started.
        tick: Option<WallTime>,
    },
}

/// The JSON of a definition, which a leader of another version may not understand.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DefinitionText(Arc<str>);

/// The version of a stored job that the requester of a change has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// No job of this name is stored.
    Absent,
    /// The job as this request has stored it.
    Version(RequestId),
}

impl DefinitionText {
    /// Returns the text of a definition.
    pub fn new(definition: &JobDefinition) -> Self {
        Self(definition.to_text())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The payload may be personal data, so a log has only the length.
impl fmt::Debug for DefinitionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl JobAction {
    /// Returns the action that runs a job once now.
    pub fn trigger(job: impl Into<Arc<str>>) -> Self {
        Self::Trigger { job: job.into(), payload: None }
    }

    /// Returns the action without payloads and definitions, for the audit list.
    pub(in crate::scheduler) fn without_content(&self) -> Self {
        match self.clone() {
            Self::Trigger { job, .. } => Self::Trigger { job, payload: None },
            Self::Put { job, expect, .. } => Self::Put { job, definitions: Vec::new(), expect },
            other => other,
        }
    }

    /// Returns the action that pauses a job until it is resumed.
    pub fn pause(job: impl Into<Arc<str>>) -> Self {
        Self::Pause { job: job.into(), reason: None, until: None }
    }

    /// Returns the action with a reason that is plain, and short enough for a record.
    pub(in crate::scheduler) fn shown(self) -> Self {
        let shown = |reason: Arc<str>| plain(&reason, REASON_MAX).into();
        match self {
            Self::Pause { job, reason, until } => Self::Pause { job, reason: reason.map(shown), until },
            Self::Freeze { reason, until } => Self::Freeze { reason: reason.map(shown), until },
            other => other,
        }
    }

    /// Returns the name of the job. It is empty for an action on all jobs of the group.
    pub fn job(&self) -> &Arc<str> {
        static ALL: LazyLock<Arc<str>> = LazyLock::new(|| "".into());
        match self {
            Self::Freeze { .. } | Self::Unfreeze => &ALL,
            Self::Pause { job, .. }
            | Self::Resume { job }
            | Self::Trigger { job, .. }
            | Self::Put { job, .. }
            | Self::Remove { job, .. }
            | Self::Backfill { job, .. }
            | Self::Cancel { job, .. } => job,
        }
    }
}

/// For the log: what is asked, without payloads and definitions.
impl fmt::Display for JobAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = plain(self.job(), 128);
        match self {
            Self::Pause { until: None, .. } => write!(f, "pause {job:?}"),
            Self::Pause { until: Some(until), .. } => write!(f, "pause {job:?} until {until}"),
            Self::Freeze { until, .. } => write!(f, "freeze the group until {until}"),
            Self::Unfreeze => f.write_str("end the freeze of the group"),
            Self::Resume { .. } => write!(f, "resume {job:?}"),
            Self::Trigger { .. } => write!(f, "run {job:?} once"),
            Self::Put { definitions, .. } if definitions.len() > 1 => {
                write!(f, "store {job:?} and {} more", definitions.len() - 1)
            }
            Self::Put { .. } => write!(f, "store {job:?}"),
            Self::Remove { .. } => write!(f, "remove {job:?}"),
            Self::Backfill { from, until, .. } => {
                write!(f, "run {job:?} for its ticks from {from} to {until}")
            }
            Self::Cancel { tick: None, .. } => write!(f, "cancel the runs of {job:?}"),
            Self::Cancel { tick: Some(tick), .. } => write!(f, "cancel the run of {job:?} at {tick}"),
        }
    }
}

/// The leader's response to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum JobResponse {
    /// The request was carried out, or will be. The history entries of its runs have the id of the request.
    Accepted {
        /// A text for people.
        text: Arc<str>,
        /// The number of runs that the request makes or cancels.
        count: u64,
    },
    /// The request will not be carried out.
    Refused {
        /// The reason, for people.
        why: Arc<str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_logged_in_words_without_its_content() {
        let at = WallTime::from_micros(1_800_000_000_000_000);
        let definition = DefinitionText("secret".into());
        let put = |count| JobAction::Put {
            job: "j".into(),
            definitions: vec![definition.clone(); count],
            expect: None,
        };
        let trigger = JobAction::Trigger { job: "j".into(), payload: Payload::new("secret").ok() };
        for (what, text) in [
            (JobAction::pause("j\u{1b}"), "pause \"j "),
            (put(1), "store \"j\""),
            (put(3), "store \"j\" and 2 more"),
            (trigger, "run \"j\" once"),
            (JobAction::Cancel { job: "j".into(), tick: Some(at) }, "cancel the run of \"j\" at 2027-01-15"),
        ] {
            let logged = what.to_string();
            assert!(
                logged.starts_with(text) && !logged.contains(['\u{1b}']) && !logged.contains("secret"),
                "{logged}"
            );
        }
    }

    #[test]
    fn requests_and_responses_are_read_as_they_were_written() {
        let request = |what| JobRequest {
            id: RequestId::from_u128(1),
            by: "me@host".into(),
            at: WallTime::from_micros(5),
            valid_for: Duration::from_secs(60),
            what,
        };
        let job: Arc<str> = "j".into();
        let (from, until) = (WallTime::from_micros(1), WallTime::from_micros(2));
        let text = serde_json::to_string(&request(JobAction::pause(job.clone()))).unwrap();
        let expect = r#"{"id":"00000000000000000000000000000001","by":"me@host","at":5,"valid_for":60000,"what":{"ask":"pause","job":"j"}}"#;
        assert_eq!(text, expect);
        for what in [
            JobAction::Pause { job: job.clone(), reason: Some("disk".into()), until: Some(until) },
            JobAction::Resume { job: job.clone() },
            JobAction::Freeze { reason: Some("migration".into()), until },
            JobAction::Unfreeze,
            JobAction::trigger(job.clone()),
            JobAction::Trigger { job: job.clone(), payload: Some(Payload::new("to").unwrap()) },
            JobAction::Put { job: job.clone(), definitions: vec![DefinitionText("{}".into())], expect: None },
            JobAction::Remove { job: job.clone(), expect: Some(Expect::Version(RequestId::from_u128(2))) },
            JobAction::Remove { job: job.clone(), expect: Some(Expect::Absent) },
            JobAction::Backfill { job: job.clone(), from, until },
            JobAction::Cancel { job: job.clone(), tick: Some(from) },
            JobAction::Cancel { job, tick: None },
        ] {
            let sent = request(what);
            let text = serde_json::to_string(&sent).unwrap();
            assert_eq!(serde_json::from_str::<JobRequest>(&text).unwrap(), sent);
        }
        for response in [
            JobResponse::Accepted { text: "paused".into(), count: 0 },
            JobResponse::Refused { why: "no such job".into() },
        ] {
            let text = serde_json::to_string(&response).unwrap();
            assert_eq!(serde_json::from_str::<JobResponse>(&text).unwrap(), response);
        }
    }
}
