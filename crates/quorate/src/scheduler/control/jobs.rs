use crate::scheduler::control::{
    JobStatus, JobsError, RunStatus, UnknownSchedule, classify, inbox,
    status::{self, nearest},
};
use crate::{
    claim::{SlotId, Slots},
    election::Election,
    env::{BootTime, WallTime},
    ledger::{Answered, Ledger, LedgerError},
    node::Cause,
    quorum::Quorum,
    scheduler::{HistoryEntry, JobAction, JobRequest, JobResponse, JobRow, RequestId, Schedule},
    vote::{NoMajority, NodeOutcome},
};
use futures_util::{StreamExt, stream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long an answer is waited for, unless told otherwise.
const WAIT: Duration = Duration::from_secs(10);
/// How long a request may be taken up, unless told otherwise.
const VALID_FOR: Duration = Duration::from_secs(60);
/// Between two attempts to post, and two looks for an answer.
const AGAIN: Duration = Duration::from_millis(100);
/// Of so many jobs the histories are read for a list, and no more: each is a read of its own.
const HISTORIES_MAX: usize = 256;
/// How many of them are read at a time.
const AT_A_TIME: usize = 16;
/// How many ends a status tells.
const LAST_MAX: usize = 5;

/// The jobs of a group, seen and operated from any worker, whether or not it has jobs itself.
///
/// What is read was true a moment ago. What is asked goes through an inbox in the ledger to whoever leads; the leader
/// takes it up within half a second, once. Reading needs no marker and works with
/// [`QuorumConfig::only_looks`](crate::config::QuorumConfig::only_looks).
#[derive(Clone, Debug)]
pub struct Jobs {
    quorum: Quorum,
    group: Arc<str>,
    ledger: Ledger,
    by: Arc<str>,
    wait: Duration,
    valid_for: Duration,
}

/// A request that the leader has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The request: under this id what comes of it stands in the history.
    pub id: RequestId,
    /// What the leader says, for people.
    pub text: Arc<str>,
    /// How many runs it makes, or has told to stop.
    pub count: u64,
}

impl Jobs {
    /// The jobs of `group`.
    ///
    /// # Errors
    /// [`JobsError::Group`] where the name cannot be used.
    pub fn new(quorum: &Quorum, group: &str) -> Result<Self, JobsError> {
        let ledger = Ledger::new(quorum, group)?;
        let by = Arc::clone(&quorum.config().worker);
        Ok(Self { quorum: quorum.clone(), group: group.into(), ledger, by, wait: WAIT, valid_for: VALID_FOR })
    }

    /// Who asks, for logs and for the rows of paused jobs. Default the worker's name.
    #[must_use]
    pub fn by(mut self, who: &str) -> Self {
        self.by = crate::plain::plain(who, 128).into();
        self
    }

    /// How long an answer is waited for. Default 10 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For how long a leader may take up a request after it was asked; half an hour at most. Default 60 s.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = time.min(classify::VALID_MAX);
        self
    }

    /// The group.
    pub fn group(&self) -> &Arc<str> {
        &self.group
    }

    /// All jobs that a leader of the group has registered, by name, each with its newest end. (Of more than 256 jobs the
    /// ends are not read: see [`Jobs::show`] and [`Jobs::history`].)
    ///
    /// # Errors
    /// [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn list(&self) -> Result<Vec<JobStatus>, JobsError> {
        let jobs = self.read().await?;
        if jobs.len() > HISTORIES_MAX {
            return Ok(jobs.into_values().collect());
        }
        let ends = jobs.into_values().map(|job| async {
            let last = self.ends(&job.name).await?.into_iter().rev().take(1).collect();
            Ok(JobStatus { last, ..job })
        });
        let told: Vec<Result<JobStatus, JobsError>> = stream::iter(ends).buffered(AT_A_TIME).collect().await;
        told.into_iter().collect()
    }

    /// One job, with its five newest ends.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn show(&self, job: &str) -> Result<JobStatus, JobsError> {
        let found = self.find(job).await?;
        let last = self.ends(job).await?.into_iter().rev().take(LAST_MAX).collect();
        Ok(JobStatus { last, ..found })
    }

    /// The `limit` newest entries of a job's history, newest first.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`] where neither the job nor a history of it is known; [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn history(&self, job: &str, limit: usize) -> Result<Vec<HistoryEntry>, JobsError> {
        let ends = self.ends(job).await?;
        if ends.is_empty() {
            // A job that is known and has not ended yet, or none.
            self.find(job).await?;
        }
        Ok(ends.into_iter().rev().take(limit).collect())
    }

    /// The first `count` ticks of a job that are later than `from`, by the schedule in its row.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::Schedule`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn next(&self, job: &str, from: WallTime, count: usize) -> Result<Vec<WallTime>, JobsError> {
        Ok(self.schedule(job).await?.upcoming(from, count).collect())
    }

    /// The schedule in a job's row.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::Schedule`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn schedule(&self, job: &str) -> Result<Schedule, JobsError> {
        let found = self.find(job).await?;
        let puzzle = |why| JobsError::Schedule { job: job.into(), why };
        let spec = spec(&found.row).ok_or_else(|| puzzle(UnknownSchedule::Absent))?;
        Schedule::from_spec(spec).map_err(|error| puzzle(error.into()))
    }

    /// Skips the job's ticks from now on, whoever leads. What runs goes on.
    ///
    /// # Errors
    /// [`JobsError`], which says whether anything may come of it yet.
    ///
    /// # Cancel safety
    /// Dropping it leaves the request posted or not: a leader may take it up while it is valid.
    pub async fn pause(&self, job: &str) -> Result<Accepted, JobsError> {
        self.ask(JobAction::Pause { job: job.into() }).await
    }

    /// Runs the job's ticks again from now on.
    ///
    /// # Errors
    /// As [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// As [`Jobs::pause`].
    pub async fn resume(&self, job: &str) -> Result<Accepted, JobsError> {
        self.ask(JobAction::Resume { job: job.into() }).await
    }

    /// Runs the job once now, beside its schedule. Accepted means that the request stands on a majority: it starts as soon
    /// as no run of the job goes on that it may not run beside, in turns with ticks that wait, under a later leader if need
    /// be. It does not start where it is cancelled, or where the job is removed before (the history tells of it); nor where
    /// the nodes forget it, or no leader for long knows the job. What came of it is in the history.
    ///
    /// # Errors
    /// As [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// As [`Jobs::pause`].
    pub async fn trigger(&self, job: &str) -> Result<Accepted, JobsError> {
        self.ask(JobAction::Trigger { job: job.into() }).await
    }

    /// Runs the job for each of its ticks from `from`, itself included, to `until`, itself excluded, oldest first, whether
    /// or not they have run before.
    ///
    /// # Errors
    /// As [`Jobs::pause`]; [`JobsError::Input`] for a span that is none.
    ///
    /// # Cancel safety
    /// As [`Jobs::pause`].
    pub async fn backfill(&self, job: &str, from: WallTime, until: WallTime) -> Result<Accepted, JobsError> {
        if from >= until {
            return Err(JobsError::Input {
                field: "until",
                value: super::when(until),
                fix: "the span ends before it begins; give a time later than `from`",
            });
        }
        self.ask(JobAction::Backfill { job: job.into(), from, until }).await
    }

    /// Tells what runs of the job to stop, or the run of one tick only; without a tick also gives up what was asked for and
    /// has not begun. Of a run on another worker that worker stops it when it next reads its record, about once a second.
    ///
    /// # Errors
    /// As [`Jobs::pause`].
    ///
    /// # Cancel safety
    /// As [`Jobs::pause`].
    pub async fn cancel(&self, job: &str, tick: Option<WallTime>) -> Result<Accepted, JobsError> {
        self.ask(JobAction::Cancel { job: job.into(), tick }).await
    }

    async fn ask(&self, what: JobAction) -> Result<Accepted, JobsError> {
        // Told at once rather than after a leader has been waited for.
        self.find(what.job()).await?;
        let env = self.quorum.env();
        let deadline = env.now() + self.wait;
        let id = RequestId::random(env);
        let request =
            JobRequest { id, by: Arc::clone(&self.by), at: self.now(), valid_for: self.valid_for, what };
        let request = self.post(request, deadline).await?;
        let inbox = inbox::part(&self.ledger);
        loop {
            match inbox.read().await {
                Ok(answers) => {
                    if let Some(answer) = classify::answer_to(&answers, id) {
                        return match answer? {
                            JobResponse::Accepted { text, count } => Ok(Accepted { id, text, count }),
                            JobResponse::Refused { why } => Err(JobsError::Refused { id, why }),
                        };
                    }
                }
                Err(LedgerError::NoMajority(report)) if report.is_permanent() => {
                    let until = classify::valid_until(&request);
                    return Err(JobsError::AnswerUnread { id, until, report });
                }
                // A read that fails otherwise says nothing about the answer.
                Err(_) => {}
            }
            if env.now() >= deadline {
                return Err(self.unanswered(&request).await);
            }
            env.sleep(AGAIN).await;
        }
    }

    /// Posts the request to a majority; gives it as it stands there.
    async fn post(&self, mut request: JobRequest, deadline: BootTime) -> Result<JobRequest, JobsError> {
        let (env, inbox) = (self.quorum.env(), inbox::part(&self.ledger));
        let mut seen = None;
        let mut perhaps = false;
        loop {
            let record = classify::asking(&request);
            let report = match inbox.write(&classify::key(request.id), seen.as_ref(), &record).await {
                Ok(()) => return Ok(request),
                // A leader has answered what reached a minority.
                Err(LedgerError::Standing(standing)) if standing.last => return Ok(request),
                Err(LedgerError::Standing(standing)) => {
                    seen = Some(standing);
                    continue;
                }
                // Too few nodes remember this moment yet, for they have only just begun to; they will the next.
                Err(LedgerError::Forgotten(report)) => {
                    perhaps = true;
                    seen = Some(record);
                    request.at = self.now().max(request.at + Duration::from_micros(1));
                    report
                }
                Err(LedgerError::NoMajority(report)) => report,
                // The inbox is sealed by nobody.
                Err(error @ LedgerError::Superseded { .. }) => {
                    return Err(JobsError::Input {
                        field: "group",
                        value: format!("{:?} ({error})", self.group),
                        fix: "its inbox was written by something else; is the group's name a job's part?",
                    });
                }
            };
            perhaps |= report.count(may_have_it) > 0;
            if env.now() >= deadline || report.is_permanent() {
                return Err(self.not_posted(&request, report, perhaps));
            }
            env.sleep(AGAIN).await;
        }
    }

    fn not_posted(&self, request: &JobRequest, report: NoMajority, perhaps: bool) -> JobsError {
        match perhaps {
            true => {
                JobsError::PerhapsPosted { id: request.id, until: classify::valid_until(request), report }
            }
            false => JobsError::NotPosted { report },
        }
    }

    async fn unanswered(&self, request: &JobRequest) -> JobsError {
        let leader = match Election::new(&self.quorum, &self.group).observe() {
            Ok(mut observer) => observer.leader().await.ok().flatten().map(|leader| leader.worker),
            Err(_) => None,
        };
        JobsError::Unanswered { id: request.id, leader, until: classify::valid_until(request) }
    }

    /// Whether there is such a job.
    ///
    /// # Errors
    /// [`JobsError::UnknownJob`], [`JobsError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn known(&self, job: &str) -> Result<(), JobsError> {
        self.find(job).await.map(|_| ())
    }

    async fn find(&self, job: &str) -> Result<JobStatus, JobsError> {
        let mut jobs = self.read().await?;
        jobs.remove(job).ok_or_else(|| JobsError::UnknownJob {
            name: job.into(),
            group: Arc::clone(&self.group),
            nearest: nearest(job, jobs.keys()),
            others: jobs.len(),
        })
    }

    async fn read(&self) -> Result<BTreeMap<Arc<str>, JobStatus>, JobsError> {
        let answers = answers(self.ledger.read().await)?;
        let mut jobs = status::jobs(&answers);
        let open = status::open(&answers);
        let slot = |tick: &status::OpenTick| SlotId {
            run: Arc::clone(&tick.run),
            generation: tick.open.generation,
            at: tick.open.at,
            horizon: tick.open.horizon,
        };
        let slots: Vec<SlotId> = open.iter().map(slot).collect();
        let shown = Slots::look(&self.quorum, &self.group, &slots).await;
        for (tick, shown) in open.into_iter().zip(shown) {
            let taken = shown.filter(|shown| shown.counted && shown.ended.is_none());
            if let (Some(taken), Some(job)) = (taken, jobs.get_mut(&tick.job)) {
                let holder = taken.holder.as_ref();
                let worker =
                    holder.map_or_else(|| "a worker that is gone".into(), |owner| owner.worker().into());
                let (request, term) = (tick.request, tick.open.term);
                let orphaned = taken.free;
                job.running.push(RunStatus { tick: tick.tick, request, worker, term, since: None, orphaned });
                job.running.sort_by_key(|run| (run.tick, run.request));
            }
        }
        Ok(jobs)
    }

    /// A job's history, oldest first.
    async fn ends(&self, job: &str) -> Result<Vec<HistoryEntry>, JobsError> {
        let part = self.ledger.part(&HistoryEntry::part(job));
        Ok(HistoryEntry::merge(&answers(part.read().await)?).0)
    }

    fn now(&self) -> WallTime {
        // The leader judges by the quorum's clock whether a request comes in time.
        self.quorum.wall()
    }
}

fn spec(row: &JobRow) -> Option<&crate::scheduler::ScheduleSpec> {
    row.spec.as_ref()
}

/// A read knows of no other trouble than too few answers.
fn answers(read: Result<Vec<Answered>, LedgerError>) -> Result<Vec<Answered>, JobsError> {
    read.map_err(|error| match error {
        LedgerError::NoMajority(report) | LedgerError::Forgotten(report) => JobsError::NoMajority(report),
        LedgerError::Superseded { .. } | LedgerError::Standing(_) => {
            JobsError::NoMajority(NoMajority::new(0, Vec::new()))
        }
    })
}

/// Whether a node may have what it was asked to write, though it has not said so.
fn may_have_it(outcome: &NodeOutcome) -> bool {
    match outcome {
        NodeOutcome::Granted | NodeOutcome::Pending | NodeOutcome::Done | NodeOutcome::Contended { .. } => {
            true
        }
        NodeOutcome::Unreachable(cause) => !matches!(
            cause,
            Cause::Unreachable(_) | Cause::Denied(_) | Cause::Misconfigured(_) | Cause::Stopped
        ),
        NodeOutcome::Untrusted(_) | NodeOutcome::Refused(_) => false,
    }
}
