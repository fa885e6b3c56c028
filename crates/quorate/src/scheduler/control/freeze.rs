//! Freezes all jobs of a group.

use crate::{
    env::WallTime,
    scheduler::{
        control::{
            error::JobsError,
            jobs::{Accepted, Jobs},
        },
        store::{JobAction, Paused},
    },
};

impl Jobs {
    /// Skips the ticks of all jobs of the group from now on until `until`, under every leader. Active runs and
    /// requested runs continue. Jobs that are added meanwhile are frozen too. If the group is frozen already, the reason
    /// and the end replace those of that freeze. A job that is paused itself stays paused afterwards.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`], and [`JobsError::Input`] if `until` is not in the future.
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn freeze(&self, reason: Option<&str>, until: WallTime) -> Result<Accepted, JobsError> {
        self.send(JobAction::Freeze { reason: reason.map(Into::into), until }).await
    }

    /// Ends the freeze of the group now.
    ///
    /// A run on any worker is opened up to two TTLs before its tick, 30 s at most. A freeze in that time leaves the
    /// tick out, also if it ends before the tick.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn unfreeze(&self) -> Result<Accepted, JobsError> {
        self.send(JobAction::Unfreeze).await
    }

    /// Returns the freeze of the group, if it is frozen.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn frozen(&self) -> Result<Option<Paused>, JobsError> {
        Ok(self.overview().await?.frozen)
    }
}
