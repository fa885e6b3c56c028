//! The warden's own process. Its standard input is the socket to its parent; the command's streams come
//! over it, so that they reach the command untouched.

use super::children::{Change, Family, adopt, next_change};
use super::guard::{Guard, Step};
use super::terminal::Terminal;
use super::wire::{self, Order, Report};
use super::{Deadline, EndedBy, Exit, signals};
use quorate::env::{BootTime, SystemWorld, World};
use rustix::process::{Pid, Signal};
use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, ExitCode},
    str::FromStr,
    sync::mpsc,
    time::Duration,
};

/// The longest nap: timers stand still while the machine sleeps, deadlines do not.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
/// Naps while a group is ending.
const LOOK_WHILE_ENDING: Duration = Duration::from_millis(5);

/// The warden, which `quorate` starts as `quorate __warden …`: not for people. `args` are those after
/// [`ARGUMENT`](super::ARGUMENT).
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(call) = Call::parse(args.into_iter()) else {
        eprintln!("quorate: {} is for quorate's own use; see quorate --help", super::ARGUMENT);
        return ExitCode::from(125);
    };
    // Signals first: from here on nothing but SIGKILL and SIGSTOP can keep a command from its end.
    match signals::shield().and_then(|()| watch(&call)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            report(&Report::Failed(e.to_string()));
            ExitCode::from(125)
        }
    }
}

/// How the parent calls its warden.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) deadline: Deadline,
    /// The parent's process group, where the command may have the terminal.
    pub(super) job: Option<Job>,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) group: Pid,
    /// Whether the parent leads it, as what a shell starts from its prompt does.
    pub(super) leads: bool,
}

impl Call {
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let Deadline { step_down, kill } = self.deadline;
        let group = self.job.map_or(0, |job| job.group.as_raw_pid());
        let leads = self.job.is_some_and(|job| job.leads);
        let head = [step_down.as_nanos().to_string(), kill.as_nanos().to_string(), group.to_string()];
        let head = head.into_iter().chain([leads.to_string()]).map(OsString::from);
        let tail = std::iter::once(self.program.clone()).chain(self.args.iter().cloned());
        head.chain(tail).collect()
    }

    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        fn next<T: FromStr>(args: &mut impl Iterator<Item = OsString>) -> Option<T> {
            args.next().as_deref().and_then(OsStr::to_str)?.parse().ok()
        }
        let deadline = wire::deadline(next(&mut args)?, next(&mut args)?);
        let (group, leads) = (next(&mut args)?, next(&mut args)?);
        let job = Pid::from_raw(group).map(|group| Job { group, leads });
        Some(Self { deadline, job, program: args.next()?, args: args.collect() })
    }
}

enum Event {
    Order(Order),
    ParentGone,
    Change(Change),
}

fn watch(call: &Call) -> io::Result<()> {
    if SystemWorld.now() >= call.deadline.step_down {
        return Err(io::Error::other("its deadline had passed already"));
    }
    let adopts = adopt();
    let Some(streams) = receive_streams()? else { return Ok(()) };
    let eager = call.job.is_some_and(|job| job.leads) && streams[..2].iter().all(rustix::termios::isatty);
    let Some(command) = spawn(call, streams) else { return Ok(()) };
    report(&Report::Started { group: command.as_raw_pid() });

    let terminal = call.job.and_then(|job| Terminal::open(job.group, command));
    let family = Family::of(command, adopts);
    if eager && terminal.as_ref().is_some_and(Terminal::lend) {
        // It may have been stopped for reading before it had the terminal.
        family.signal(Signal::CONT, false);
    }
    let mut watch = Watch { guard: Guard::new(call.deadline), family, terminal, had_terminal: eager };
    let exit = watch.until_done(&listen(command));
    if let Some(terminal) = &watch.terminal {
        terminal.take_back();
    }
    report(&Report::Ended(exit));
    Ok(())
}

/// Starts the command in a group of its own; where that fails, says why.
fn spawn(call: &Call, streams: [OwnedFd; 3]) -> Option<Pid> {
    let [stdin, stdout, stderr] = streams;
    // The command and with it our copies of its streams are gone at the end: whoever reads its output sees
    // the end of it.
    let spawned = Command::new(&call.program)
        .args(&call.args)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn();
    match spawned {
        Ok(child) => return Some(Pid::from_child(&child)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => report(&Report::NotFound(e.to_string())),
        Err(e) => report(&Report::NotExecutable(e.to_string())),
    }
    None
}

/// Turns what comes over the socket and from the command into events, each on a thread that ends with us.
fn listen(command: Pid) -> mpsc::Receiver<Event> {
    let (events, inbox) = mpsc::channel();
    let orders = events.clone();
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            match serde_json::from_slice(&line) {
                Ok(order) => drop(orders.send(Event::Order(order))),
                // Whatever it was to say, deadlines are as they were.
                Err(_) => break,
            }
        }
        let _ = orders.send(Event::ParentGone);
    });
    std::thread::spawn(move || {
        while let Ok(change) = next_change(command) {
            let _ = events.send(Event::Change(change));
            if matches!(change, Change::Exited(_)) {
                break;
            }
        }
    });
    inbox
}

struct Watch {
    guard: Guard,
    family: Family,
    terminal: Option<Terminal>,
    had_terminal: bool,
}

impl Watch {
    fn until_done(&mut self, events: &mpsc::Receiver<Event>) -> Exit {
        let mut bury_at = BootTime::default();
        loop {
            let now = SystemWorld.now();
            let gone = self.guard.has_exited() && self.family.is_gone(self.guard.lost());
            let lost = self.guard.lost();
            let nap = match self.guard.step(now, gone) {
                Step::Done(exit) => return exit,
                Step::Term => {
                    self.family.signal(Signal::TERM, self.guard.lost());
                    // One that is stopped could not end.
                    self.family.signal(Signal::CONT, self.guard.lost());
                    LOOK_WHILE_ENDING
                }
                Step::Kill(_) => {
                    self.family.signal(Signal::KILL, self.guard.lost());
                    LOOK_WHILE_ENDING
                }
                Step::Wait(_) if lost || self.guard.has_exited() => LOOK_WHILE_ENDING,
                Step::Wait(until) => now.until(until).min(LOOK_AT_LEAST_EVERY),
            };
            if now >= bury_at {
                self.family.bury_strays();
                bury_at = now + Duration::from_secs(1);
            }
            match events.recv_timeout(nap) {
                Ok(event) => self.hear(event),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                // Both listeners have said all they had to.
                Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(nap),
            }
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Order(Order::Deadline { step_down, kill }) => {
                self.guard.set_deadline(wire::deadline(step_down, kill));
            }
            Event::Order(Order::StepDown) => self.guard.end(EndedBy::StepDown),
            Event::Order(Order::Signal(number)) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.family.signal(signal, false);
                }
            }
            Event::Order(Order::Continue) => {
                if self.had_terminal {
                    self.lend();
                }
                self.family.signal(Signal::CONT, false);
            }
            Event::ParentGone => self.guard.end(EndedBy::ParentGone),
            Event::Change(Change::Exited(status)) => self.guard.exited(status, SystemWorld.now()),
            Event::Change(Change::Stopped(signal)) => self.stopped(signal),
        }
    }

    fn stopped(&mut self, signal: i32) {
        let wanted_it = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal);
        if wanted_it && self.lend() {
            return self.family.signal(Signal::CONT, false);
        }
        // A SIGSTOP is somebody's wish for the command alone.
        if let Some(terminal) =
            self.terminal.as_ref().filter(|_| wanted_it || signal == Signal::TSTP.as_raw())
        {
            terminal.take_back();
            report(&Report::Stopped(signal));
        }
    }

    fn lend(&mut self) -> bool {
        let lent = self.terminal.as_ref().is_some_and(Terminal::lend);
        self.had_terminal |= lent;
        lent
    }
}

/// The command's three streams. `None` where the parent is gone.
fn receive_streams() -> io::Result<Option<[OwnedFd; 3]>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let socket = io::stdin();
    let got =
        recvmsg(socket.as_fd(), &mut [io::IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut streams = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            streams.extend(fds);
        }
    }
    for stream in &streams {
        // The command gets them as its own three, and no others.
        rustix::io::fcntl_setfd(stream, rustix::io::FdFlags::CLOEXEC)?;
    }
    let streams = streams.try_into();
    streams.map(Some).map_err(|_| io::Error::other("the command's streams did not arrive"))
}

/// Tells the parent. It may be gone, or stopped with a full socket: the guard goes on all the same.
fn report(report: &Report) {
    use rustix::net::{SendFlags, send};
    #[cfg(target_os = "linux")]
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::DONTWAIT;
    let _ = send(io::stdin().as_fd(), &wire::line(report), flags);
}
