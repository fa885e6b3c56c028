//! The state of a group beside its jobs, for a viewer: the freeze, the copies of the ledger, and the live workers.

use crate::{
    ledger::{Answered, LedgerCopies, LedgerView},
    scheduler::{
        control::{
            error::JobsError,
            jobs::{Jobs, answers},
        },
        store::{Announcement, GroupFreeze, Paused, WorkRow},
    },
    session::{Seen, Sessions, announced},
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

/// A live worker of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupWorker {
    /// The name of the worker.
    pub worker: Arc<str>,
    /// The labels of the worker.
    pub labels: Vec<Arc<str>>,
    /// The handlers that the worker has registered.
    pub handlers: Vec<Arc<str>>,
    /// The largest number of runs that it executes at once, if there is a limit.
    pub max_running: Option<usize>,
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

    /// Returns the live workers that have announced themselves for runs, by name: those whose sessions have not ended.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn workers(&self) -> Result<Vec<GroupWorker>, JobsError> {
        let announced = announced::<Announcement>(&answers(self.ledger().part(WorkRow::PART).read().await)?);
        let sessions: Vec<Arc<str>> = announced.iter().map(|(session, _)| Arc::clone(session)).collect();
        let seen = Sessions::look(self.quorum(), self.group(), &sessions).await;
        let lives = |session: &Arc<str>| seen.iter().any(|(of, seen)| of == session && *seen != Seen::Free);
        let worker = |(session, who): (Arc<str>, Announcement)| {
            lives(&session).then(|| GroupWorker {
                worker: who.worker,
                labels: who.labels.iter().cloned().collect(),
                handlers: who.handlers,
                max_running: Some(who.room).filter(|room| *room < usize::MAX),
            })
        };
        let mut workers: Vec<GroupWorker> = announced.into_iter().filter_map(worker).collect();
        workers.sort_unstable();
        Ok(workers)
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
