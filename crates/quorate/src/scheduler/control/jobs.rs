mod send;
mod stored;

use crate::{
    env::WallTime,
    ledger::{Answered, Ledger, LedgerError, LedgerView},
    quorum::Quorum,
    scheduler::{
        alert::JobAlert,
        control::{
            audit::{AuditEntry, AuditLog},
            error::JobsError,
            status::{self, JobStatus, RegisteredJob, RunStatus, nearest},
        },
        job::{Payload, RequestId},
        schedule::{Schedule, Zone},
        store::{HistoryEntry, JobAction, JobRow, StoredJob, VALID_MAX},
    },
    session::{Seen, Sessions},
    vote::NoMajority,
};
use futures_util::{StreamExt, stream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The default time for which a call waits for the leader's answer.
const WAIT: Duration = Duration::from_secs(10);
/// The default time for which a leader may accept a request.
const VALID_FOR: Duration = Duration::from_secs(60);
/// The largest number of jobs for which a list includes the newest history entries. The history of each job
/// needs a separate read.
const HISTORIES_MAX: usize = 256;
/// The largest number of histories that are read at the same time.
const CONCURRENT_READS: usize = 16;
/// The number of history entries in a status.
const LAST_MAX: usize = 5;

/// Reads and controls the jobs of a group, from any worker, even one without jobs.
///
/// A status may be out of date when it is returned. A call that changes a job sends a request to the leader,
/// through an inbox in the ledger. The leader usually accepts a request within half a second, and carries it
/// out once. If such a call returns an error after the request reached a node, a leader may still carry the
/// request out. The error contains the time until which this can happen. Reads work even on nodes without a
/// marker, and with [`QuorumConfig::read_only`](crate::config::QuorumConfig::read_only).
///
/// ```
/// use quorate::{Quorum, scheduler::{Jobs, JobsError}};
///
/// # async fn example(quorum: &Quorum) -> Result<(), JobsError> {
/// let jobs = Jobs::new(quorum, "billing")?;
/// for job in jobs.list().await? {
///     println!("{}: {}, next {:?}", job.name, job.schedule, job.next);
/// }
/// jobs.pause("nightly").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs {
    quorum: Quorum,
    group: Arc<str>,
    ledger: Ledger,
    requester: Arc<str>,
    wait: Duration,
    valid_for: Duration,
    zone: Option<Zone>,
}

/// A request that the leader has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The id of the request. The history entries of the request's runs have this id.
    pub id: RequestId,
    /// The leader's answer, as a text for people.
    pub text: Arc<str>,
    /// The number of runs that the request makes or cancels.
    pub count: u64,
}

impl Jobs {
    /// Returns a handle to the jobs of `group`.
    ///
    /// # Errors
    /// [`JobsError::Group`] if the name cannot be used.
    pub fn new(quorum: &Quorum, group: &str) -> Result<Self, JobsError> {
        let ledger = Ledger::new(quorum, group)?;
        let requester = Arc::clone(&quorum.config().worker);
        Ok(Self {
            quorum: quorum.clone(),
            group: group.into(),
            ledger,
            requester,
            wait: WAIT,
            valid_for: VALID_FOR,
            zone: None,
        })
    }

    /// Sets the name of the requester. The leader logs it, and [`JobStatus::paused_by`] shows it. The default
    /// is the name of the worker.
    #[must_use]
    pub fn requester(mut self, name: &str) -> Self {
        self.requester = crate::plain::plain(name, 128).into();
        self
    }

    /// Sets the time for which a call waits for the leader's answer. Default 10 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how long a leader may still accept a request after it was sent. Default 60 s, at most half an hour.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = time.min(VALID_MAX);
        self
    }

    /// Sets the zone of the times in the texts of [`Jobs::why`]. By default it is the zone of the job.
    #[must_use]
    pub fn times_in(mut self, zone: Zone) -> Self {
        self.zone = Some(zone);
        self
    }

    /// Returns the name of the group.
    pub fn group(&self) -> &Arc<str> {
        &self.group
    }

    pub(super) const fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    pub(super) const fn zone(&self) -> Option<&Zone> {
        self.zone.as_ref()
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns all jobs that a leader of the group has registered, in the order of their names. Each job has
    /// the newest entry of its history. If there are more than 256 jobs, the histories are not read: see
    /// [`Jobs::show`] and [`Jobs::history`].
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn list(&self) -> Result<Vec<JobStatus>, JobsError> {
        let jobs = self.read().await?;
        let now = self.now();
        if jobs.len() > HISTORIES_MAX {
            return Ok(jobs.into_iter().map(|(name, job)| job.into_status(name, now, Vec::new())).collect());
        }
        let statuses = jobs.into_iter().map(|(name, job)| async move {
            let last = self.entries(&name).await?.into_iter().rev().take(1).collect();
            Ok(job.into_status(name, now, last))
        });
        let read: Vec<Result<JobStatus, JobsError>> =
            stream::iter(statuses).buffered(CONCURRENT_READS).collect().await;
        read.into_iter().collect()
    }

    /// Returns an alert for each job that is overdue now, apart from the alerts that a leader has reported already. So
    /// workers can report these jobs while there is no leader, or while the leader cannot write.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn overdue(&self) -> Result<Vec<JobAlert>, JobsError> {
        let jobs = self.read().await?;
        let now = self.now();
        Ok(jobs.into_iter().filter_map(|(name, job)| job.overdue(&name, now)).collect())
    }

    /// Returns one job, with the five newest entries of its history.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn show(&self, job: &str) -> Result<JobStatus, JobsError> {
        let found = self.find(job).await?;
        let now = self.now();
        let last = self.entries(job).await?.into_iter().rev().take(LAST_MAX).collect();
        Ok(found.into_status(job.into(), now, last))
    }

    /// Returns the `limit` newest entries of a job's history, newest first.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`] if the ledger has neither a job of this name nor a history of such a job;
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn history(&self, job: &str, limit: usize) -> Result<Vec<HistoryEntry>, JobsError> {
        let entries = self.entries(job).await?;
        if entries.is_empty() {
            // If the history is empty, either no run of the job has ended yet, or there is no job of this name.
            // Only the second case is an error.
            self.check_exists(job).await?;
        }
        Ok(entries.into_iter().rev().take(limit).collect())
    }

    /// Returns the first `count` ticks of a job after `from`. They are computed from the schedule in the
    /// ledger.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::Schedule`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn next(&self, job: &str, from: WallTime, count: usize) -> Result<Vec<WallTime>, JobsError> {
        Ok(self.schedule(job).await?.upcoming(from, count).collect())
    }

    /// Returns the schedule of a job from the ledger.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::Schedule`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn schedule(&self, job: &str) -> Result<Schedule, JobsError> {
        let row = self.row(job).await?;
        status::schedule(&row).map_err(|reason| JobsError::Schedule { job: job.into(), reason })
    }

    /// Pauses the job: every leader skips its ticks from now on, until the job is resumed. Active runs and
    /// requested runs continue.
    ///
    /// # Errors
    /// [`JobsError`], which says whether a leader may still carry the request out.
    ///
    /// # Cancel safety
    /// If the future is dropped, the request may have been posted. A leader may then accept it until its
    /// validity ends.
    pub async fn pause(&self, job: &str) -> Result<Accepted, JobsError> {
        self.send(JobAction::pause(job)).await
    }

    /// Pauses the job as [`Jobs::pause`] does, with a reason, with an end, or with both. The leader ends the
    /// pause at `until`, and a tick at that time runs. If there is no leader at that time, the next leader ends
    /// the pause, and the misfire rule decides on the ticks since `until`. If the job is already paused, the
    /// new reason and the new end replace the present ones.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`], and [`JobsError::Input`] if `until` is not in the future.
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn pause_until(
        &self,
        job: &str,
        reason: Option<&str>,
        until: Option<WallTime>,
    ) -> Result<Accepted, JobsError> {
        let reason = reason.map(Into::into);
        self.send(JobAction::Pause { job: job.into(), reason, until }).await
    }

    /// Resumes the job: its ticks run again from now on.
    ///
    /// A run on any worker is opened up to two TTLs before its tick, 30 s at most. A pause in that time
    /// leaves the tick out, also if the job is resumed before it.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn resume(&self, job: &str) -> Result<Accepted, JobsError> {
        self.send(JobAction::Resume { job: job.into() }).await
    }

    /// Runs the job once now, in addition to its schedule.
    ///
    /// If the call returns [`Accepted`], a majority of the nodes stores the request. The run starts as soon as
    /// the overlap rule permits it, if necessary under a later leader. Requested runs and waiting ticks start
    /// alternately. A paused job still runs on request.
    ///
    /// The run does not start in these cases, and the history then has its outcome:
    ///
    /// * The run is cancelled, or the job is removed, before the run starts.
    /// * The run is open to workers, and the schedule or placement of the job is changed before a worker has
    ///   started the run.
    ///
    /// In two rare cases the run does not start, and the history has no entry: the nodes have lost the request,
    /// or no leader has had the job for a long time.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn trigger(&self, job: &str) -> Result<Accepted, JobsError> {
        self.send(JobAction::trigger(job)).await
    }

    /// Runs the job once now, as [`Jobs::trigger`] does, with a payload in place of the job's.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn trigger_with(&self, job: &str, payload: Payload) -> Result<Accepted, JobsError> {
        self.send(JobAction::Trigger { job: job.into(), payload: Some(payload) }).await
    }

    /// Runs the job once for each of its ticks from `from` (included) to `until` (excluded), the oldest first.
    /// Ticks that have run before run again. A back-fill of more than 1,000 ticks is refused.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`], and [`JobsError::Input`] if `until` is not later than `from`.
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn backfill(&self, job: &str, from: WallTime, until: WallTime) -> Result<Accepted, JobsError> {
        self.send(JobAction::Backfill { job: job.into(), from, until }).await
    }

    /// Cancels runs of the job. With a tick, this is the run of that tick. Without a tick, these are the active
    /// runs whose ticks are due, and the requested runs that have not started. A run that is open to workers
    /// ahead of its tick is cancelled only if the request contains the tick. A run on another worker than the
    /// leader is cancelled when that worker next reads the record of the run, about once a second.
    ///
    /// # Errors
    /// The same as for [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// The same as for [`Jobs::pause`].
    pub async fn cancel(&self, job: &str, tick: Option<WallTime>) -> Result<Accepted, JobsError> {
        self.send(JobAction::Cancel { job: job.into(), tick }).await
    }

    /// Checks that the group has a job of this name.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn check_exists(&self, job: &str) -> Result<(), JobsError> {
        self.row(job).await.map(drop)
    }

    /// Reads the row of a job, without those of the other jobs. Only the error for an unknown job reads them all, to
    /// suggest a name.
    async fn row(&self, job: &str) -> Result<JobRow, JobsError> {
        let keys = [JobRow::key(job), StoredJob::key(job)];
        let ledger = answers(LedgerView::read_keys(&self.ledger, &keys).await)?;
        match status::jobs(&ledger).remove(job) {
            Some(found) => Ok(found.row),
            None => self.find(job).await.map(|found| found.row),
        }
    }

    async fn find(&self, job: &str) -> Result<RegisteredJob, JobsError> {
        let mut jobs = self.read().await?;
        jobs.remove(job).ok_or_else(|| JobsError::UnknownJob {
            name: job.into(),
            group: Arc::clone(&self.group),
            nearest: nearest(job, jobs.keys()),
            others: jobs.len(),
        })
    }

    /// Reads the jobs of the group.
    pub(super) async fn read(&self) -> Result<BTreeMap<Arc<str>, RegisteredJob>, JobsError> {
        self.read_from(answers(self.ledger.read().await)?).await
    }

    /// Returns the jobs that these answers of the nodes contain.
    pub(super) async fn read_from(
        &self,
        answers: Vec<Answered>,
    ) -> Result<BTreeMap<Arc<str>, RegisteredJob>, JobsError> {
        let ledger = LedgerView::of(answers);
        let mut jobs = status::jobs(&ledger);
        let decided = status::decided(&ledger).filter(|decided| self.is_ahead(*decided));
        jobs.values_mut().for_each(|job| job.decided = decided);
        let open = status::open(&ledger);
        let sessions: Vec<Arc<str>> =
            open.iter().filter_map(|tick| Some(Arc::clone(&tick.open.to.as_ref()?.session))).collect();
        let seen: BTreeMap<_, _> =
            Sessions::look(&self.quorum, &self.group, &sessions).await.into_iter().collect();
        for tick in open {
            let of = tick.open.to.as_ref().map(|to| (to, (Arc::clone(&tick.run), to.id())));
            let taken = of.filter(|(_, assignment)| ledger.started.contains(assignment));
            let Some(job) = jobs.get_mut(&tick.job) else { continue };
            match taken {
                None if tick.request.is_none() => job.waiting.push(tick.tick),
                Some((to, assignment)) if !ledger.ended.contains(&assignment) => {
                    let (request, term) = (tick.request, tick.open.term);
                    let (worker, orphaned) =
                        (Arc::clone(&to.worker), seen.get(&to.session) == Some(&Seen::Free));
                    let concurrency_key = tick.open.uses.clone();
                    let tick = tick.tick;
                    job.running.push(RunStatus { tick, request, worker, term, orphaned, concurrency_key });
                    job.running.sort_by_key(|run| (run.tick, run.request));
                }
                _ => {}
            }
        }
        Ok(jobs)
    }

    /// Returns a job's history, oldest first.
    pub(super) async fn entries(&self, job: &str) -> Result<Vec<HistoryEntry>, JobsError> {
        let part = self.ledger.part(&HistoryEntry::part(job));
        Ok(HistoryEntry::merge(&answers(part.read().await)?).0)
    }

    /// Returns whether `time`, which a leader has seen on the quorum's clock, shows that this clock was set back since.
    pub(super) fn is_ahead(&self, time: WallTime) -> bool {
        self.now() + self.quorum.config().max_clock_offset * 2 < time
    }

    pub(super) fn now(&self) -> WallTime {
        // A leader compares the validity of a request with the quorum's clock. So the time of the request is
        // read from the same clock.
        self.quorum.wall()
    }
}

impl Jobs {
    /// Returns the newest requests that a leader of the group has answered, at most `limit`, newest first. The
    /// ledger keeps about 1,000 of them.
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    #[doc(hidden)]
    pub async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, JobsError> {
        answers(AuditLog::new(&self.ledger).newest(limit).await)
    }
}

/// Converts the result of a read. A read of the ledger has only one error: too few nodes have answered.
pub(super) fn answers<T>(read: Result<T, LedgerError>) -> Result<T, JobsError> {
    read.map_err(|error| match error {
        LedgerError::NoMajority(report) => JobsError::NoMajority(report),
        LedgerError::Superseded { .. }
        | LedgerError::Stranded
        | LedgerError::Standing(_)
        | LedgerError::Ended => JobsError::NoMajority(NoMajority::new(0, Vec::new())),
    })
}
