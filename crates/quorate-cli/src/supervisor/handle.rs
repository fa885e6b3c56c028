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

/// How far past [`Deadline::kill`] the warden is trusted, at most, before we kill the group ourselves.
const SUPERVISOR_SLACK: Duration = Duration::from_millis(200);
/// How long a warden may take to report the end after the command itself has ended: what the command leaves behind has
/// two seconds until SIGKILL, and five after it.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);
/// How long a warden that has nothing left to do is waited for.
const EXIT_WITHIN: Duration = Duration::from_secs(6);
/// How long a warden whose command we have killed is waited for, once nothing of that runs.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks at what we have killed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a group that we killed is waited for.
const SEEN_GONE_WITHIN: Duration = Duration::from_secs(1);
/// After stopping with the command: running for so long without a SIGCONT means that nobody stopped us.
const NOT_STOPPED: Duration = Duration::from_millis(100);

/// A command that runs under a warden. See the [module](super) for what it does and does not do.
///
/// Dropping it kills the command and its group at once, with SIGKILL.
#[derive(Debug)]
pub struct Supervisor {
    env: Env,
    child: Child,
    /// `None` once nothing more can be said.
    socket: Option<UnixStream>,
    inbox: Vec<u8>,
    command: CommandView,
    deadline: Deadline,
    /// The deadline to kill that the warden has said it knows.
    accepted: BootTime,
    /// When the deadline was last moved to an earlier time, which may be after it has passed.
    shortened_at: BootTime,
    /// When the command itself was seen to have ended.
    ended_at: Option<BootTime>,
    continued: Option<Signals>,
    /// When the command is continued unless we were stopped with it.
    resume_at: Option<BootTime>,
    /// When and why we killed the group ourselves, and when we look next at what became of it.
    killed: Option<Killed>,
    exit: Option<Exit>,
    /// Until when the warden's own end is waited for, and then that of its command. Kept here because
    /// [`Supervisor::wait`] is dropped and called again all the time.
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
    /// Starts `command`, to end at `deadline` unless a later one comes.
    ///
    /// Needs a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`StartError`], whose [`code`](StartError::code) is a shell's.
    ///
    /// # Cancel safety
    /// Dropping it ends the command, if it had been started.
    pub async fn start(env: &Env, command: CommandSpec, deadline: Deadline) -> Result<Self, StartError> {
        let streams = command.open_streams()?;
        let continued = command.job_control.then(|| signal(SignalKind::from_raw(Signal::CONT.as_raw())));
        let continued = continued.transpose()?;
        let (ours, theirs) = StdStream::pair()?;
        let mut child = spawn_supervisor(&command, deadline, theirs)?;
        let group = Pid::from_raw(child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default());
        let supervisor = group.ok_or_else(|| StartError::Supervisor("the warden ended at once".into()))?;
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
                    // A number below one is no process: then it is the warden that has to go.
                    command: CommandView::new(Pid::from_raw(group).unwrap_or(supervisor), supervisor),
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
            Some(other) => StartError::Supervisor(format!("the warden said {other:?}")),
            None => StartError::Supervisor("the warden gave no word in time".into()),
        };
        drop(unstarted);
        if env.before(env.now() + EXIT_WITHIN, child.wait()).await.is_none() {
            // Stopped, maybe after the start of the command.
            CommandView::new(supervisor, supervisor).kill(Some(supervisor));
            let _ = child.start_kill();
        }
        Err(failed)
    }

    /// The process id of the command, which is its group's too.
    pub fn group(&self) -> i32 {
        self.command.group().as_raw_pid()
    }

    /// The deadline from now on. Once the command has been told to end, only the time of its death moves.
    /// Never blocks.
    pub fn extend(&mut self, deadline: Deadline) {
        if deadline.kill < self.deadline.kill {
            self.shortened_at = self.env.now();
        }
        self.deadline = deadline;
        self.post(deadline.into());
    }

    /// Tells the command to end now (SIGTERM); what still runs at [`Deadline::kill`] is killed. Never blocks.
    pub fn step_down(&mut self) {
        self.post(Order::StepDown);
    }

    /// Passes a signal on to the command's group. Never blocks.
    pub fn signal(&mut self, number: i32) {
        self.post(Order::Signal(number));
    }

    /// Waits for the end of the command and of its group, and meanwhile stops and continues with it. It ends
    /// a few seconds after the deadline at the latest, and a few seconds after the last deadline that the warden has
    /// answered: a warden that stays silent is killed, and so is what it guards.
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
        // Never `None` here.
        self.exit.clone().unwrap_or_else(|| self.own_exit(EndedBy::SupervisorGone))
    }

    /// When the warden is not waited for any longer.
    fn overdue(&self) -> BootTime {
        if let Some(killed) = &self.killed {
            return killed.look_at;
        }
        // What the warden has not answered it does not know: it will act by the deadline before.
        let kill = self.deadline.kill.min(self.accepted);
        let overdue = kill.max(self.shortened_at) + self.slack();
        self.ended_at.map_or(overdue, |at| overdue.min(at + REPORTED_WITHIN))
    }

    /// The warden's process, until it has been reaped.
    fn supervisor(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Reaps the warden, and after a kill of ours waits for the end of what was killed. Each has its time in all, however
    /// often this is dropped and called again.
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

    /// Waits for the end of what was killed, and adds what is left at `late` to the exit.
    async fn wait_until_gone(&mut self, late: BootTime) {
        loop {
            let survivors = self.command.survivors(self.supervisor());
            if survivors.is_empty() {
                // The warden may have named others, which are not seen from here.
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
            // The warden has died: the group has only us.
            Event::Report(None) => {
                let exit = self.own_exit(EndedBy::SupervisorGone);
                self.kill(EndedBy::SupervisorGone);
                self.exit = Some(exit);
            }
            Event::Overdue => {
                // This process may have been stopped. Nothing that had arrived by `now` is overlooked.
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
                    // The warden may see the command dead before it reads what we told it: the reason is ours.
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
                    // We go on here once continued, or at once if the system ignores it: an orphaned group.
                    let _ = kill_current_process_group(signal);
                    self.resume_at = Some(self.env.now() + NOT_STOPPED);
                }
            }
            Report::Started { .. } | Report::NotFound(_) | Report::NotExecutable(_) | Report::Failed(_) => {}
        }
    }

    /// The warden has not acted in time. First its command is killed; then, where it does not report that, the warden.
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
            // What was just changing its parent was missed.
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

    /// The exit where the warden reports none.
    fn own_exit(&self, why: EndedBy) -> Exit {
        let killed_at = self.killed.map_or_else(|| self.env.now(), |killed| killed.at);
        let by_itself = match self.ended_at {
            Some(ended_at) => ended_at <= killed_at,
            None => self.killed.is_none() && self.command.has_ended(),
        };
        let status = if by_itself { Status::Unknown } else { Status::Signal(9) };
        Exit { status, ended_by: Some(why), killed: !by_itself, survivors: Vec::new() }
    }

    /// The next report that has arrived, without waiting.
    fn arrived(&mut self) -> Option<Report> {
        if self.exit.is_some() {
            return None;
        }
        loop {
            if let Some(report) = wire::take(&mut self.inbox) {
                return report.ok();
            }
            // Past the readiness that the runtime has seen, which may be older.
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
        // A warden that reads nothing any more, or half a line, cannot be told: it ends the command at the
        // deadline it knows, or at the end of the file.
        if self
            .socket
            .as_ref()
            .is_some_and(|socket| !matches!(socket.try_write(&line), Ok(n) if n == line.len()))
        {
            self.shut();
        }
    }

    /// The time to kill lies before a moment that matters: of what is left until then, half at most.
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
            // Whoever lets go of it may release the lease at once: nothing of the group may run any more.
            self.post(NOW);
            let supervisor = self.supervisor();
            self.command.kill(supervisor);
            if let Some(supervisor) = supervisor {
                let _ = kill_if_stopped(supervisor);
            }
        }
    }
}

/// The warden's next report; `None` at the end of what it says.
///
/// Cancel safe: what was read is in `inbox`.
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
