//! Observes the second group of the simulation, also called the pool: its runs in true time, and the requests
//! of an operator with their answers.

use super::{Event, Host, Referee, invariant::MAJORITY};
use quorate::{
    env::{BootTime, Env, WallTime},
    internals::JobAction,
    scheduler::{RequestId, RunCause, RunContext},
};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

/// After a worker's boot clock stood still, the worker may not notice that a claim or a term has ended. This
/// is the longest time, by the boot clock, for which that can happen. No claim or term lasts longer than this
/// without an extension.
const HELD_AT_MOST: Duration = Duration::from_secs(4);

/// The start of a run of the second group. The event is reported when the handler is called.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// The run's number, unique in the simulation.
    pub run: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: Arc<str>,
    /// The time at which the run was due. For a triggered run, the time of the request.
    pub at: WallTime,
    /// The cause of the run.
    pub cause: RunCause,
    /// The fencing token of the term or the claim under which the run executes.
    pub token: u64,
    /// `true` if the worker considers that term or claim valid.
    pub valid: bool,
    /// The true wall time of the start.
    pub true_wall: WallTime,
    /// The largest amount by which the clocks of a majority of the servers were ahead of the true time within
    /// the last seconds. These clocks decide when a tick is due.
    pub ahead: Duration,
    /// `true` if the worker's boot clock stood still so recently that the worker cannot know whether the term
    /// or the claim has ended.
    pub clock_stood: bool,
    /// The other runs of the same job that are active when this run starts.
    pub beside: Vec<Beside>,
}

/// A run that is active while another run of the same job starts.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The run's number.
    pub run: u64,
    /// `true` if both runs are in one process.
    pub same_process: bool,
    /// The time for which the process of this run's worker has run without a pause. `None` while the process is
    /// paused.
    pub awake_for: Option<Duration>,
    /// Like [`RunStart::clock_stood`], for the worker of this run.
    pub clock_stood: bool,
}

/// The end of a run of the second group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The way in which the handler ended.
    pub end: HandlerEnd,
    /// The duration of the run, by its worker's boot clock.
    pub took: Duration,
    /// `true` if the run was cancelled before it ended.
    pub stopped: bool,
    /// `true` if the run lasted at least as long as the job's timeout.
    pub overdue: bool,
}

impl RunEnd {
    /// Returns `true` if the handler finished, failed or reached its timeout. Such a run must not be repeated.
    pub fn is_own(&self) -> bool {
        match self.end {
            HandlerEnd::Done | HandlerEnd::Failed => true,
            HandlerEnd::Stopped | HandlerEnd::Dropped => self.overdue,
            HandlerEnd::Interrupted => false,
        }
    }
}

/// The ways in which a handler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerEnd {
    /// The handler returned `Ok`.
    Done,
    /// The handler returned an error, or panicked.
    Failed,
    /// The handler marked its run as interrupted.
    Interrupted,
    /// The handler was cancelled, and returned.
    Stopped,
    /// The handler was dropped, because its process, its scheduler, its term or its claim ended, or because it ran
    /// longer than its timeout.
    Dropped,
}

/// A request of the operator.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request's number, unique in the simulation.
    pub number: u64,
    /// The requested action.
    pub ask: JobAction,
    /// The true wall time at which the operator sends the request.
    pub at: WallTime,
}

/// The result of a request, as the operator received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The leader has accepted the request.
    Accepted {
        /// The request's id.
        id: RequestId,
        /// The number of runs that the request creates or cancels.
        count: u64,
    },
    /// The leader has refused the request.
    Refused {
        /// The request's id.
        id: RequestId,
    },
    /// The operator does not know whether the request was or will be carried out.
    Unknown {
        /// The request's id. `None` if the operator stopped waiting before it learned the id.
        id: Option<RequestId>,
    },
    /// The request reached no node.
    NotSent,
}

impl Told {
    /// Returns the name under which the result is counted.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Refused { .. } => "refused",
            Self::Unknown { .. } => "unknown",
            Self::NotSent => "not sent",
        }
    }
}

/// The referee's record of an active run of the second group.
#[derive(Debug)]
pub(super) struct Going {
    host: Arc<Host>,
    job: Arc<str>,
}

/// A guard for an active run of a handler. Dropping the guard reports the end of the run.
#[derive(Debug)]
pub struct JobRun {
    referee: Arc<Referee>,
    number: u64,
    env: Env,
    began: BootTime,
    tick: RunContext,
    timeout: Option<Duration>,
    end: Option<HandlerEnd>,
}

impl JobRun {
    /// Returns the run's number, unique in the simulation.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Records how the handler ends. The handler calls this just before it returns or panics.
    pub fn ends(mut self, end: HandlerEnd) {
        self.end = Some(end);
    }
}

impl Drop for JobRun {
    fn drop(&mut self) {
        let took = self.began.until(self.env.now());
        let end = RunEnd {
            end: self.end.unwrap_or(HandlerEnd::Dropped),
            took,
            stopped: self.tick.cancellation_token().is_cancelled(),
            overdue: self.timeout.is_some_and(|timeout| took >= timeout),
        };
        self.referee.going().remove(&self.number);
        self.referee.note(format_args!("run {} of {} ends: {end:?}", self.number, self.tick.job()));
        self.referee.count(match end.end {
            HandlerEnd::Done => "pool run done",
            HandlerEnd::Failed => "pool run failed",
            HandlerEnd::Interrupted => "pool run interrupted",
            HandlerEnd::Stopped => "pool run stopped",
            HandlerEnd::Dropped if end.overdue => "pool run timed out",
            HandlerEnd::Dropped => "pool run dropped",
        });
        self.referee.judge(&Event::RunEnded { run: self.number, end });
    }
}

impl Referee {
    /// Reports to the invariants that the handler of `tick` starts.
    pub fn run_started(
        self: &Arc<Self>,
        host: &Arc<Host>,
        env: &Env,
        tick: &RunContext,
        timeout: Option<Duration>,
    ) -> JobRun {
        let now = self.truth().now();
        let run = self.next_number();
        let awake = |host: &Host| host.awake_since().map(|since| now.saturating_sub(since));
        let going = self.going();
        let of_job = going.iter().filter(|(_, going)| going.job == *tick.job());
        let beside = of_job.map(|(run, going)| Beside {
            run: *run,
            same_process: Arc::ptr_eq(&going.host, host),
            awake_for: awake(&going.host),
            clock_stood: clock_stood(&going.host),
        });
        let beside = beside.collect();
        drop(going);
        let start = RunStart {
            run,
            worker: Arc::clone(host.name()),
            job: Arc::clone(tick.job()),
            at: tick.scheduled_at(),
            cause: tick.cause(),
            token: tick.unchecked_token().get(),
            valid: tick.fencing_token().is_ok(),
            true_wall: self.true_wall(),
            ahead: self.clocks_were_ahead(),
            clock_stood: clock_stood(host),
            beside,
        };
        self.going().insert(run, Going { host: Arc::clone(host), job: Arc::clone(tick.job()) });
        self.note(format_args!(
            "{} starts run {run} of {}, due at {:?} ({}), under {}",
            start.worker, start.job, start.at, start.cause, start.token
        ));
        let again = if tick.is_catch_up() { " caught up" } else { "" };
        self.count(&format!("pool run started {}{again}", start.job));
        self.judge(&Event::RunStarted(&start));
        JobRun {
            referee: Arc::clone(self),
            number: run,
            env: env.clone(),
            began: env.now(),
            tick: tick.clone(),
            timeout,
            end: None,
        }
    }

    /// Returns the largest amount by which the clocks of a majority of the servers were ahead of the true time
    /// within the last seconds.
    fn clocks_were_ahead(&self) -> Duration {
        let mut ahead = self.servers_ahead();
        ahead.sort_unstable_by(|one, other| other.cmp(one));
        ahead.get(MAJORITY - 1).copied().unwrap_or_default()
    }
}

pub(super) fn clock_stood(host: &Host) -> bool {
    let machine = host.machine();
    let held = u64::try_from(HELD_AT_MOST.as_nanos()).unwrap_or(u64::MAX);
    machine.stood_at().is_some_and(|stood| machine.boot() <= stood.saturating_add(held))
}

/// The active runs, by number.
pub(super) type AllGoing = std::collections::BTreeMap<u64, Going>;

/// Locks the active runs.
pub(super) fn lock(going: &std::sync::Mutex<AllGoing>) -> std::sync::MutexGuard<'_, AllGoing> {
    going.lock().unwrap_or_else(PoisonError::into_inner)
}
