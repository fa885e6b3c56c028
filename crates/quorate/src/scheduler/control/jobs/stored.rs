//! Jobs that are stored on the nodes.

use super::{Accepted, Jobs, answers};
use crate::{
    ledger::LedgerView,
    scheduler::{
        control::{
            error::JobsError,
            stored::{StoredDefinition, definitions},
        },
        job::Job,
        store::{DefinitionText, Expect, JobAction, StoredJob},
    },
};
use std::sync::Arc;

/// The largest number of jobs in one request.
const PUT_MAX: usize = 1_000;
/// The largest number of bytes of the definitions in one request.
const PUT_BYTES_MAX: usize = 1 << 20;

impl Jobs {
    /// Stores a job on the nodes. The leader runs it by its rules from then on, on workers that have registered its handler
    /// ([`Scheduler::handler`](crate::scheduler::Scheduler::handler)), until it is [removed](Jobs::remove). A job of the
    /// same name on the nodes is replaced, as by [`SchedulerHandle::set_jobs`](crate::scheduler::SchedulerHandle::set_jobs).
    ///
    /// A job with the schedule [`at`](crate::scheduler::Schedule::at) runs once, and is then removed. If no worker has the handler, the
    /// runs wait, within the limits of the misfire rule. If the call returns [`Accepted`], a majority of the nodes stores the
    /// job, and every later leader has it.
    ///
    /// ```
    /// use quorate::{Job, Quorum, scheduler::{Jobs, Payload, Schedule}};
    /// use std::time::Duration;
    ///
    /// # async fn example(quorum: &Quorum) -> Result<(), Box<dyn std::error::Error>> {
    /// let daily = Schedule::every(Duration::from_secs(86_400))?;
    /// let digest = Job::named("digest-42", daily, "send-mail").payload(Payload::json(&["me@example.org"])?);
    /// Jobs::new(quorum, "billing")?.put(&digest).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`JobsError::Definition`] if the job cannot be stored; [`JobsError::Refused`] if the leader refuses it, for example
    /// because a worker has a job of that name in its configuration; otherwise the same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn put(&self, job: &Job) -> Result<Accepted, JobsError> {
        self.put_all(std::slice::from_ref(job)).await
    }

    /// Stores up to 1,000 jobs on the nodes by one request, as [`Jobs::put`] does. All of them are stored, or none.
    ///
    /// # Errors
    /// The same as for [`Jobs::put`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn put_all(&self, jobs: &[Job]) -> Result<Accepted, JobsError> {
        self.send(Self::put_action(jobs, None)?).await
    }

    /// Returns the request that stores these jobs, if the leader finds what is expected.
    ///
    /// # Errors
    /// [`JobsError::Definition`].
    #[doc(hidden)]
    pub fn put_action(jobs: &[Job], expect: Option<Expect>) -> Result<JobAction, JobsError> {
        let invalid =
            |job: &Job, reason: String| JobsError::Definition { job: Arc::clone(job.name()), reason };
        let Some(first) = jobs.first() else {
            return Err(JobsError::Input {
                field: "jobs",
                value: "empty".to_owned(),
                fix: "give at least one job",
            });
        };
        let mut definitions = Vec::with_capacity(jobs.len());
        for job in jobs {
            crate::scheduler::check::check_one(job).map_err(|fault| invalid(job, fault.error.to_string()))?;
            let definition = job.definition().map_err(|reason| invalid(job, reason))?;
            definitions.push(DefinitionText::new(&definition));
        }
        let bytes: usize = definitions.iter().map(|definition| definition.as_str().len()).sum();
        if definitions.len() > PUT_MAX || bytes > PUT_BYTES_MAX {
            let value = format!("{} with {bytes} bytes", definitions.len());
            let fix = "store at most 1000 jobs with 1048576 bytes by one request";
            return Err(JobsError::Input { field: "jobs", value, fix });
        }
        Ok(JobAction::Put { job: Arc::clone(first.name()), definitions, expect })
    }

    /// Removes a job from the nodes. From then on no run of it starts, apart from one that was open to workers before, 30 s
    /// at most ahead, and that a worker starts at this moment. Active runs go on. The history is kept.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`] if no job of this name is stored; otherwise the same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn remove(&self, job: &str) -> Result<Accepted, JobsError> {
        self.send(JobAction::Remove { job: job.into(), expect: None }).await
    }

    /// Checks that a majority of the nodes answers.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn check_reachable(&self) -> Result<(), JobsError> {
        self.stored_job("").await.map(drop)
    }

    /// Checks that a job of this name is stored on the nodes.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::Definition`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn check_stored(&self, job: &str) -> Result<(), JobsError> {
        match self.stored_job(job).await? {
            Some(_) => Ok(()),
            None => Err(self.not_stored(job).await),
        }
    }

    /// Returns the error about a job that is not stored on the nodes.
    pub(super) async fn not_stored(&self, job: &str) -> JobsError {
        match self.find(job).await {
            Ok(_) => {
                let reason =
                    "it is in the configuration or the program of workers, not on the nodes; change it there"
                        .to_owned();
                JobsError::Definition { job: job.into(), reason }
            }
            Err(error) => error,
        }
    }

    /// Returns the jobs that are stored on the nodes, in the order of their names.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn stored(&self) -> Result<Vec<StoredDefinition>, JobsError> {
        let ledger = LedgerView::of(answers(self.ledger.read().await)?);
        Ok(definitions(&ledger).into_values().collect())
    }

    /// Returns a job that is stored on the nodes, or `None` if none of this name is.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn stored_job(&self, job: &str) -> Result<Option<StoredDefinition>, JobsError> {
        let key = StoredJob::key(job);
        let ledger = answers(LedgerView::read_keys(&self.ledger, std::slice::from_ref(&key)).await)?;
        Ok(definitions(&ledger).remove(job))
    }
}
