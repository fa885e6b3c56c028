//! The state of a group beside its jobs, for a viewer: the freeze, and the copies of the ledger.

use crate::{
    ledger::{Answered, LedgerCopies, LedgerView},
    scheduler::{
        control::{
            error::JobsError,
            jobs::{Jobs, answers},
        },
        store::{GroupFreeze, Paused},
    },
};
use std::sync::Arc;

/// The freeze of a group, and the copies that the nodes have of its ledger.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupOverview {
    /// The freeze of the group, if it is frozen.
    pub frozen: Option<Paused>,
    /// The copies. `None` if no node that answered has one: no scheduler has led the group.
    pub copies: Option<LedgerCopies>,
    /// The jobs that no live worker can run, each with the reason. Only [`Jobs::overview_of_jobs`] reads it.
    pub waiting: Vec<(Arc<str>, Arc<str>)>,
}

impl Jobs {
    /// Returns the freeze of the group, and the copies of its ledger. This costs two small requests to each node. If a copy is
    /// incomplete, all copies are read in order to count their records.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn overview(&self) -> Result<GroupOverview, JobsError> {
        let read = answers(LedgerView::ask_keys(self.ledger(), &[GroupFreeze::KEY.into()]).await)?;
        let mut copies = self.copies(&read);
        if let Some(copies) = copies.as_mut().filter(|copies| copies.is_countable())
            && let Ok(all) = self.ledger().read().await
        {
            copies.count(&all);
        }
        let ledger = LedgerView::of(read);
        let freeze = ledger.records.get(GroupFreeze::KEY).and_then(|row| GroupFreeze::parse(row).ok());
        let frozen = freeze.and_then(|freeze| freeze.active(self.now()).cloned());
        Ok(GroupOverview { frozen, copies, waiting: Vec::new() })
    }

    /// Returns the same as [`Jobs::overview`], with the jobs that no live worker can run. It reads the whole ledger.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn overview_of_jobs(&self) -> Result<GroupOverview, JobsError> {
        let jobs = self.read().await?;
        let waiting = jobs.into_iter().filter_map(|(name, job)| Some((name, job.waits_for?))).collect();
        Ok(GroupOverview { waiting, ..self.overview().await? })
    }

    /// Returns the states of the copies by these answers, without counts.
    pub(super) fn copies(&self, answers: &[Answered]) -> Option<LedgerCopies> {
        LedgerCopies::of(self.quorum().nodes().into_iter().map(|node| node.name), answers)
    }
}
