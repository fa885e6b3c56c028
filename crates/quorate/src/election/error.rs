use crate::lease::AcquireError;

/// The reason why a campaign ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError<E> {
    /// The group's name or the settings cannot be used, the quorum has been closed, or a majority of nodes has refused
    /// this worker since it was started, for a reason that only an operator can fix.
    #[error(transparent)]
    Acquire(AcquireError),
    /// This candidate is already running. Clones are the same candidate.
    #[error("the election of {group} is already running in this process; run all work of the group in one `run`")]
    AlreadyRunning {
        /// The group.
        group: String,
    },
    /// The work failed, and the election [ends on an error](super::Election::end_on_error). The leader has resigned.
    #[error("the work of a term failed: {0}")]
    Work(E),
}
