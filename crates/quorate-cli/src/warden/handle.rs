use super::process::{Call, Job};
use super::wire::{self, Order, Report};
use super::{ARGUMENT, CommandSpec, Deadline, EndedBy, Exit, StartError, Status};
use quorate::env::{BootTime, Env};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{
    Pid, Signal, getpgrp, getpid, kill_current_process_group, kill_process_group, test_kill_process_group,
};
use std::{
    ffi::OsString,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream as StdStream, process::CommandExt},
    },
    path::Path,
    time::Duration,
};
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    signal::unix::{Signal as Signals, SignalKind, signal},
};

/// How far past [`Deadline::kill`] the warden is trusted, at most, before we kill the group ourselves.
const TRUSTED_FOR: Duration = Duration::from_millis(200);
/// How long a warden that has nothing left to do is waited for.
const LAST_WORDS: Duration = Duration::from_secs(6);
/// How long a group that we killed is waited for.
const SEEN_GONE_WITHIN: Duration = Duration::from_secs(1);
/// After stopping with the command: running for so long without a SIGCONT means that nobody stopped us.
const NOT_STOPPED: Duration = Duration::from_millis(100);

/// A command that runs under a warden. See the [module](super) for what it does and does not do.
///
/// Dropping it kills the command and its group at once, with SIGKILL.
#[derive(Debug)]
pub struct Warden {
    env: Env,
    child: Child,
    /// `None` once nothing more can be said.
    socket: Option<UnixStream>,
    inbox: Vec<u8>,
    group: Pid,
    deadline: Deadline,
    /// When the warden was told of it, which may be after it has passed.
    told_at: BootTime,
    continued: Option<Signals>,
    /// When the command is continued unless we were stopped with it.
    resume_at: Option<BootTime>,
    /// When we killed the group ourselves.
    killed_at: Option<BootTime>,
    exit: Option<Exit>,
    reaped: bool,
}

enum Event {
    Report(Option<Report>),
    Continued,
    Overdue,
}

impl Warden {
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
        let mut child = spawn_warden(&command, deadline, theirs)?;
        let group = Pid::from_raw(child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default());
        let warden = group.ok_or_else(|| StartError::Warden("the warden ended at once".into()))?;
        send_streams(&ours, &streams)?;
        drop(streams);
        ours.set_nonblocking(true)?;
        let mut unborn = Unborn(Some(UnixStream::from_std(ours)?));
        let mut inbox = Vec::new();
        let first = env.before(deadline.kill, next_report(unborn.0.as_ref(), &mut inbox)).await;
        let failed = match first.flatten() {
            Some(Report::Started { group }) => {
                return Ok(Self {
                    env: env.clone(),
                    child,
                    socket: unborn.0.take(),
                    inbox,
                    // A number below one is no process: then it is the warden that has to go.
                    group: Pid::from_raw(group).unwrap_or(warden),
                    deadline,
                    told_at: env.now(),
                    continued,
                    resume_at: None,
                    killed_at: None,
                    exit: None,
                    reaped: false,
                });
            }
            Some(Report::NotFound(why)) => StartError::NotFound { program: command.program, why },
            Some(Report::NotExecutable(why)) => StartError::NotExecutable { program: command.program, why },
            Some(Report::Failed(why)) => StartError::Warden(why),
            Some(other) => StartError::Warden(format!("the warden said {other:?}")),
            None => StartError::Warden("the warden gave no word in time".into()),
        };
        drop(unborn);
        let _ = env.before(env.now() + LAST_WORDS, child.wait()).await;
        Err(failed)
    }

    /// The process id of the command, which is its group's too.
    pub fn group(&self) -> i32 {
        self.group.as_raw_pid()
    }

    /// The deadline from now on. Once the command has been told to end, only the time of its death moves.
    /// Never blocks.
    pub fn extend(&mut self, deadline: Deadline) {
        self.deadline = deadline;
        self.told_at = self.env.now();
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
    /// a few seconds after the deadline at the latest.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn wait(&mut self) -> Exit {
        while self.exit.is_none() {
            let overdue = self.deadline.kill.max(self.told_at).max(self.killed_at.unwrap_or_default());
            let overdue = overdue + if self.killed_at.is_some() { LAST_WORDS } else { self.trusted_for() };
            let resume_at = self.resume_at.unwrap_or(BootTime::from_nanos(u64::MAX));
            let event = tokio::select! { biased;
                report = next_report(self.socket.as_ref(), &mut self.inbox) => Event::Report(report),
                () = next_signal(self.continued.as_mut()) => Event::Continued,
                () = self.env.sleep_until(overdue) => Event::Overdue,
                () = self.env.sleep_until(resume_at) => Event::Continued,
            };
            self.hear(event);
        }
        if !self.reaped {
            let _ = self.env.before(self.env.now() + LAST_WORDS, self.child.wait()).await;
            if self.killed_at.is_some() {
                self.see_it_gone().await;
            }
            self.reaped = true;
        }
        self.exit.unwrap_or(WARDEN_GONE)
    }

    /// What we killed ourselves nobody has told us the end of.
    async fn see_it_gone(&mut self) {
        let late = self.env.now() + SEEN_GONE_WITHIN;
        while test_kill_process_group(self.group).is_ok() {
            if self.env.now() >= late {
                self.exit = Some(Exit { survivors: true, ..self.exit.unwrap_or(WARDEN_GONE) });
                return;
            }
            self.env.sleep(Duration::from_millis(5)).await;
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            // The warden may see the command dead before it reads what we told it: the reason is ours.
            Event::Report(Some(Report::Ended(exit)))
                if self.killed_at.is_some() && exit.status == Status::Signal(9) =>
            {
                let ended_by = exit.ended_by.or(Some(EndedBy::Deadline));
                self.exit = Some(Exit { ended_by, killed: true, ..exit });
            }
            Event::Report(Some(Report::Ended(exit))) => self.exit = Some(exit),
            Event::Report(Some(Report::Stopped(number))) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // We go on here once continued, or at once if the system ignores it: an orphaned group.
                    let _ = kill_current_process_group(signal);
                    self.resume_at = Some(self.env.now() + NOT_STOPPED);
                }
            }
            Event::Report(Some(_)) => {}
            Event::Continued => {
                self.resume_at = None;
                self.post(Order::Continue);
            }
            // The warden has died: the group has only us.
            Event::Report(None) => {
                self.kill();
                self.exit = Some(WARDEN_GONE);
            }
            Event::Overdue if self.killed_at.is_some() => {
                let _ = self.child.start_kill();
                self.exit = Some(WARDEN_GONE);
            }
            Event::Overdue => self.kill(),
        }
    }

    fn kill(&mut self) {
        self.killed_at.get_or_insert(self.env.now());
        let _ = kill_process_group(self.group, Signal::KILL);
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
    fn trusted_for(&self) -> Duration {
        (self.deadline.step_down.until(self.deadline.kill) / 6).min(TRUSTED_FOR)
    }

    fn shut(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        if self.exit.is_none() {
            // Whoever lets go of it may release the lease at once: nothing of the group may run any more.
            self.post(NOW);
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// A warden that has not yet said that the command runs. Dropped, it tells it that there is no time.
struct Unborn(Option<UnixStream>);

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            // Where it cannot be told, the end of the file tells it, and the deadline that it knows.
            let _ = socket.try_write(&wire::line(&NOW));
        }
    }
}

/// A deadline that is over.
const NOW: Order = Order::Deadline { step_down: 0, kill: 0 };

/// What is said where the warden could not.
const WARDEN_GONE: Exit =
    Exit { status: Status::Signal(9), ended_by: Some(EndedBy::WardenGone), killed: true, survivors: false };

/// Runs this same binary as the warden, its standard input being the socket.
fn spawn_warden(command: &CommandSpec, deadline: Deadline, socket: StdStream) -> Result<Child, StartError> {
    let job = command.job_control.then(|| {
        let group = getpgrp();
        Job { group, leads: getpid() == group }
    });
    let call = Call { deadline, job, program: command.program.clone(), args: command.args.clone() };
    let mut warden = std::process::Command::new(this_binary()?);
    warden.arg0("quorate").arg(ARGUMENT).args(call.to_args());
    for name in &command.without {
        warden.env_remove(name);
    }
    warden
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .stdin(OwnedFd::from(socket))
        .stdout(std::process::Stdio::null())
        .process_group(0);
    if let Some(dir) = &command.dir {
        if !dir.is_dir() {
            return Err(StartError::Warden(format!("{} is no directory to run it in", dir.display())));
        }
        warden.current_dir(dir);
    }
    Ok(Command::from(warden).spawn()?)
}

/// On Linux this is the running binary even after an upgrade has replaced it on disk.
fn this_binary() -> io::Result<OsString> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.into()) } else { std::env::current_exe().map(OsString::from) }
}

fn send_streams(socket: &StdStream, streams: &[OwnedFd; 3]) -> io::Result<()> {
    let streams = streams.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut ancillary, SendFlags::empty())?;
    Ok(())
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
