use quorate::{claim::ClaimError, election::ResignError, quorum::SettingError, scheduler::JobsError};

/// The longest name that is shown, in bytes.
pub(crate) const NAME_MAX: usize = 200;
/// The longest text that is shown, in bytes.
pub(crate) const TEXT_MAX: usize = 4_096;

/// The reason why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The error of a request to the leader.
    #[error(transparent)]
    Jobs(#[from] JobsError),
    /// The group has no jobs.
    #[error("{0}: the group has no jobs; check its name")]
    NoJobs(String),
    /// The name of the group cannot be used.
    #[error(transparent)]
    Group(#[from] SettingError),
    /// The leader has not resigned.
    #[error(transparent)]
    Resign(#[from] ResignError),
    /// The message was not reset.
    #[error(transparent)]
    Claims(#[from] ClaimError),
    /// The nodes store nothing of the message.
    #[error("{set}: the nodes store nothing of the message {id}")]
    NoMessage {
        /// The set of claims.
        set: String,
        /// The message.
        id: String,
    },
}
