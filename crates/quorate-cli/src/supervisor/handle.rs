use super::launch::{NOW, Unstarted, spawn_supervisor};
use super::parent::{CommandView, kill_if_stopped};
use super::passing::send_streams;
use super::wire::{self, Order, Report};
use super::{CommandSpec, Deadline, EndedBy, Exit, StartError, Status, cgroup};
use quorate::{
    env::{BootTime, Env},
    plain::plain,
};
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, kill_current_process_group};
use std::{io, os::unix::net::UnixStream as StdStream, time::Duration};
use tokio::{
    net::UnixStream,
    process::Child,
    signal::unix::{Signal as Signals, SignalKind, signal},
};

/// The time after [`Deadline::kill`] that the supervisor process has to act. When this time is over, this
/// process kills the group itself.
const SUPERVISOR_SLACK: Duration = Duration::from_millis(200);
/// The time within which the supervisor process must report the end of the command after the command has ended.
/// Processes that the command leaves behind have two seconds until SIGKILL, and five seconds after it.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);
/// The longest wait for the end of a supervisor process that has nothing left to do. After this process has
/// killed the command, also the longest wait for the report of the supervisor process.
const EXIT_WITHIN: Duration = Duration::from_secs(6);
/// The shortest wait for the report of a supervisor process whose command this process has killed. While killed
/// processes still run, the wait continues until [`EXIT_WITHIN`].
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// The time between two checks of killed processes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest wait for the end of the processes that this process has killed.
const SEEN_GONE_WITHIN: Duration = Duration::from_secs(1);
/// The time after which this process lets a stopped command continue. When the command stops, this process
/// sends itself the stop signal too. If it still runs after this time, the signal had no effect. A SIGCONT ends
/// the wait early.
const NOT_STOPPED: Duration = Duration::from_millis(100);

/// A command that runs under a supervisor process. See the [module](super) for its guarantees and their limits.
///
/// Dropping this value kills the command and its group at once, with SIGKILL.
#[derive(Debug)]
pub struct Supervisor {
    env: Env,
    child: Child,
    /// The connection to the supervisor process. `None` once no more messages can be exchanged.
    socket: Option<UnixStream>,
    inbox: Vec<u8>,
    command: CommandView,
    deadline: Deadline,
    /// The deadline to kill that the supervisor process has acknowledged.
    accepted: BootTime,
    /// The time at which the deadline was last made earlier. The new deadline may already have passed at that
    /// time.
    shortened_at: BootTime,
    /// The time at which the end of the command itself was observed.
    ended_at: Option<BootTime>,
    continued: Option<Signals>,
    /// The time at which this process lets a stopped command continue, unless this process itself is stopped.
    resume_at: Option<BootTime>,
    /// Set once this process itself has killed the group.
    killed: Option<Killed>,
    exit: Option<Exit>,
    /// The time limits of the two waits at the end: for the supervisor process, and then for the killed
    /// processes. They are stored here, because the future of [`Supervisor::wait`] may be dropped and created
    /// again at any time.
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
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        let mut child = spawn_supervisor(&command, deadline, theirs)?;
        let supervisor = Pid::from_raw(child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default());
        let supervisor = supervisor
            .ok_or_else(|| StartError::NotStarted("the supervisor process ended at once".into()))?;
        let mut unstarted = Unstarted(Some(ours));
        let mut inbox = Vec::new();
        let first = env.before(deadline.kill, next_report(unstarted.0.as_ref(), &mut inbox)).await;
        let Some(Report::Ready { group }) = first.as_ref().and_then(Option::as_ref) else {
            drop(unstarted);
            if env.before(env.now() + EXIT_WITHIN, child.wait()).await.is_none() {
                let _ = child.start_kill();
            }
            return Err(not_started(command, first.flatten()));
        };
        let mut started = Self {
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
        };
        // From here on the command may run, and the value that is returned or dropped knows its group.
        if let Some(socket) = &started.socket {
            // A supervisor process that has ended has received none of the streams, so nothing has run.
            send_streams(socket, &streams).map_err(|error| {
                StartError::NotStarted(format!("the supervisor process has ended: {error}"))
            })?;
        }
        drop(streams);
        let answer = next_report(started.socket.as_ref(), &mut started.inbox);
        let failed = match env.before(deadline.kill, answer).await.flatten() {
            // Without an answer, `Supervisor::wait` ends the command and reports why.
            Some(Report::Started) | None => return Ok(started),
            failed => not_started(command, failed),
        };
        let _ = env.before(env.now() + EXIT_WITHIN, started.child.wait()).await;
        Err(failed)
    }

    /// Returns the process id of the command, which is also the id of its group.
    pub fn group(&self) -> i32 {
        self.command.group().as_raw_pid()
    }

    /// Sets a new deadline. After SIGTERM, only the time of SIGKILL changes. The call never blocks.
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
    /// does the same. If the supervisor process stays silent, this process kills the supervisor process and
    /// its command. So the call returns at most a few seconds after the deadline that the supervisor process
    /// acknowledged last.
    ///
    /// # Cancel safety Safe: call it again.
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
        // `exit` is always set here. The fallback only avoids a panic.
        self.exit.clone().unwrap_or_else(|| self.own_exit(EndedBy::SupervisorGone))
    }

    /// Returns the time at which this process acts by itself, unless the supervisor process has reported the
    /// end of the command by then.
    fn overdue(&self) -> BootTime {
        if let Some(killed) = &self.killed {
            return killed.look_at;
        }
        // If the supervisor process has not read the last deadline, it acts by the one before. So the earlier
        // of the two deadlines counts.
        let kill = self.deadline.kill.min(self.accepted);
        let overdue = kill.max(self.shortened_at) + self.slack();
        self.ended_at.map_or(overdue, |at| overdue.min(at + REPORTED_WITHIN))
    }

    /// Returns the supervisor process, until it has been reaped.
    fn supervisor(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Reaps the supervisor process. After a kill by this process, also waits for the end of the killed
    /// processes. Both waits have a limit, which does not begin again if the future is dropped and created
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

    /// Waits until the killed processes have ended, but at most until `late`. If some of them still run then,
    /// adds these to the survivors of the exit.
    async fn wait_until_gone(&mut self, late: BootTime) {
        loop {
            let survivors = self.command.survivors(self.supervisor());
            if survivors.is_empty() {
                // The exit keeps the survivors that the supervisor process has reported, because this process
                // may not be able to see all of them.
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
            // The supervisor process has died. Now only this process can end the group.
            Event::Report(None) => {
                let exit = self.own_exit(EndedBy::SupervisorGone);
                self.kill(EndedBy::SupervisorGone);
                self.exit = Some(exit);
            }
            Event::Overdue => {
                // This process may have been stopped for a while. So the reports that have arrived by now are
                // read before it acts.
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
                    // This process has killed the command. The supervisor process may not have read the order
                    // to end the command, and then its report has no reason. In that case the exit gets the
                    // reason that this process knows.
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
                    // The signal stops this process and its whole process group. After SIGCONT, this process
                    // continues after this call. In an orphaned process group the system ignores the signal, so
                    // this process is not stopped.
                    let _ = kill_current_process_group(signal);
                    self.resume_at = Some(self.env.now() + NOT_STOPPED);
                }
            }
            Report::Ready { .. }
            | Report::Started
            | Report::NotEntered(_)
            | Report::NotFound(_)
            | Report::NotExecutable(_)
            | Report::Failed(_) => {}
        }
    }

    /// Handles a supervisor process that has not acted in time. First kills the command. If the supervisor
    /// process still does not report the end of the command, kills the supervisor process too, and ends the
    /// wait.
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
            // A process that changed its parent during the first kill may have been missed, so everything is
            // killed again.
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

    /// Returns the exit as this process has observed it itself, without a report of the supervisor process.
    fn own_exit(&self, why: EndedBy) -> Exit {
        let killed_at = self.killed.map_or_else(|| self.env.now(), |killed| killed.at);
        let by_itself = match self.ended_at {
            Some(ended_at) => ended_at <= killed_at,
            None => self.killed.is_none() && self.command.has_ended(),
        };
        let status = if by_itself { Status::Unknown } else { Status::Signal(9) };
        Exit {
            status,
            ended_by: Some(why),
            killed: !by_itself,
            survivors: Vec::new(),
            background: 0,
            escaped: 0,
        }
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
            // The socket is read directly, because the runtime may not have noticed yet that data has arrived.
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
        // If the supervisor process does not read, or the socket took only a part of the line, no more orders
        // can be sent. This process then closes its side of the connection. The supervisor process ends the
        // command when it reads the end of the connection, or at the last deadline that it has read.
        if self
            .socket
            .as_ref()
            .is_some_and(|socket| !matches!(socket.try_write(&line), Ok(n) if n == line.len()))
        {
            self.shut();
        }
    }

    /// Returns the time that the supervisor process has after [`Deadline::kill`], before this process kills the
    /// command itself. With the deadlines of `crate::guard`, this time ends before the lease does.
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
            // The lease may be released right after the drop, so no process of the group may run any more.
            self.post(NOW);
            let supervisor = self.supervisor();
            self.command.kill(supervisor);
            if let Some(supervisor) = supervisor {
                let _ = kill_if_stopped(supervisor);
            }
        }
    }
}

/// Returns the reason why the command was not started, from the answer of the supervisor process.
fn not_started(command: CommandSpec, answer: Option<Report>) -> StartError {
    match answer {
        Some(Report::NotFound(why)) => StartError::NotFound { program: command.program, why },
        Some(Report::NotExecutable(why)) => StartError::NotExecutable { program: command.program, why },
        Some(Report::NotEntered(why)) => StartError::Directory { dir: command.dir.unwrap_or_default(), why },
        Some(Report::Failed(why)) => StartError::NotStarted(why),
        Some(other) => StartError::NotStarted(format!("the supervisor process answered {other:?}")),
        None => StartError::NotStarted(no_answer(&command)),
    }
}

/// Describes a supervisor process that did not answer, with the place to look first.
fn no_answer(command: &CommandSpec) -> String {
    let text = "the supervisor process did not answer in time, or has ended";
    match &command.dir {
        Some(dir) => {
            let dir = plain(&dir.to_string_lossy(), 200);
            format!("{text}; check that the file system of its directory {dir} answers")
        }
        None => text.to_owned(),
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
