use crate::lease::AcquireError;

/// The reason why a run of [`Shards`](super::Shards) ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardsError {
    /// The set's name or the settings cannot be used, or the quorum has been closed. The run also ends with this error if no
    /// majority could vote since the quorum was built, for a reason that only an operator can fix.
    #[error(transparent)]
    Acquire(AcquireError),
    /// The same set is already running on this quorum.
    #[error(
        "the shards {set} are already running on this quorum, and a second run would only be another worker of this process; \
         set the weight of this worker instead"
    )]
    AlreadyRunning {
        /// The set.
        set: String,
    },
}
