//! The runs of the group whose jobs run anywhere, as true time sees them; and what an operator asks and reads.

use super::{Event, Host, Referee, invariant::MAJORITY};
use quorate::{
    env::{BootTime, Env, WallTime},
    schedule::{Ask, RequestId, Tick, TickCause},
};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

/// A worker's boot clock that stood still within this time of its own may hide from it that a claim or a term has
/// ended: none lasts longer.
const HELD_AT_MOST: Duration = Duration::from_secs(4);

/// One start of a handler.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// The run, of all in this history.
    pub run: u64,
    /// The worker.
    pub worker: Arc<str>,
    /// The job's name.
    pub job: Arc<str>,
    /// When it was due; of a triggered run, when it was asked for.
    pub at: WallTime,
    /// Why it runs.
    pub cause: TickCause,
    /// The fencing token of the term or the claim under which it runs.
    pub token: u64,
    /// Whether the worker takes that for valid.
    pub valid: bool,
    /// The true wall time.
    pub true_wall: WallTime,
    /// By how much the clocks of a majority of the servers were ahead of the truth within the last seconds.
    pub ahead: Duration,
    /// Whether the worker's boot clock has stood still so recently that it cannot know whether it still holds the term
    /// or the claim.
    pub clock_stood: bool,
    /// For how long the worker's process has run without a pause.
    pub awake_for: Duration,
    /// The runs of the same job that go on at this moment.
    pub beside: Vec<Beside>,
}

/// A run that goes on while another of the same job starts.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The run.
    pub run: u64,
    /// Whether it goes on in the same process.
    pub same_process: bool,
    /// For how long its worker's process has run without a pause; `None` while it is paused.
    pub awake_for: Option<Duration>,
    /// As [`RunStart::clock_stood`], of its worker.
    pub clock_stood: bool,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// How the handler ended.
    pub end: HandlerEnd,
    /// For how long it ran, by its worker's boot clock.
    pub took: Duration,
    /// Whether it had been asked to stop.
    pub stopped: bool,
    /// Whether it ran for as long as its timeout allows.
    pub overdue: bool,
}

impl RunEnd {
    /// Whether the handler came to an end that is not to be repeated: by itself, or at its timeout.
    pub fn is_own(&self) -> bool {
        match self.end {
            HandlerEnd::Done | HandlerEnd::Failed => true,
            HandlerEnd::Stopped | HandlerEnd::Dropped => self.overdue,
            HandlerEnd::Interrupted => false,
        }
    }
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerEnd {
    /// It returned `Ok`.
    Done,
    /// It returned an error, or panicked.
    Failed,
    /// It marked itself as interrupted.
    Interrupted,
    /// It was asked to stop, and did.
    Stopped,
    /// It was dropped: its process, its scheduler or its hold ended, or it went on past its timeout.
    Dropped,
}

/// A request of the operator.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request, of all in this history.
    pub number: u64,
    /// What is asked.
    pub ask: Ask,
    /// The true wall time at which it is sent.
    pub at: WallTime,
}

/// What the operator is told of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The leader has accepted it.
    Accepted {
        /// The request's id.
        id: RequestId,
        /// How many runs it makes or stops.
        count: u64,
    },
    /// The leader has refused it.
    Refused {
        /// The request's id.
        id: RequestId,
    },
    /// It may have been carried out, or not.
    Unknown {
        /// The request's id; `None` where the request was dropped.
        id: Option<RequestId>,
    },
    /// It reached no node.
    NotSent,
}

impl Told {
    /// Its name, for counting.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Refused { .. } => "refused",
            Self::Unknown { .. } => "unknown",
            Self::NotSent => "not sent",
        }
    }
}

/// What the simulation may be asked to hold though the code does not promise it yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Two runs of an any-worker job never go on side by side on two workers, unless its overlap rule allows it.
    pub overlap_across_workers: bool,
    /// A tick has one entry in its job's history, whatever became of its runs.
    pub one_entry_a_tick: bool,
    /// The workers notice the pause of an any-worker job as soon as the leader notices that of its own jobs.
    pub any_worker_pauses: bool,
    /// Once the faults are over, any-worker jobs run as soon as leader-placed jobs do.
    pub any_worker_progress: bool,
    /// The entries of any-worker jobs are as true as those of leader-placed jobs: a tick is skipped for a reason that the
    /// rules permit, only at-most-once ticks are lost, and the history keeps as many entries as it is to.
    pub any_worker_entries: bool,
    /// A tick that the history has as skipped never starts.
    pub skips_are_final: bool,
    /// Each end is entered in the history, also of ticks that too few servers can remember.
    pub every_end_is_entered: bool,
}

impl Promises {
    /// Everything that is promised of leader-placed jobs, of any-worker jobs too.
    pub const ALL: Self = Self {
        overlap_across_workers: true,
        one_entry_a_tick: true,
        any_worker_pauses: true,
        any_worker_progress: true,
        any_worker_entries: true,
        skips_are_final: true,
        every_end_is_entered: true,
    };
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Going {
    host: Arc<Host>,
    job: Arc<str>,
}

/// One run, until this is dropped.
#[derive(Debug)]
pub struct JobRun {
    referee: Arc<Referee>,
    number: u64,
    env: Env,
    began: BootTime,
    tick: Tick,
    timeout: Option<Duration>,
    end: Option<HandlerEnd>,
}

impl JobRun {
    /// Which run this is, of all in this history.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reports that the handler is about to end by itself.
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
    /// Reports that the handler of `tick` begins to work.
    pub fn run_started(
        self: &Arc<Self>,
        host: &Arc<Host>,
        env: &Env,
        tick: &Tick,
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
            at: tick.at(),
            cause: tick.cause(),
            token: tick.token().get(),
            valid: tick.fencing_token().is_ok(),
            true_wall: self.true_wall(),
            ahead: self.clocks_were_ahead(),
            clock_stood: clock_stood(host),
            awake_for: awake(host).unwrap_or_default(),
            beside,
        };
        self.going().insert(run, Going { host: Arc::clone(host), job: Arc::clone(tick.job()) });
        self.note(format_args!(
            "{} starts run {run} of {}, due at {:?} ({}), under {}",
            start.worker, start.job, start.at, start.cause, start.token
        ));
        let again = if tick.is_made_up() { " caught up" } else { "" };
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

    /// Returns by how much the clocks of a majority of the servers were ahead of the truth lately.
    fn clocks_were_ahead(&self) -> Duration {
        let mut ahead = self.servers_ahead();
        ahead.sort_unstable_by(|one, other| other.cmp(one));
        ahead.get(MAJORITY - 1).copied().unwrap_or_default()
    }
}

fn clock_stood(host: &Host) -> bool {
    let machine = host.machine();
    let held = u64::try_from(HELD_AT_MOST.as_nanos()).unwrap_or(u64::MAX);
    machine.stood_at().is_some_and(|stood| machine.boot() <= stood.saturating_add(held))
}

/// The runs that go on, by number.
pub(super) type AllGoing = std::collections::BTreeMap<u64, Going>;

/// Locks the runs that go on.
pub(super) fn lock(going: &std::sync::Mutex<AllGoing>) -> std::sync::MutexGuard<'_, AllGoing> {
    going.lock().unwrap_or_else(PoisonError::into_inner)
}
