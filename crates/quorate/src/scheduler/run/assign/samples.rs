//! Runs, workers, and times for the tests of this room.

use super::dispatcher::Now;
use crate::{
    env::{BootTime, WallTime},
    ledger::Registered,
    node::{FencingToken, Refusal, Reply},
    scheduler::{
        job::{Job, RunCause, RunOutcome},
        policy::Delivery,
        schedule::Schedule,
        store::{Announcement, AssignedTo, OpenRun, WorkEnd, WorkResult},
    },
};
use std::{sync::Arc, time::Duration};

/// The number of nodes.
pub(super) const NODES: usize = 3;
/// The run of [`open`] is due at this time, in milliseconds.
pub(super) const DUE: u64 = 10_000;
/// No worker starts the run of [`open`] after this time, in milliseconds.
pub(super) const TAKE_BY: u64 = 20_000;

/// Returns the time after so many milliseconds. The two clocks show different numbers.
pub(super) fn ms(after: u64) -> Now {
    (BootTime::from_nanos((7_000 + after) * 1_000_000), wall(after))
}

pub(super) fn wall(after: u64) -> WallTime {
    WallTime::from_micros((1_000_000 + after) * 1_000)
}

/// Returns the time on the steady clock that comes so many milliseconds after `now`.
pub(super) fn later(now: Now, by: u64) -> BootTime {
    now.0 + Duration::from_millis(by)
}

pub(super) fn job(name: &str) -> Arc<Job> {
    Arc::new(Job::new(name, Schedule::every(Duration::from_secs(60)).unwrap(), |_| async {
        Ok::<(), String>(())
    }))
}

/// Returns the first generation of a run, which has no worker.
pub(super) fn open(delivery: Delivery) -> OpenRun {
    OpenRun {
        generation: 1,
        at: wall(0),
        not_before: wall(DUE),
        take_by: wall(TAKE_BY),
        delivery,
        cause: RunCause::Scheduled,
        term: FencingToken::new(3),
        labels: Default::default(),
        uses: None,
        state: None,
        cancel: None,
        payload: None,
        job: None,
        token: FencingToken::default(),
        to: None,
    }
}

/// Returns the assignment `seq` of the term 3 to the worker of a session. The worker has the session's name.
pub(super) fn to(session: &str, seq: u64) -> AssignedTo {
    AssignedTo { worker: session.into(), session: session.into(), term: FencingToken::new(3), seq }
}

pub(super) fn who(worker: &str, room: usize) -> Announcement {
    Announcement { worker: worker.into(), room, labels: Default::default(), jobs: 1, handlers: Vec::new() }
}

/// Returns the answers to a request of which so many nodes carried it out, were too late, and took no part.
pub(super) fn registered(done: usize, too_late: usize, no_part: usize) -> Registered {
    let replies = [
        (Reply::Written, done),
        (Reply::Refused(Refusal::TooLate), too_late),
        (Reply::Refused(Refusal::NoPart), no_part),
    ];
    let replies: Vec<Reply> = replies.into_iter().flat_map(|(reply, times)| vec![reply; times]).collect();
    Registered::counted(NODES, &replies)
}

/// Returns the result of a worker that executed a run, with `None` if the run was interrupted.
pub(super) fn result(end: Option<RunOutcome>) -> WorkResult {
    WorkResult { end, attempts: 1, ..WorkResult::none(&"w".into(), "a reason".into()) }
}

pub(super) fn done() -> WorkEnd {
    WorkEnd::Done(result(Some(RunOutcome::Done)))
}

pub(super) fn not_started(lacks_job: bool) -> WorkEnd {
    WorkEnd::NotStarted { why: "a reason".into(), lacks_job }
}
