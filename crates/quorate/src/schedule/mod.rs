//! When a job's ticks are due, which of the missed ones still run, and what the ledger says of one of them.
//!
//! # What is not guaranteed
//!
//! A tick is a point on the *quorum's* clock ([`Quorum::wall`](crate::lease::Quorum::wall)), the median of the nodes'
//! wall clocks: what the leader's own wall clock shows is of no account, but the clocks of a majority of the nodes may
//! step. A step forward makes the ticks in between missed ones (the [`Misfire`] rule decides); a step back repeats
//! none, because the planner is told how far it has looked, but delays the next one. Nothing here reads a clock or
//! promises that anybody is awake at a tick: these are pure functions, and the leader's runner acts on them.
//!
//! Zones are as good as the IANA tables that were compiled in. Workers built with different tables may see
//! one tick at two instants in the weeks around a change of the law. The `cron` crate knows no year after
//! 2100: a cron line does not fire after it.
//!
//! # The parts
//!
//! * [`Schedule`]: [`Every`], [`Cron`], [`Delay`], [`At`], or a [`Timetable`] of one's own; at the core one method, [`Schedule::next_after`]
//! * [`due`]: from a schedule, a [`Misfire`] rule and two points in time to the ticks to run
//! * [`verdict`] and [`Delivery::decide`]: from what the nodes' ledgers say of a tick to run or skip
//! * [`TickRecord`], [`TickKey`]: how a tick stands in the ledger
//!
//! # The rule for skipped and repeated local times
//!
//! One rule for both dialects of [`Cron`], chosen by [`Cron::dst`] and stated at [`Dst`]. The default is that of
//! cronie (Vixie cron), from its manual `cron(8)`, "Daylight Saving Time and other time changes": fixed-time jobs
//! run once, right after a gap and in the first pass; interval jobs follow real time. The rules live in one
//! place, the private module `times::local`.

mod check;
mod counts;
mod handle;
mod job;
mod leader;
mod misfire;
mod operate;
mod roster;
mod rules;
mod scheduler;
mod spread;
mod ticks;
mod times;
mod work;

pub use counts::{JobCounts, Lateness, TickCounts};
pub use handle::SchedulerHandle;
pub use job::Job;
pub use misfire::{DUE_MAX, Due, Misfire, MisfireReason, RunAll, RunOnce, Skipped, due};
pub use operate::{Accepted, JobStatus, Jobs, JobsError, RunningTick, SchedulePuzzle};
pub use rules::{Overlap, Placement, Retry};
pub use scheduler::{ScheduleError, Scheduler, SchedulerRun};
pub use ticks::{
    Answer, Ask, Decision, Delivery, JobRow, NodeAnswer, Paused, RecordError, Request, RequestId,
    RequestIdError, SkipReason, TickCause, TickEnd, TickHistory, TickKey, TickRecord, TickVerdict, verdict,
};
pub use times::{
    At, Cron, CronError, Custom, Delay, Dst, DstError, Every, EveryError, Schedule, ScheduleSpec, SpecError,
    Timetable, Zone, ZoneError, at, delay, every,
};
pub use work::{StateError, Tick};

use misfire::due_with;
