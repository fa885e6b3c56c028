//! Reads the facts for [`explain`].

use crate::{
    election::Election,
    env::WallTime,
    scheduler::{
        control::{
            error::JobsError,
            explain::{Explanation, JobFacts, LedgerFacts, NodeFacts, explain},
            jobs::{Jobs, answers},
            status::{RegisteredJob, RunStatus, nearest},
        },
        job::whole_of,
    },
};
use std::{collections::BTreeMap, sync::Arc};

impl Jobs {
    /// Explains why a job did or did not run at `at`. Without a time, explains the latest tick. If too few
    /// nodes answer, or if the job does not exist, this is the explanation, not an error.
    ///
    /// # Errors
    /// [`JobsError::Group`] if the name of the group cannot be used.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    ///
    /// ```
    /// use quorate::{Error, Quorum, scheduler::{Jobs, Reason}};
    ///
    /// # async fn example(quorum: &Quorum) -> Result<(), Error> {
    /// let why = Jobs::new(quorum, "billing")?.why("nightly", None).await?;
    /// if why.reason != Reason::Ran {
    ///     println!("nightly did not run: {}; {}", why.text, why.action);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn why(&self, job: &str, at: Option<WallTime>) -> Result<Explanation, JobsError> {
        let ledger = self.ledger_facts(job).await;
        let quorum = self.quorum();
        // The reads above have updated the states of the nodes and the quorum's clock.
        let (nodes, ledger) = match ledger {
            Ok(ledger) => (NodeFacts::of_status(&quorum.nodes()), Some(ledger)),
            Err(JobsError::NoMajority(report)) => (NodeFacts::of_report(&report), None),
            Err(error) => return Err(error),
        };
        let facts = JobFacts {
            job: job.into(),
            group: Arc::clone(self.group()),
            asked: at,
            zone: self.zone().cloned(),
            now: quorum.wall(),
            local: quorum.env().wall(),
            nodes,
            ledger,
        };
        Ok(explain(&facts))
    }

    async fn ledger_facts(&self, job: &str) -> Result<LedgerFacts, JobsError> {
        let read = answers(self.ledger().read().await)?;
        let waiting = self.copies(&read).and_then(|copies| copies.waiting());
        let mut jobs = self.read_from(read).await?;
        let history = self.entries(job).await?;
        let mut observer = Election::new(self.quorum(), self.group()).observe()?;
        let leader = observer.leader().await.map_err(JobsError::NoMajority)?;
        if let (Some(job), Some(last)) = (jobs.get_mut(job), history.last()) {
            job.decided = job.decided.max(Some(last.tick).filter(|tick| self.is_ahead(*tick)));
        }
        Ok(LedgerFacts {
            leader: leader.map(|leader| leader.worker),
            waiting,
            holders: holders(job, &jobs),
            job: jobs.remove(job),
            nearest: nearest(job, jobs.keys()),
            others: jobs.len(),
            history,
        })
    }
}

/// Returns the active runs that have the concurrency key of `job`, each with its job and its worker. The key is that of the
/// job's own payload.
fn holders(job: &str, jobs: &BTreeMap<Arc<str>, RegisteredJob>) -> Vec<(Arc<str>, Arc<str>)> {
    let whole = |name: &str| whole_of(name).and_then(|whole| jobs.get(whole));
    let Some(key) = jobs.get(job).and_then(|found| found.concurrency_key(whole(job))) else {
        return Vec::new();
    };
    let mut holders = Vec::new();
    for (name, job) in jobs.iter().filter(|(_, job)| !job.running.is_empty()) {
        let usual = job.concurrency_key(whole(name));
        let has = |run: &&RunStatus| run.concurrency_key.as_ref().or(usual.as_ref()) == Some(&key);
        holders.extend(job.running.iter().filter(has).map(|run| (Arc::clone(name), Arc::clone(&run.worker))));
    }
    holders
}
