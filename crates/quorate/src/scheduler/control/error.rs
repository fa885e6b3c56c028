use crate::{
    config::SettingError,
    env::WallTime,
    plain::plain,
    scheduler::{
        job::RequestId,
        schedule::{InvalidSchedule, Zone},
        store::RecordError,
    },
    vote::NoMajority,
};
use std::{fmt, str::FromStr, sync::Arc};

/// The largest number of bytes of a name that an error repeats.
const NAME_MAX: usize = 128;

/// The error of a read or a request of [`Jobs`](super::Jobs).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobsError {
    /// The name of the group cannot be used.
    #[error(transparent)]
    Group(#[from] SettingError),
    /// Fewer than a majority of the nodes answered.
    #[error("too few nodes answered: {0}")]
    NoMajority(NoMajority),
    /// No leader of the group has registered a job of this name.
    #[error(
        "no job is called {:?} in group {:?}{}",
        plain(.name, NAME_MAX),
        plain(.group, NAME_MAX),
        Suggestion { nearest, others }
    )]
    UnknownJob {
        /// The name.
        name: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// The most similar name of a job.
        nearest: Option<Arc<str>>,
        /// The number of jobs of the group.
        others: usize,
    },
    /// An argument cannot be used.
    #[error("{field} is {value}: {fix}")]
    Input {
        /// The name of the argument.
        field: &'static str,
        /// The value of the argument.
        value: String,
        /// The fix.
        fix: &'static str,
    },
    /// A job cannot be stored on the nodes.
    #[error("the job {:?} is not stored on the nodes: {}", plain(.job, NAME_MAX), plain(.reason, 512))]
    Definition {
        /// The job.
        job: Arc<str>,
        /// The reason, with the fix.
        reason: String,
    },
    /// The request reached no node, so no leader will carry it out.
    #[error("the request was not posted, so it will not be carried out: {report}")]
    NotPosted {
        /// The nodes' answers to the last attempt.
        report: NoMajority,
    },
    /// The request did not reach a majority of the nodes. If it reached at least one node, a leader may still
    /// accept the request until the time `until`.
    #[error(
        "the request {id} did not reach a majority; if it reached a node, a leader may accept it until {}: {report}",
        utc(*.until)
    )]
    PerhapsPosted {
        /// The id of the request.
        id: RequestId,
        /// The time until which a leader may accept the request.
        until: WallTime,
        /// The nodes' answers to the last attempt.
        report: NoMajority,
    },
    /// The request was posted, and no leader has answered it yet.
    #[error("the request {id} is posted and not answered: {}; a leader may accept it until {}", Leader(.leader), utc(*.until))]
    Unanswered {
        /// The id of the request.
        id: RequestId,
        /// The worker that leads, if there is a leader.
        leader: Option<Arc<str>>,
        /// The time until which a leader may accept the request.
        until: WallTime,
    },
    /// A majority of the nodes stores the request. Its answer cannot be read, because of an error that an
    /// operator must fix.
    #[error("the request {id} is posted, and its answer cannot be read; a leader may accept it until {}: {report}", utc(*.until))]
    AnswerUnread {
        /// The id of the request.
        id: RequestId,
        /// The time until which a leader may accept the request.
        until: WallTime,
        /// The nodes' answers to the last attempt to read the answer.
        report: NoMajority,
    },
    /// The leader refused the request.
    #[error("the leader refuses: {}", plain(.reason, 1024))]
    Refused {
        /// The id of the request.
        id: RequestId,
        /// The reason.
        reason: Arc<str>,
    },
    /// A record in the ledger cannot be read.
    #[error("{reason}")]
    Record {
        /// The key of the record, and the reason.
        reason: String,
    },
    /// The schedule of a job cannot be read from its row.
    #[error("the schedule of job {:?} cannot be read from the ledger: {reason}", plain(.job, NAME_MAX))]
    Schedule {
        /// The job.
        job: Arc<str>,
        /// The reason.
        reason: InvalidSchedule,
    },
}

impl JobsError {
    /// Returns the outcome of each node, if too few nodes agreed. Returns `None` for every other error.
    pub fn report(&self) -> Option<&NoMajority> {
        match self {
            Self::NoMajority(report)
            | Self::NotPosted { report }
            | Self::PerhapsPosted { report, .. }
            | Self::AnswerUnread { report, .. } => Some(report),
            _ => None,
        }
    }

    pub(super) fn unreadable(error: RecordError) -> Self {
        Self::Record { reason: error.to_string() }
    }
}

impl FromStr for RequestId {
    type Err = JobsError;
    fn from_str(text: &str) -> Result<Self, JobsError> {
        Self::parse(text).ok_or_else(|| JobsError::Input {
            field: "the request id",
            value: format!("{:?}", plain(text, 64)),
            fix: "use the 32 hexadecimal digits, in lower case, of the accepted request",
        })
    }
}

impl TryFrom<String> for RequestId {
    type Error = JobsError;
    fn try_from(text: String) -> Result<Self, JobsError> {
        text.parse()
    }
}

struct Suggestion<'a> {
    nearest: &'a Option<Arc<str>>,
    others: &'a usize,
}

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.nearest, self.others) {
            (Some(name), _) => write!(f, "; did you mean {:?}?", plain(name, NAME_MAX)),
            (None, 0) => f.write_str("; it has no jobs yet: has a worker with jobs led it?"),
            (None, others) => write!(f, "; list its {others} with `quorate jobs list`"),
        }
    }
}

struct Leader<'a>(&'a Option<Arc<str>>);

impl fmt::Display for Leader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(leader) => write!(f, "the leader {:?} has not accepted it", plain(leader, NAME_MAX)),
            None => f.write_str("there is no leader"),
        }
    }
}

/// Formats a time for people, in UTC.
pub(super) fn utc(at: WallTime) -> String {
    Zone::UTC.format(at)
}
