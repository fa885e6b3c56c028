use crate::lease::AcquireError;

/// Why a campaign ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError<E> {
    /// The group's name or the timings cannot be used, the quorum has been closed, or a majority of nodes has refused
    /// this worker since it was started, for a reason that only an operator can fix.
    #[error(transparent)]
    QuorumConfig(AcquireError),
    /// This election is already being run; run its clones' work in one campaign.
    #[error("the election of {group} is already being run in this process; join the work in one `run`")]
    AlreadyRunning {
        /// Which.
        group: String,
    },
    /// The work failed, and the election [ends on an error](super::Election::end_on_error). The leader has resigned.
    #[error("the work of a term failed: {0}")]
    Work(E),
}
