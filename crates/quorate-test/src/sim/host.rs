use super::{Machine, Truth, machine::NAP};
use futures_util::{FutureExt, future::BoxFuture};
use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// If the tasks of a process are polled about this many times within one millisecond of true time, the process
/// spins. This is an error.
const SPINNING: u64 = 200_000;
/// The number of polls between two checks of this, because reading the clock costs time.
const SPIN_CHECK: u64 = 1_000;

/// The process of one worker. Faults pause (SIGSTOP) or kill (SIGKILL) the process with all its tasks. The
/// process also stops while its machine is frozen or asleep.
#[derive(Debug)]
pub struct Host {
    name: Arc<str>,
    truth: Truth,
    machine: Arc<Machine>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    crashed: bool,
    paused: bool,
    frozen: bool,
    asleep: bool,
    awake_since: Duration,
    tasks: BTreeMap<u64, Option<Waker>>,
    next_task: u64,
    polls: (Duration, u64),
    panics: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    Stopped,
    Crashed,
}

impl State {
    fn mode(&self) -> Mode {
        match self {
            Self { crashed: true, .. } => Mode::Crashed,
            Self { paused: false, frozen: false, asleep: false, .. } => Mode::Running,
            _ => Mode::Stopped,
        }
    }
}

impl Host {
    /// Creates a running process without tasks.
    pub fn start(name: &str, truth: Truth, machine: Arc<Machine>) -> Arc<Self> {
        let state = State {
            crashed: false,
            paused: false,
            frozen: false,
            asleep: false,
            awake_since: truth.now(),
            tasks: BTreeMap::new(),
            next_task: 0,
            polls: (Duration::ZERO, 0),
            panics: Vec::new(),
        };
        Arc::new(Self { name: name.into(), truth, machine, state: Mutex::new(state) })
    }

    /// Returns the worker's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the machine that the process runs on.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Stops every task where it is. Time continues to pass, and messages that were already sent still travel.
    pub fn pause(&self) {
        self.state().paused = true;
    }

    /// Lets a paused process continue.
    pub fn resume(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.paused) {
            self.go_on(state, Duration::ZERO);
        }
    }

    /// Stops the process together with its machine, whose clocks stop too.
    pub fn freeze(&self) {
        self.state().frozen = true;
    }

    /// Lets the process continue together with its machine.
    pub fn unfreeze(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.frozen) {
            self.go_on(state, Duration::ZERO);
        }
    }

    /// Stops the process together with its machine, which goes to sleep.
    pub fn fall_asleep(&self) {
        self.state().asleep = true;
    }

    /// Wakes the machine, and lets the process continue. Its timers may be late by up to a [`NAP`].
    pub fn wake(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.asleep) {
            self.go_on(state, NAP);
        }
    }

    /// Ends the process as a kill does: every task is dropped without another poll. From now on the process
    /// sends no message, not even from a `Drop` implementation.
    pub fn crash(&self) {
        let mut state = self.state();
        state.crashed = true;
        Self::wake_all(state);
    }

    /// Returns `true` if the process has crashed. Then its sockets are closed too.
    pub fn is_crashed(&self) -> bool {
        self.state().crashed
    }

    /// Returns the true time since which the process has run without a stop, with timers that fire in time.
    /// Returns `None` while the process is stopped, and after a crash. After a sleep of the machine, timers
    /// may be late for one [`NAP`]. The returned time is then one [`NAP`] after the machine woke.
    pub fn awake_since(&self) -> Option<Duration> {
        let state = self.state();
        (state.mode() == Mode::Running).then_some(state.awake_since)
    }

    /// Returns the number of tasks that have neither ended nor been dropped.
    pub fn tasks_alive(&self) -> usize {
        self.state().tasks.len()
    }

    /// Removes and returns the messages with which tasks have panicked. A worker's task must not panic.
    pub fn take_panics(&self) -> Vec<String> {
        std::mem::take(&mut self.state().panics)
    }

    /// Wraps `work` as a task of this process, so that it stops when the process is paused or crashed.
    pub fn gate(self: &Arc<Self>, work: BoxFuture<'static, ()>) -> Gate {
        let mut state = self.state();
        let id = state.next_task;
        state.next_task += 1;
        state.tasks.insert(id, None);
        drop(state);
        Gate { host: Arc::clone(self), id, work: Some(work) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_on(&self, mut state: MutexGuard<'_, State>, late: Duration) {
        state.awake_since = state.awake_since.max(self.truth.now() + late);
        if state.mode() == Mode::Running {
            Self::wake_all(state);
        }
    }

    fn wake_all(mut state: MutexGuard<'_, State>) {
        let wakers: Vec<Waker> = state.tasks.values_mut().filter_map(Option::take).collect();
        drop(state);
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Stores `waker`, which [`Host`] wakes after a pause or at a crash. Returns the mode of the process,
    /// which decides whether the task may run now.
    fn enter(&self, id: u64, waker: &Waker) -> Mode {
        let mut state = self.state();
        state.polls.1 += 1;
        if state.polls.1.is_multiple_of(SPIN_CHECK) {
            let now = self.truth.now();
            if state.polls.0 != now {
                state.polls = (now, 0);
            }
            assert!(state.polls.1 < SPINNING, "{} spins at {now:?} without letting time pass", self.name);
        }
        if let Some(slot) = state.tasks.get_mut(&id) {
            match slot {
                Some(known) => known.clone_from(waker),
                None => *slot = Some(waker.clone()),
            }
        }
        state.mode()
    }
}

/// A task of a [`Host`].
pub struct Gate {
    host: Arc<Host>,
    id: u64,
    work: Option<BoxFuture<'static, ()>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({} {})", self.host.name, self.id)
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mode = self.host.enter(self.id, cx.waker());
        match (mode, &mut self.work) {
            (Mode::Stopped, _) => Poll::Pending,
            (Mode::Crashed, _) | (_, None) => {
                self.work = None;
                Poll::Ready(())
            }
            (Mode::Running, Some(work)) => {
                let polled = AssertUnwindSafe(work).catch_unwind().poll_unpin(cx);
                if let Poll::Ready(Err(panic)) = &polled {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()));
                    self.host.state().panics.push(text.unwrap_or_else(|| "something".to_owned()));
                }
                polled.map(|_| ())
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // The work is dropped before the task is removed, because tests count the task as alive until its work
        // is dropped.
        self.work = None;
        self.host.state().tasks.remove(&self.id);
    }
}
