use super::launch::{NOW, Unstarted, send_streams, spawn_supervisor};
use super::parent::{CommandView, kill_if_stopped};
use super::wire::{self, Order, Report};
use super::{CommandSpec, Deadline, EndedBy, Exit, StartError, Status, cgroup};
use quorate::env::{BootTime, Env};
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, kill_current_process_group};
use std::{io, os::unix::net::UnixStream as StdStream, time::Duration};
use tokio::{
    net::UnixStream,
    process::Child,
    signal::unix::{Signal as Signals, SignalKind, signal},
};

/// The longest time after [`Deadline::kill`] that the supervisor process has to act, before this process kills the group.
const SUPERVISOR_SLACK: Duration = Duration::from_millis(200);
/// The longest time after the end of the command in which the supervisor process must report it. Processes that the
/// command leaves behind have two seconds until SIGKILL, and five after it.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);
/// The longest wait for the end of a supervisor process that has nothing left to do.
const EXIT_WITHIN: Duration = Duration::from_secs(6);
/// The longest wait for the report of a supervisor process whose command this process has killed.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// The time between two looks at killed processes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest wait for the end of a group that this process killed.
const SEEN_GONE_WITHIN: Duration = Duration::from_secs(1);
/// The time after which this process assumes that it was not stopped. (When the command stops, this process
/// stops itself, too.) This process then continues the command. A SIGCONT ends the wait early.
const NOT_STOPPED: Duration = Duration::from_millis(100);

/// A command that runs under a supervisor process. See the [module](super) for its guarantees and their limits.
///
/// Dropping it kills the command and its group at once, with SIGKILL.
#[derive(Debug)]
pub struct Supervisor {
    env: Env,
    child: Child,
    /// `None` once no more messages can be exchanged.
    socket: Option<UnixStream>,
    inbox: Vec<u8>,
    command: CommandView,
    deadline: Deadline,
    /// The deadline to kill that the supervisor process has acknowledged.
    accepted: BootTime,
    /// The time at which the deadline was last moved to an earlier time, which may have passed already.
    shortened_at: BootTime,
    /// The time at which the end of the command itself was observed.
    ended_at: Option<BootTime>,
    continued: Option<Signals>,
    /// The time at which this process continues a stopped command, if this process itself was not stopped.
    resume_at: Option<BootTime>,
    /// Set once this process has killed the group itself.
    killed: Option<Killed>,
    exit: Option<Exit>,
    /// The limits of the wait for the end of the supervisor process, and then of its command. Kept here because
    /// [`Supervisor::wait`] may be dropped and called again at any time.
    clean_up: Option<CleanUp>,
    reaped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Killed {
    at: BootTime,
    why: EndedBy,
    look_at: BootTime,
}

#[derive(Clone, Copy, Debug)]
struct CleanUp {
    supervisor: Option<Pid>,
    reap_by: BootTime,
    gone_by: Option<BootTime>,
}

enum Event {
    Report(Option<Report>),
    Continued,
    Ended,
    Overdue,
}

impl Supervisor {
    /// Starts `command`, to end at `deadline` unless a later deadline is set.
    ///
    /// Needs a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`StartError`], whose [`code`](StartError::code) is the exit code of a shell.
    ///
    /// # Cancel safety
    /// Dropping the future ends the command, if it had been started.
    pub async fn start(env: &Env, command: CommandSpec, deadline: Deadline) -> Result<Self, StartError> {
        let streams = command.open_streams()?;
        let continued = command.job_control.then(|| signal(SignalKind::from_raw(Signal::CONT.as_raw())));
        let continued = continued.transpose()?;
        let (ours, theirs) = StdStream::pair()?;
        let mut child = spawn_supervisor(&command, deadline, theirs)?;
        let group = Pid::from_raw(child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default());
        let supervisor =
            group.ok_or_else(|| StartError::Supervisor("the supervisor process ended at once".into()))?;
        send_streams(&ours, &streams)?;
        drop(streams);
        ours.set_nonblocking(true)?;
        let mut unstarted = Unstarted(Some(UnixStream::from_std(ours)?));
        let mut inbox = Vec::new();
        let first = env.before(deadline.kill, next_report(unstarted.0.as_ref(), &mut inbox)).await;
        let failed = match first.flatten() {
            Some(Report::Started { group }) => {
                return Ok(Self {
                    env: env.clone(),
                    child,
                    socket: unstarted.0.take(),
                    inbox,
                    command: CommandView::new(group.pid(), supervisor),
                    deadline,
                    accepted: deadline.kill,
                    shortened_at: env.now(),
                    ended_at: None,
                    continued,
                    resume_at: None,
                    killed: None,
                    exit: None,
                    clean_up: None,
                    reaped: false,
                });
            }
            Some(Report::NotFound(why)) => StartError::NotFound { program: command.program, why },
            Some(Report::NotExecutable(why)) => StartError::NotExecutable { program: command.program, why },
            Some(Report::Failed(why)) => StartError::Supervisor(why),
            Some(other) => StartError::Supervisor(format!("the supervisor process answered {other:?}")),
            None => StartError::Supervisor("the supervisor process did not answer in time".into()),
        };
        drop(unstarted);
        if env.before(env.now() + EXIT_WITHIN, child.wait()).await.is_none() {
            // Kills the processes that the supervisor process may already have started, and then that process.
            CommandView::new(supervisor, supervisor).kill(Some(supervisor));
            let _ = child.start_kill();
        }
        Err(failed)
    }

    /// Returns the process id of the command, which is also the id of its group.
    pub fn group(&self) -> i32 {
        self.command.group().as_raw_pid()
    }

    /// Sets a new deadline. After SIGTERM only the time of SIGKILL moves. Never blocks.
    pub fn extend(&mut self, deadline: Deadline) {
        if deadline.kill < self.deadline.kill {
            self.shortened_at = self.env.now();
        }
        self.deadline = deadline;
        self.post(deadline.into());
    }

    /// Sends SIGTERM to the command now. Processes of the command that still run at [`Deadline::kill`] are
    /// killed. Never blocks.
    pub fn step_down(&mut self) {
        self.post(Order::StepDown);
    }

    /// Forwards a signal to the command's group. Never blocks.
    pub fn signal(&mut self, number: i32) {
        self.post(Order::Signal(number));
    }

    /// Waits for the end of the command and of its group. When the command stops or continues, this process
    /// does the same. Returns at most a few seconds after the deadline that the supervisor process last
    /// acknowledged: if the supervisor process stays silent, this process kills it and its command.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn wait(&mut self) -> Exit {
        while self.exit.is_none() {
            let overdue = self.overdue();
            let resume_at = self.resume_at.unwrap_or(BootTime::from_nanos(u64::MAX));
            let event = tokio::select! { biased;
                report = next_report(self.socket.as_ref(), &mut self.inbox) => Event::Report(report),
                () = next_signal(self.continued.as_mut()) => Event::Continued,
                () = self.command.ended(), if self.ended_at.is_none() => Event::Ended,
                () = self.env.sleep_until(overdue) => Event::Overdue,
                () = self.env.sleep_until(resume_at) => Event::Continued,
            };
            self.on_event(event);
        }
        if !self.reaped {
            self.clean_up().await;
            self.reaped = true;
        }
        // `exit` is never `None` here.
        self.exit.clone().unwrap_or_else(|| self.own_exit(EndedBy::SupervisorGone))
    }

    /// Returns the time after which the supervisor process is not waited for any longer.
    fn overdue(&self) -> BootTime {
        if let Some(killed) = &self.killed {
            return killed.look_at;
        }
        // The supervisor process may not know a deadline that it has not acknowledged. It then acts by the
        // previous deadline.
        let kill = self.deadline.kill.min(self.accepted);
        let overdue = kill.max(self.shortened_at) + self.slack();
        self.ended_at.map_or(overdue, |at| overdue.min(at + REPORTED_WITHIN))
    }

    /// Returns the supervisor process, until it has been reaped.
    fn supervisor(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Reaps the supervisor process. After a kill by this process, also waits for the end of the killed
    /// processes. Each wait has one limit, which does not begin again when the future is dropped and created
    /// again.
    async fn clean_up(&mut self) {
        let started =
            CleanUp { supervisor: self.supervisor(), reap_by: self.env.now() + EXIT_WITHIN, gone_by: None };
        let clean_up = *self.clean_up.get_or_insert(started);
        let _ = self.env.before(clean_up.reap_by, self.child.wait()).await;
        if self.killed.is_some() {
            let gone_by = clean_up.gone_by.unwrap_or(self.env.now() + SEEN_GONE_WITHIN);
            self.clean_up = Some(CleanUp { gone_by: Some(gone_by), ..clean_up });
            self.wait_until_gone(gone_by).await;
        }
        if let Some(supervisor) = clean_up.supervisor.filter(|_| self.supervisor().is_none()) {
            cgroup::remove_command_of(supervisor);
        }
    }

    /// Waits until the killed processes have ended, until `late` at most. The exit names those that still run.
    async fn wait_until_gone(&mut self, late: BootTime) {
        loop {
            let survivors = self.command.survivors(self.supervisor());
            if survivors.is_empty() {
                // The exit keeps the survivors that the supervisor process may have named: this process cannot
                // see all of them.
                return;
            }
            if self.env.now() >= late {
                if let Some(exit) = &mut self.exit {
                    exit.survivors = survivors;
                }
                return;
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Report(Some(report)) => self.take_report(report),
            Event::Continued => {
                self.resume_at = None;
                self.post(Order::Continue);
            }
            Event::Ended => self.ended_at = Some(self.env.now()),
            // The supervisor process has died: this process is the only guard of the group.
            Event::Report(None) => {
                let exit = self.own_exit(EndedBy::SupervisorGone);
                self.kill(EndedBy::SupervisorGone);
                self.exit = Some(exit);
            }
            Event::Overdue => {
                // This process may have been stopped for a while. So it first reads every report that had
                // arrived by `now`.
                let now = self.env.now();
                while let Some(report) = self.arrived() {
                    self.take_report(report);
                }
                if self.exit.is_none() && now >= self.overdue() {
                    self.on_overdue(now);
                }
            }
        }
    }

    fn take_report(&mut self, report: Report) {
        match report {
            Report::Ended(exit) => {
                self.exit = Some(match self.killed {
                    // This process killed the command. If the supervisor process had not yet read the order
                    // to end the command, its report has no reason. The exit then gets the reason of this
                    // process.
                    Some(killed) if exit.status == Status::Signal(9) => {
                        Exit { ended_by: exit.ended_by.or(Some(killed.why)), killed: true, ..exit }
                    }
                    _ => exit,
                });
            }
            Report::Accepted { kill } => self.accepted = BootTime::from_nanos(kill),
            Report::NotPermitted { signal, processes } => {
                let name =
                    nix::sys::signal::Signal::try_from(signal).map_or("the signal", |signal| signal.as_str());
                for process in processes {
                    tracing::warn!("{name} was not delivered to {process}");
                }
            }
            Report::Stopped(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // This process continues here after SIGCONT. In an orphaned group, in which the system
                    // ignores the stop signal, it continues at once.
                    let _ = kill_current_process_group(signal);
                    self.resume_at = Some(self.env.now() + NOT_STOPPED);
                }
            }
            Report::Started { .. } | Report::NotFound(_) | Report::NotExecutable(_) | Report::Failed(_) => {}
        }
    }

    /// Handles a supervisor process that has not acted in time. First kills the command. If the supervisor
    /// process does not report that, kills it, too, and ends the wait.
    fn on_overdue(&mut self, now: BootTime) {
        let Some(killed) = self.killed else {
            let lost = now >= self.deadline.kill;
            return self.kill(if lost { EndedBy::Deadline } else { EndedBy::SupervisorSilent });
        };
        let waited = killed.at.until(now);
        let gone = waited >= ANSWERED_WITHIN && self.command.survivors(self.supervisor()).is_empty();
        if gone || waited >= EXIT_WITHIN {
            self.exit = Some(self.own_exit(killed.why));
            let _ = self.child.start_kill();
        } else {
            // The first kill may have missed a process that was just changing its parent.
            self.kill(killed.why);
        }
    }

    fn kill(&mut self, why: EndedBy) {
        let now = self.env.now();
        let first = self.killed.get_or_insert(Killed { at: now, why, look_at: now });
        first.look_at = now + LOOK_EVERY;
        if self.command.has_ended() {
            self.ended_at.get_or_insert(now);
        }
        self.command.kill(self.supervisor());
    }

    /// Returns the exit that this process itself knows, if the supervisor process reports none.
    fn own_exit(&self, why: EndedBy) -> Exit {
        let killed_at = self.killed.map_or_else(|| self.env.now(), |killed| killed.at);
        let by_itself = match self.ended_at {
            Some(ended_at) => ended_at <= killed_at,
            None => self.killed.is_none() && self.command.has_ended(),
        };
        let status = if by_itself { Status::Unknown } else { Status::Signal(9) };
        Exit { status, ended_by: Some(why), killed: !by_itself, survivors: Vec::new() }
    }

    /// Returns the next report that has arrived, without waiting.
    fn arrived(&mut self) -> Option<Report> {
        if self.exit.is_some() {
            return None;
        }
        loop {
            if let Some(report) = wire::take(&mut self.inbox) {
                return report.ok();
            }
            // Reads without asking the runtime whether the socket is readable. The runtime's record may be out
            // of date.
            let mut bytes = [0; 4096];
            match rustix::net::recv(self.socket.as_ref()?, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((read @ 1.., _)) => self.inbox.extend_from_slice(&bytes[..read]),
                Err(rustix::io::Errno::INTR) => {}
                _ => return None,
            }
        }
    }

    fn post(&mut self, order: Order) {
        let line = wire::line(&order);
        // If the supervisor process no longer reads, or the socket took only a part of the line, this process
        // can send no more orders, and closes its side of the stream. The supervisor process ends the command
        // at the end of the stream, or at the last deadline that it knows.
        if self
            .socket
            .as_ref()
            .is_some_and(|socket| !matches!(socket.try_write(&line), Ok(n) if n == line.len()))
        {
            self.shut();
        }
    }

    /// Returns the time that the supervisor process has after [`Deadline::kill`] before this process kills
    /// the command itself. With the deadlines of `crate::guard` that time ends before the lease does.
    fn slack(&self) -> Duration {
        (self.deadline.step_down.until(self.deadline.kill) / 6).min(SUPERVISOR_SLACK)
    }

    fn shut(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.exit.is_none() {
            // After the drop the lease may be released at once, so no process of the group may still run.
            self.post(NOW);
            let supervisor = self.supervisor();
            self.command.kill(supervisor);
            if let Some(supervisor) = supervisor {
                let _ = kill_if_stopped(supervisor);
            }
        }
    }
}

/// Waits for the next report of the supervisor process. Returns `None` at the end of the stream.
///
/// Cancel safe: bytes that were read are in `inbox`.
async fn next_report(socket: Option<&UnixStream>, inbox: &mut Vec<u8>) -> Option<Report> {
    loop {
        match wire::take(inbox) {
            Some(Ok(report)) => return Some(report),
            Some(Err(_)) => return None,
            None => {}
        }
        let socket = socket?;
        socket.readable().await.ok()?;
        let mut bytes = [0; 4096];
        match socket.try_read(&mut bytes) {
            Ok(0) => return None,
            Ok(n) => inbox.extend_from_slice(&bytes[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

async fn next_signal(signals: Option<&mut Signals>) {
    match signals {
        Some(signals) => drop(signals.recv().await),
        None => std::future::pending().await,
    }
}
