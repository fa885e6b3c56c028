//! Runs periodic jobs. Each time that a job is due, one worker of a group runs it, with retries, catch-up
//! runs and a history.
//!
//! ```
//! use quorate::{Cron, Job, Quorum, Scheduler, scheduler::{Misfire, Retry}};
//! use std::time::Duration;
//!
//! # async fn example(quorum: &Quorum) -> Result<(), Box<dyn std::error::Error>> {
//! let nightly = Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?;
//! let report = Job::new("report", nightly, |run| async move {
//!     println!("due at {}, under token {:?}", run.scheduled_at(), run.fencing_token());
//!     Ok::<(), std::io::Error>(())
//! });
//! let report = report.misfire(Misfire::run_once(Duration::from_secs(3600))).retries(Retry::new(3));
//! Scheduler::new(quorum, "billing").job(report).run().await?; // until it is drained
//! # Ok(())
//! # }
//! ```
//!
//! A *tick* is the instant at which a job is due. A *run* is the execution of a tick, or of a request
//! ([`Jobs`]). The leader of the group plans every tick. It executes the run itself, or assigns the run to a
//! worker of the group ([`Placement`]).
//!
//! * [`Scheduler`], [`Job`]: the jobs of a group, and their rules. [`SchedulerHandle`] changes the jobs while
//!   they run.
//! * [`Cron`], [`Schedule::every`], [`Schedule::delay`], [`Schedule::at`], or a [`Timetable`]: the [`Schedule`] of a job.
//! * [`Misfire`], [`Overlap`], [`Delivery`], [`Placement`], [`Retry`]: the rules of a job.
//! * [`RunContext`]: the argument of a handler.
//! * [`Jobs`]: status, history and control of the jobs, from any worker.
//!
//! # Not guaranteed
//!
//! * *One run at a time, without a fencing token.* If a worker is paused between its last check of its lease
//!   and the start of the handler, the handler starts late, when another worker may already run it. So the
//!   store to which the handler writes must refuse older fencing tokens ([`RunContext::fencing_token`]).
//! * *Exactly once.* Under [`Delivery::AtMostOnce`], a run with a recorded start and no recorded end is
//!   *lost*, even if its handler never started. Under [`Delivery::AtLeastOnce`], a run may be repeated after
//!   it is done, if a node has lost its memory.
//! * *Punctuality.* Ticks follow the clock of the quorum ([`Quorum::wall`](crate::quorum::Quorum::wall)), the
//!   median of the nodes' wall clocks. The wall clock of the leader does not matter. If the clocks of a
//!   majority of the nodes step forward, the ticks in between are missed, and the [`Misfire`] rule decides
//!   whether they run. If those clocks step back, the next tick is delayed. No tick is repeated, because the
//!   leader remembers the time up to which it has planned.
//! * *Equal time zone tables.* The IANA tables are compiled in ([`Zone::tables_version`]). Workers with
//!   different tables may compute different instants for one tick, in the weeks around a change of a zone's
//!   rules.
//! * *Progress without a leader.* While there is no leader, no further run is assigned. Workers only start and
//!   execute the runs that they have.
//! * *Complete histories.* An entry is written a little after the end of the run, so a crash may lose the
//!   last entries. The next leader writes the lost entries again from the records of the ticks. The records
//!   have the outcome and the duration, but not the start time and the number of attempts. Lost entries of
//!   ticks that a pause, a freeze or a changed schedule left out, or that are older than the misfire window, are
//!   not written again. A history is lost if a majority of its nodes loses it.
//! * *The memory of nodes that have all lost their data.* A leader that finds no row of a job starts the job as a new one:
//!   earlier ticks and unfinished runs are neither run nor entered in the history. It logs a warning if it led with
//!   the job before.
//! * *A state that matches its run.* The leader stores the state ([`RunContext::set_state`]) just before it
//!   records that the run is done. If the leader crashes in between, the run is repeated, and may find the
//!   state that its first execution set.
//!
//! # Outcomes
//!
//! Each tick has one of the outcomes of [`RunOutcome`], with a reason, in the history of its job
//! ([`HistoryEntry`]). The outcome is also logged as one event (target `quorate::scheduler::tick`), and
//! counted in the leader's process (feature `metrics`). Ticks that are skipped together get one
//! entry.
//!
//! | outcome | cause | repeated? |
//! | --- | --- | --- |
//! | done | the handler returned `Ok`, also after its cancellation; see [`RunContext::interrupted`] | no |
//! | failed, timed-out | the last attempt failed or timed out ([`Job::retries`], [`Job::timeout`]) | no |
//! | cancelled | on request, for a later tick ([`Overlap::CancelOld`]), or because the job was removed before the run started | no |
//! | cancelled | at a step-down | at-least-once: by the next leader, with an entry of its own |
//! | skipped-overlap | an earlier run was active, or a later tick replaces this one ([`Overlap`]) | no |
//! | skipped-misfire | the tick was not run in time ([`Misfire`]), or the job's schedule or placement changed while it waited | no |
//! | skipped-paused | the job was paused; one entry, when the job is resumed | no |
//! | skipped-frozen | the group was frozen; one entry for each job, when the freeze ends | no |
//! | lost | at-most-once: the run was or may have been started, and its end is not recorded | no |
//!
//! When a leader begins, a run is *unfinished* if the ledger has its start and not its end. An unfinished
//! at-least-once run is repeated, however late it is and under every misfire rule. An unfinished at-most-once
//! run is lost. The ledger keeps the record of an unfinished run for a day longer than other records. If the
//! longest [`Job::timeout`] with its [`Job::retries`] allows a longer run, the additional time is as long as
//! that run. The additional time is shorter if all jobs together have more than 1,000,000 ticks within it. An
//! unfinished run whose record is no longer kept is not repeated.
//!
//! # Pauses and requests
//!
//! * The ticks of a pause get one entry together, when the job is resumed or the end of the pause has come
//!   ([`Jobs::pause_until`]). A pause also skips the ticks that wait, and an at-least-once tick that was
//!   interrupted before; each of them gets an entry at once.
//! * Each request of [`Jobs`] has an id, which the handler sees ([`RunContext::request`]). A leader that receives a
//!   request again recognizes it by this id. So each request is carried out once. The tick of a triggered run is the
//!   time of the request; of two requests for a job in one microsecond, one run is a microsecond later. The overlap rule never skips the runs of a request. Requested runs
//!   alternate with the ticks of the schedule, and run one after another.
//! * If the next leader has another schedule for a job, the runs of a back-fill that have not ended are
//!   dropped, without entries in the history. The run of a trigger is kept, because it does not depend on the
//!   schedule. If the job is removed, all its runs that have not started are dropped. If a later leader does
//!   not have the job of an accepted request, the request waits for a leader that has the job. The request is
//!   dropped, without an entry in the history, once the low-water mark of the ledger is later than the request.
//! * The ledger stores, in the row of a job, the ids of the last eight pauses and resumptions. If a pause or
//!   a resumption from before these eight is sent again, it is carried out again. The row does not store the
//!   ids of cancellations.
//!
//! # Changed and removed jobs
//!
//! The ledger stores the schedule of each job. If a leader has another schedule or [`Placement`] for the job,
//! the job's ticks count from the moment at which this leader begins. It runs no catch-up for earlier ticks,
//! and repeats no recorded tick. Unfinished runs of the old schedule are still executed. If leaders of an old
//! and a new version alternate, each change of the leader changes the schedule again. A change of another
//! rule, or of the handler, applies from the next run on.
//!
//! The nodes keep the data of a job for
//! [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention) (30 days) after the last
//! worker with the job has stopped. So a rolling restart, or two versions at the same time, lose no data. If
//! a leader removes a job ([`SchedulerHandle::remove`]), the job's row ends at once, and its state once no
//! run of the job is active. A job of that name that is added later starts as a new one. The history is kept,
//! and continues if the job is added again. `docs/design/bounds.md` lists the sizes.
//! `docs/design/scheduler.md` describes the protocol, its rules, and how a search checks each rule.

// Each of these modules, the *rooms*, may use only the rooms below it, and names what it uses by its room. From the
// bottom to the top: `schedule` and `policy`; `job`; what a worker knows of its jobs (`counts`, `registry`); `store`,
// which has every record, row and request, and the rules that decide on records; `run`, which executes; `plan`, which
// decides; `control`, for operators; `leader`, which carries the decisions out; and the builder and the handle.
// `tests/layers` has the exact order, and checks it.
mod alert;
mod builder;
mod check;
pub(crate) mod control;
mod counts;
mod handle;
pub(crate) mod job;
mod leader;
mod plan;
pub(crate) mod policy;
mod registry;
mod run;
pub(crate) mod schedule;
pub(crate) mod store;
mod wire;

#[doc(hidden)]
pub use alert::{AlertKind, JobAlert};
pub use builder::{Scheduler, SchedulerRun};
pub use control::{Accepted, Explanation, JobStatus, Jobs, JobsError, Reason, RunStatus, StoredDefinition};
#[doc(hidden)]
pub use counts::{JobCounts, Lateness, RunCounts};
pub use handle::SchedulerHandle;
pub use job::{Job, Payload, RequestId, RunCause, RunContext, RunOutcome};
#[doc(hidden)]
pub use policy::{Concurrency, Labels};
pub use policy::{Delivery, Misfire, Overlap, Placement, Retry};
pub use schedule::{AfterEnd, Cron, Dst, InvalidSchedule, Schedule, Timetable, Zone};
pub use store::HistoryEntry;
