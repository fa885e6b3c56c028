//! When a job's ticks are due, which of the missed ones still run, and what the ledger says of one of them.
//!
//! # What is not guaranteed
//!
//! A tick is a point on the *quorum's* clock ([`Quorum::wall`](crate::quorum::Quorum::wall)), the median of the nodes'
//! wall clocks: what the leader's own wall clock shows is of no account, but the clocks of a majority of the nodes may
//! step. A step forward makes the ticks in between missed ones (the [`Misfire`] rule decides); a step back repeats
//! none, because the planner is told how far it has looked, but delays the next one. Nothing here reads a clock or
//! promises that anybody is awake at a tick: these are pure functions, and the leader's runner acts on them.
//!
//! Zones are as good as the IANA tables that were compiled in ([`Zone::tables_version`]). Workers built with different
//! tables may see one tick at two instants in the weeks around a change of the law. A cron line has no ticks after the year
//! 9999.
//!
//! # The parts
//!
//! * [`Schedule`]: [`Every`], [`Cron`], [`Delay`], [`At`], or a [`Timetable`] of one's own; at the core one method, [`Schedule::next_after`]
//! * [`due`]: from a schedule, a [`Misfire`] rule and two points in time to the ticks to run
//! * [`verdict`] and [`Delivery::decide`]: from what the nodes' ledgers say of a tick to run or skip
//! * [`RunRecord`], [`RunKey`]: how a tick stands in the ledger
//!
//! # What becomes of a tick
//!
//! *Due* → (*waits* for its turn) → *started*, written to a majority → its attempts → its end, written to a majority. Of a job
//! that is placed on any worker: *open*, written to a majority → a worker takes its slot → its attempts → the worker records
//! the end in the slot → the leader writes the end to a majority (`docs/design/scheduler.md`).
//! Each tick comes to one of the ends of [`RunOutcome`], with the reason, in its job's history ([`HistoryEntry`]), and as
//! one event (target `quorate::scheduler::tick`, with the fields by which `tracing-opentelemetry` counts), and is counted
//! in this process ([`SchedulerHandle::counts`]). Ticks that are skipped together are one entry.
//!
//! | end | when | runs again? |
//! | --- | --- | --- |
//! | done | its handler returned Ok | no |
//! | failed, timed-out | its last attempt did ([`Job::retries`], [`Job::timeout`]) | no |
//! | cancelled | on request, or for a later tick ([`Overlap::CancelOld`]) | no |
//! | cancelled | it was told to stop at a step-down | at-least-once: under the next leader, which has an entry of its own |
//! | skipped-overlap | an earlier run went on, or a later tick stands for it ([`Overlap`]) | no |
//! | skipped-misfire | nobody ran it in time ([`Misfire`]) | no |
//! | skipped-paused | its job was paused; one entry, when it is resumed | no |
//! | lost | at-most-once: it was started, or may have been, and left no word of its end | no |
//!
//! What stands as started and not ended when a leader begins is owed: at-least-once it runs again, however late and
//! whatever the misfire rule; at-most-once it is lost. For that the ledger holds on to it for a day behind what it keeps
//! anyway, or for as long as the longest [`Job::timeout`] with its [`Job::retries`] allows, but for no more than some
//! 1,000,000 ticks of all jobs: of a run that has gone on for longer no later leader knows, and it is not made up.
//!
//! # What is not guaranteed of histories, states and requests
//!
//! * A history entry is written a little after the end, off the path of the ticks: a crash keeps back those of the last
//!   moments. The next leader enters them as the ticks' own records tell: how they ended and how long they took, not when
//!   they began nor how often they were tried; of runs that somebody asked for it does not. A history on a majority of
//!   nodes that are all lost is lost.
//! * A job's state is written just before its *done*: a run that is repeated may find what it has left itself.
//! * While a job is paused no entry is written; the pause itself stands in the job's row ([`JobRow`]).
//! * A pause gives up what waits, also an at-least-once tick that was interrupted before.
//! * A request ([`JobAction`]) is carried out once, by its id. Runs that it makes are never skipped for an overlap, take
//!   turns with what the schedule has due, and go one after another; a back-fill of more than 1,000 ticks is refused.
//!   Where the job's schedule changes before its end, the rest of a back-fill is given up; where the job is removed,
//!   all that has not begun. What was asked of a job that the present leader does not know waits for one that does, and
//!   is dropped without a word once the ledger has forgotten its time.
//! * Of a pause or a resumption a job's row remembers the last eight: one that comes again after more is carried out again.
//!   Of a cancellation nothing is written but in the records of the runs that workers execute.
//!
//! # A job that changes between versions
//!
//! Its row holds its schedule. Where a leader finds another there than its own, ticks by its own count from that moment:
//! nothing from before is made up, and what has been recorded is not run again. What was begun by the old schedule and is
//! owed a run has it. While old and new versions lead in turn, each hand-over to the other one counts as such a change.
//! Another [`Placement`] counts as such a change too. Other rules, and the handler, hold from the next run on. What the ledger has of jobs that a leader does not know it keeps for as long
//! as their rows say ([`JobRow::window`]), within the bounds above.
//!
//! # When what is known of a job ends
//!
//! * Each worker says now and then, a few times in [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention) (30
//!   days), which jobs it has. What nobody says for that time ends: the job's history, its row (whether it is paused, since
//!   when it is due), its state, and its open requests. It does not matter whether a leader, or any leader, removed the job.
//! * A job that the leader's configuration no longer has, and that other workers still have, ends only that long after the
//!   last of them. So a rolling restart, or two versions side by side, lose nothing.
//! * Where a leader itself has a job removed while it leads ([`SchedulerHandle::remove`]), the job's row and state end at
//!   once: a job of that name that is added later begins anew. Its history stays as above, and goes on if the job comes back.
//! * All ledgers of a group end by the nodes' own clocks after its last worker: after five quarters of that time, or twice
//!   the time for which records are of use to its jobs (at least two days), whichever is longer. A group without workers
//!   costs memory until then, and nothing else.
//!
//! # Sizing
//!
//! The ledger keeps a tick's record for the longest misfire window and some 25 s, longer while a run that is older has not
//! ended (see above), at most 200,000 of all jobs together
//! ([`ScheduleError::TooManyTicks`]); a job has a row and, where it keeps one, a state, and 60 bytes or so to say when a worker last had it; and a history of
//! [`Job::history`] to twice as many entries. On a Redis server (7.0, `MEMORY USAGE`, a job's name of 14 bytes and a
//! worker's of 14) a tick that is done takes about 230 bytes, an entry of a history 316, a job's row 396. A run on a worker
//! takes a claim beside it (about 400 bytes with its result) until an hour or more after its misfire window: 3,600 gaps
//! between ticks, but at least an hour and at most a day.
//!
//! # The rule for skipped and repeated local times
//!
//! One rule for both dialects of [`Cron`], chosen by [`Cron::dst`] and stated at [`Dst`]. The default is that of
//! cronie (Vixie cron), from its manual `cron(8)`, "Daylight Saving Time and other time changes": fixed-time jobs
//! run once, right after a gap and in the first pass; interval jobs follow real time. The rules live in one
//! place, the private module `times::local`.

mod builder;
mod check;
mod control;
mod counts;
mod handle;
mod job;
mod leader;
mod plan;
mod policy;
mod registry;
mod run;
mod schedule;
mod store;

pub use builder::{ScheduleError, Scheduler, SchedulerRun};
pub use control::{
    Accepted, JobAction, JobRequest, JobResponse, JobStatus, Jobs, JobsError, RequestId, RequestIdError,
    RunStatus, UnknownSchedule,
};
pub use counts::{JobCounts, Lateness, RunCounts};
pub use handle::SchedulerHandle;
pub use job::Job;
pub use plan::verdict::{Decision, NodeAnswer, RunVerdict, SkipReason, verdict};
pub use policy::{
    DUE_MAX, Delivery, DueTicks, Misfire, MisfireReason, MisfiredTicks, Overlap, Placement, Retry, RunAll,
    RunOnce, due,
};
pub use run::{RunContext, StateError};
pub use schedule::{
    At, Cron, CronError, CustomSchedule, Delay, Dst, DstError, Every, EveryError, Schedule, ScheduleSpec,
    SpecError, Timetable, Zone, ZoneError, at, delay, every,
};
pub use store::{
    HistoryEntry, JobRow, OpenRun, Paused, RecordError, RunCause, RunKey, RunOutcome, RunRecord,
};

#[doc(hidden)]
pub use plan::verdict::{first_opened, goes_forward, inherited, is_open, memory_needed, overwrites, voided};
