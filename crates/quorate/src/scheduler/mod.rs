//! Runs periodic jobs: each tick of a job's schedule runs on one worker of a group, with retries, catch-up runs and a history.
//!
//! ```
//! use quorate::{Cron, Job, Quorum, Scheduler, scheduler::{Misfire, Retry}};
//! use std::time::Duration;
//!
//! # async fn example(quorum: &Quorum) -> Result<(), Box<dyn std::error::Error>> {
//! let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
//! let report = Job::new("report", nightly, |run| async move {
//!     println!("due at {}, under token {:?}", run.at(), run.fencing_token());
//!     Ok::<(), std::io::Error>(())
//! });
//! let report = report.misfire(Misfire::run_once(Duration::from_secs(3600))).retries(Retry::new(3));
//! Scheduler::new(quorum, "billing").job(report).run().await?; // until it is drained
//! # Ok(())
//! # }
//! ```
//!
//! A *tick* is the instant at which a job is due. A *run* is the execution of a tick, or of a request. The leader of the
//! group plans every tick. It executes the run itself, or lets any worker of the group take it ([`Placement`]).
//!
//! * [`Scheduler`], [`Job`]: the jobs of a group, and their rules. [`SchedulerHandle`] changes the jobs while they run.
//! * [`Cron`], [`every`], [`delay`], [`at`], or a [`Timetable`]: the [`Schedule`] of a job.
//! * [`Misfire`], [`Overlap`], [`Delivery`], [`Placement`], [`Retry`]: the rules of a job.
//! * [`RunContext`]: the argument of a handler.
//! * [`Jobs`]: status, history and control of the jobs, from any worker.
//!
//! # Not guaranteed
//!
//! * *One run at a time, without a fencing token.* A worker that is paused between its last check of its lease and the start
//!   of the handler starts late. The sink must compare the fencing token ([`RunContext::fencing_token`]).
//! * *Exactly once.* Under [`Delivery::AtMostOnce`] a run that was started and did not record its end is *lost*, even
//!   if no handler has started. Under [`Delivery::AtLeastOnce`] a run may be repeated after it is done, if a node has
//!   lost its memory.
//! * *Punctuality.* Ticks follow the clock of the quorum ([`Quorum::wall`](crate::quorum::Quorum::wall)), the median of
//!   the nodes' wall clocks. The wall clock of the leader does not matter, but the clocks of a majority of the nodes
//!   may step. If they step forward, the ticks in between are missed, and the [`Misfire`] rule decides whether they
//!   run. If they step back, no tick is repeated, because the planner stores the time up to which it has planned, but
//!   the next tick is delayed.
//! * *Equal time zone tables.* The IANA tables are compiled in ([`Zone::tables_version`]). Workers with different tables may
//!   see one tick at two instants in the weeks around a change of the law.
//! * *Progress without a leader.* While there is no leader, no further run is opened. Workers only execute the runs
//!   that are already open.
//! * *Complete histories.* An entry is written a little after the end of the run, so a crash may lose the last entries.
//!   The next leader writes the lost entries again from the records of the ticks. These have the outcome and the
//!   duration, but not the start time and the number of attempts. Lost entries of requested runs are not written again.
//!   A history is lost if a majority of its nodes loses it.
//! * *A state that matches its run.* The state ([`RunContext::set_state`]) is written just before *done*. A run that is
//!   repeated may find the state that it has written itself.
//!
//! # Outcomes
//!
//! Each tick has one of the outcomes of [`RunOutcome`], with a reason, in the history of its job ([`HistoryEntry`]). It is
//! also logged as one event (target `quorate::scheduler::tick`, with fields that `tracing-opentelemetry` counts), and counted
//! in this process ([`SchedulerHandle::counts`]). Ticks that are skipped together are one entry.
//!
//! | outcome | cause | repeated? |
//! | --- | --- | --- |
//! | done | the handler returned `Ok` | no |
//! | failed, timed-out | the last attempt failed or timed out ([`Job::retries`], [`Job::timeout`]) | no |
//! | cancelled | on request, or for a later tick ([`Overlap::CancelOld`]) | no |
//! | cancelled | at a step-down | at-least-once: by the next leader, with an entry of its own |
//! | skipped-overlap | an earlier run was active, or a later tick replaces this one ([`Overlap`]) | no |
//! | skipped-misfire | the tick was not planned in time ([`Misfire`]) | no |
//! | skipped-paused | the job was paused; one entry, when the job is resumed | no |
//! | lost | at-most-once: the run was or may have been started, and its end is not recorded | no |
//!
//! A run is unfinished if, when a leader begins, it is recorded as started and not as ended. An unfinished
//! at-least-once run is repeated, however late and under every misfire rule. An unfinished at-most-once run is lost.
//! The ledger keeps such records for a day more than others, or for as long as the longest [`Job::timeout`] with its
//! [`Job::retries`] allows. It keeps them for at most some 1,000,000 ticks of all jobs. A run that was active for
//! longer is not repeated.
//!
//! # Pauses and requests
//!
//! * While a job is paused, its history gets no entries. A pause also drops waiting ticks, and an at-least-once tick that was
//!   interrupted before.
//! * A request of [`Jobs`] is carried out once, by its id. The runs of a request are never skipped by the overlap rule.
//!   They alternate with the ticks of the schedule, and run one after another.
//! * If the schedule of a job changes, the rest of a back-fill is dropped. If the job is removed, all its runs that
//!   have not started are dropped. A request for a job that the present leader does not have waits for a leader that
//!   has the job. It is dropped, without a report, when the ledger has pruned the time of the request.
//! * The row of a job stores the ids of the last eight pauses and resumptions. If an earlier request is sent again, it
//!   is carried out again. A cancellation is recorded only for runs that workers execute.
//!
//! # Changed and removed jobs
//!
//! The ledger stores the schedule of each job. A leader with another schedule or [`Placement`] counts the ticks of the
//! job from that moment: it runs no catch-up for earlier ticks, and repeats no recorded one. Unfinished runs of the old
//! schedule are still executed. If leaders of an old and a new version alternate, each change of the leader counts as
//! such a change. Other rules, and the handler, apply from the next run on.
//!
//! The nodes keep the data of a job for
//! [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention) (30 days) after the last worker
//! with the job has stopped. So a rolling restart, or two versions at the same time, lose no data. If a leader removes
//! a job ([`SchedulerHandle::remove`]), the job's row and state end at once. A job of that name that is added later
//! starts as a new one. The history is kept, and continues if the job is added again. `docs/design/bounds.md` lists the
//! sizes. `docs/design/scheduler.md` describes the protocol, its rules, and how a search checks each rule.

mod builder;
mod check;
pub(crate) mod control;
mod counts;
mod error;
mod handle;
mod job;
mod leader;
pub(crate) mod plan;
pub(crate) mod policy;
mod registry;
mod run;
pub(crate) mod schedule;
pub(crate) mod store;

pub use builder::{Scheduler, SchedulerRun};
pub use control::{Accepted, JobStatus, Jobs, JobsError, RequestId, RunStatus};
pub use counts::{JobCounts, Lateness, RunCounts};
pub use error::ScheduleError;
pub use handle::SchedulerHandle;
pub use job::Job;
pub use policy::{Delivery, Misfire, Overlap, Placement, Retry};
pub use run::RunContext;
pub use schedule::{Cron, Dst, InvalidSchedule, Schedule, Timetable, Zone, at, delay, every};
pub use store::{HistoryEntry, RunCause, RunOutcome};

// Short paths for the items of the modules below.
pub(crate) use control::{JobAction, JobRequest, JobResponse};
pub(crate) use plan::verdict::{
    Decision, NodeAnswer, RunVerdict, SkipReason, first_opened, goes_forward, inherited, is_open,
    memory_needed, overwrites, verdict, voided,
};
pub(crate) use policy::{DUE_MAX, DueTicks, MisfiredTicks};
pub(crate) use store::{JobRow, OpenRun, Paused, RunKey, RunRecord};
