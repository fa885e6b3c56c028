use crate::scheduler::control::when;
use crate::{
    config::SettingError,
    env::WallTime,
    plain::plain,
    scheduler::{RecordError, RequestId, SpecError},
    vote::NoMajority,
};
use std::{fmt, sync::Arc};

/// The longest name that an error repeats, in bytes.
const NAME_MAX: usize = 128;

/// Why something could not be learnt of a job, or asked of its leader.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobsError {
    /// The group's name cannot be used.
    #[error(transparent)]
    Group(#[from] SettingError),
    /// Fewer than a majority of the nodes answered.
    #[error("too few nodes answered: {0}")]
    NoMajority(NoMajority),
    /// No leader of the group has registered a job of this name.
    #[error("no job is called {:?} in group {:?}{}", plain(.name, NAME_MAX), plain(.group, NAME_MAX), Known(.nearest, .others))]
    UnknownJob {
        /// The name.
        name: Arc<str>,
        /// The group.
        group: Arc<str>,
        /// The name that was probably meant.
        nearest: Option<Arc<str>>,
        /// How many jobs there are.
        others: usize,
    },
    /// What was asked cannot be meant.
    #[error("{field} is {value}: {fix}")]
    Input {
        /// Of which input.
        field: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        fix: &'static str,
    },
    /// The request reached no node, and nothing will come of it.
    #[error("the request was not posted, nothing will come of it: {report}")]
    NotPosted {
        /// What the nodes said.
        report: NoMajority,
    },
    /// The request did not reach a majority of nodes. Where it reached one, a leader may yet take it up.
    #[error(
        "the request {id} did not reach a majority; where it reached a node, a leader may take it up until {}: {report}",
        when(*.until)
    )]
    PerhapsPosted {
        /// The request.
        id: RequestId,
        /// Until when it may be taken up.
        until: WallTime,
        /// What the nodes said last.
        report: NoMajority,
    },
    /// The request was posted and no leader has answered yet.
    #[error("the request {id} is posted and not answered: {}; it may be taken up until {}", Leads(.leader), when(*.until))]
    Unanswered {
        /// The request.
        id: RequestId,
        /// Who leads, if anybody does.
        leader: Option<Arc<str>>,
        /// Until when it may be taken up.
        until: WallTime,
    },
    /// The request was posted, and only an operator can fix what keeps its answer from being read.
    #[error("the request {id} is posted, and its answer cannot be read; it may be taken up until {}: {report}", when(*.until))]
    AnswerUnread {
        /// The request.
        id: RequestId,
        /// Until when a leader may take it up.
        until: WallTime,
        /// The outcome of the last read on each node.
        report: NoMajority,
    },
    /// The leader will not do it.
    #[error("the leader refuses: {}", plain(.why, 1024))]
    Refused {
        /// The request.
        id: RequestId,
        /// Why.
        why: Arc<str>,
    },
    /// What stands in the ledger cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The schedule of a job cannot be read from its row.
    #[error("the schedule of job {:?} cannot be told from here: {why}", plain(.job, NAME_MAX))]
    Schedule {
        /// The job.
        job: Arc<str>,
        /// Why not.
        why: UnknownSchedule,
    },
}

/// Why a schedule cannot be read from a job's row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownSchedule {
    /// It is code of the worker's own, or the row was written by an old version.
    #[error(
        "its row holds no schedule that can be read; it is a timetable of the worker's own, or was registered by an older version"
    )]
    Absent,
    /// It cannot be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

struct Known<'a>(&'a Option<Arc<str>>, &'a usize);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(Some(near), _) => write!(f, "; did you mean {:?}?", plain(near, NAME_MAX)),
            Self(None, 0) => f.write_str("; it has no jobs yet: has a worker with jobs led it?"),
            Self(None, some) => write!(f, "; list its {some} with `quorate jobs list`"),
        }
    }
}

struct Leads<'a>(&'a Option<Arc<str>>);

impl fmt::Display for Leads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(leader) => write!(f, "{:?} leads and has not taken it up", plain(leader, NAME_MAX)),
            None => f.write_str("nobody leads"),
        }
    }
}
