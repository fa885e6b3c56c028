//! The supervisor process. Its standard input is the connection to its parent. It receives the command's three
//! streams over this connection and passes them to the command unchanged.

use super::cgroup::Cgroup;
use super::children::{Change, ProcessTree, become_subreaper, change};
use super::guard::{ASK_TO_END, Guard, Step};
use super::orders::Orders;
use super::passing::receive_streams;
use super::start::{self, Waiting};
use super::terminal::Terminal;
use super::wire::{self, Order, Report};
use super::{Deadline, EndedBy, Exit, START, signals};
use quorate::env::{BootTime, SystemWorld, World};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::{fd::AsFd, unix::net::UnixStream},
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

/// The longest sleep. While the machine is suspended, timers stand still but deadlines do not, so the time is
/// checked at least this often.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
/// The longest sleep while the processes of a group are ending.
const LOOK_WHILE_ENDING: Duration = Duration::from_millis(5);

/// The main function of the supervisor process, which `quorate` starts as `quorate __supervisor …`. Users do
/// not call it. `args` are the arguments after [`ARGUMENT`](super::ARGUMENT).
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().peekable();
    if args.next_if(|first| first == START).is_some() {
        return start::main(args);
    }
    let Some(invocation) = Invocation::parse(args) else {
        eprintln!("quorate: {} is for quorate's own use; see quorate --help", super::ARGUMENT);
        return ExitCode::from(125);
    };
    // The signal handlers are installed first. From then on, only SIGKILL and SIGSTOP can keep this process
    // from ending the command.
    match signals::reset().and_then(|()| signals::install_handlers()).and_then(|()| watch(&invocation)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            report(&Report::Failed(e.to_string()));
            ExitCode::from(125)
        }
    }
}

/// The arguments with which the parent starts the supervisor process.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) deadline: Deadline,
    /// The parent's process group. `None` if the command must not use the terminal.
    pub(super) job_control: Option<JobControl>,
    /// True if processes that the command leaves behind run on.
    pub(super) leave_background: bool,
    /// The working directory of the command. `None` if it is that of the parent.
    pub(super) dir: Option<PathBuf>,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct JobControl {
    pub(super) group: Pid,
    /// True if the parent leads its group, as a command does that a shell starts from its prompt.
    pub(super) leads: bool,
}

impl Invocation {
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let Deadline { step_down, kill } = self.deadline;
        let group = self.job_control.map_or(0, |job_control| job_control.group.as_raw_pid());
        let leads = self.job_control.is_some_and(|job_control| job_control.leads);
        let head = [step_down.as_nanos().to_string(), kill.as_nanos().to_string(), group.to_string()];
        let head = head.into_iter().chain([
            leads.to_string(),
            self.leave_background.to_string(),
            self.dir.is_some().to_string(),
        ]);
        let dir = self.dir.clone().map(PathBuf::into_os_string);
        let tail = dir.into_iter().chain([self.program.clone()]).chain(self.args.iter().cloned());
        head.map(OsString::from).chain(tail).collect()
    }

    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        fn next<T: FromStr>(args: &mut impl Iterator<Item = OsString>) -> Option<T> {
            args.next().as_deref().and_then(OsStr::to_str)?.parse().ok()
        }
        let deadline = wire::deadline(next(&mut args)?, next(&mut args)?);
        let (group, leads) = (next(&mut args)?, next(&mut args)?);
        let job_control = Pid::from_raw(group).map(|group| JobControl { group, leads });
        let leave_background = next(&mut args)?;
        let dir = if next(&mut args)? { Some(args.next()?.into()) } else { None };
        Some(Self {
            deadline,
            job_control,
            leave_background,
            dir,
            program: args.next()?,
            args: args.collect(),
        })
    }
}

fn watch(invocation: &Invocation) -> io::Result<()> {
    if SystemWorld.now() >= invocation.deadline.step_down {
        return Err(io::Error::other("its deadline had passed already"));
    }
    let is_subreaper = become_subreaper();
    let (mut orders, changes) = (Orders::from_stdin()?, signals::children()?);
    if let Some(dir) = &invocation.dir {
        if let Err(error) = std::env::set_current_dir(dir) {
            report(&Report::NotEntered(error.to_string()));
            return Ok(());
        }
        // The file system may have answered late. Until the parent has been sent the report of the group, it sends
        // only the order to end the command at once.
        if SystemWorld.now() >= invocation.deadline.step_down || !orders.take().is_empty() {
            return Err(io::Error::other("its directory answered too late"));
        }
    }
    let cgroup = Cgroup::enter();
    let waiting = Waiting::spawn(&invocation.program, &invocation.args);
    let cgroup = cgroup.and_then(Cgroup::leave);
    let waiting = match waiting {
        Ok(waiting) => waiting,
        Err(error) => {
            cgroup.iter().for_each(Cgroup::remove);
            return Err(error);
        }
    };
    let command = waiting.process();
    let tree = ProcessTree::of(command, is_subreaper, cgroup);
    report(&Report::Ready { group: command.into() });
    let eager = match begin(waiting, invocation) {
        Ok(Some(eager)) => eager,
        other => {
            tree.abandon();
            return other.map(|_| ());
        }
    };

    let terminal = invocation.job_control.and_then(|job_control| Terminal::open(job_control.group, command));
    if eager && terminal.as_ref().is_some_and(Terminal::lend) {
        // The command may have tried to read before the terminal was lent to it. The kernel then stopped the
        // command. So the command is continued.
        tree.signal(Signal::CONT);
    }
    let guard = Guard::new(invocation.deadline).leave_background(invocation.leave_background);
    let mut watch =
        Watch { guard, background: 0, command, tree, terminal, had_terminal: eager, orders, changes };
    let exit = watch.until_done();
    if let Some(terminal) = &watch.terminal {
        terminal.take_back();
    }
    watch.tree.finish();
    report(&Report::Ended(exit));
    Ok(())
}

/// Starts the command once the parent has sent its streams. Returns whether the command is to have the terminal from the
/// beginning. Returns `None` if it was not started, and the parent knows that.
fn begin(waiting: Waiting, invocation: &Invocation) -> io::Result<Option<bool>> {
    let Some(streams) = receive_streams()? else { return Ok(None) };
    let step_down = invocation.deadline.step_down;
    // The parent may have been stopped before it sent the streams.
    if SystemWorld.now() >= step_down {
        return Err(io::Error::other("its deadline had passed already"));
    }
    let eager = invocation.job_control.is_some_and(|job_control| job_control.leads)
        && streams[..2].iter().all(rustix::termios::isatty);
    if let Some(not_started) = waiting.start(streams, step_down)? {
        report(&not_started);
        return Ok(None);
    }
    report(&Report::Started);
    Ok(Some(eager))
}

struct Watch {
    guard: Guard,
    /// The number of processes that the command had left behind when it ended by itself.
    background: usize,
    command: Pid,
    tree: ProcessTree,
    terminal: Option<Terminal>,
    had_terminal: bool,
    orders: Orders,
    /// A socket that becomes readable after each change of a child.
    changes: UnixStream,
}

impl Watch {
    fn until_done(&mut self) -> Exit {
        let mut reap_at = BootTime::default();
        loop {
            let now = SystemWorld.now();
            if now >= reap_at {
                self.tree.reap_orphans();
                reap_at = now + Duration::from_secs(1);
            }
            let Some((now, step)) = self.look() else { continue };
            let nap = match step {
                Step::Done(exit) => {
                    let left = self.guard.ends_escaped() || self.guard.leaves_background();
                    let escaped = if left { 0 } else { self.tree.escaped() };
                    return Exit { background: self.background, escaped, ..exit };
                }
                Step::GiveUp(exit) => {
                    let survivors = self.tree.survivors(self.guard.ends_escaped());
                    return Exit { survivors, background: self.background, ..exit };
                }
                Step::Term => {
                    if self.guard.has_exited() && !self.guard.ends_escaped() {
                        self.background = self.tree.count();
                    }
                    self.tree.signal(Signal::TERM);
                    // A stopped process could not handle SIGTERM and end, so the group is also continued.
                    self.tree.signal(Signal::CONT);
                    self.report_refused(Signal::TERM);
                    LOOK_WHILE_ENDING
                }
                Step::Kill(_) => {
                    self.tree.kill(self.guard.ends_escaped());
                    LOOK_WHILE_ENDING
                }
                Step::Wait(_) if self.guard.lost() || self.guard.has_exited() => LOOK_WHILE_ENDING,
                Step::Wait(until) => now.until(until).min(LOOK_AT_LEAST_EVERY),
            };
            if self.guard.term_sent() && self.guard.ends_escaped() {
                self.tree.end_escaped();
            }
            self.sleep(nap);
        }
    }

    /// Processes all events, and decides on the next step. Returns `None` if orders have arrived in the
    /// meantime. This process may be stopped at any point, so before it acts it must read the orders that
    /// arrived since, such as a later deadline.
    fn look(&mut self) -> Option<(BootTime, Step)> {
        self.take_orders();
        while !self.guard.has_exited()
            && let Some(change) = change(self.command)
        {
            match change {
                // The time is read after the change, so that it is never earlier than the change.
                Change::Exited(status) => self.guard.exited(status, SystemWorld.now()),
                Change::Stopped(signal) => self.stopped(signal),
            }
        }
        let gone = self.guard.has_exited() && self.tree.is_gone(self.guard.ends_escaped());
        let now = SystemWorld.now();
        if self.take_orders() {
            return None;
        }
        Some((now, self.guard.step(now, gone)))
    }

    /// Carries out all orders that have arrived. Returns whether there were any.
    fn take_orders(&mut self) -> bool {
        let orders = self.orders.take();
        for order in &orders {
            match order {
                Some(order) => self.handle(*order),
                None => self.guard.end(EndedBy::ParentGone),
            }
        }
        if orders.iter().any(|order| matches!(order, Some(Order::Deadline { .. }))) {
            report(&Report::Accepted { kill: self.guard.kill_by().as_nanos() });
        }
        !orders.is_empty()
    }

    fn handle(&mut self, order: Order) {
        match order {
            Order::Deadline { step_down, kill } => self.guard.set_deadline(wire::deadline(step_down, kill)),
            Order::StepDown => self.guard.end(EndedBy::StepDown),
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.guard.forwarded(number);
                    self.tree.signal(signal);
                    if ASK_TO_END.contains(&number) {
                        // A stopped process could not handle the signal and end, so the group is also
                        // continued.
                        self.tree.signal(Signal::CONT);
                    }
                    self.report_refused(signal);
                }
            }
            Order::Continue => {
                if self.had_terminal {
                    self.lend();
                }
                self.tree.signal(Signal::CONT);
            }
        }
    }

    /// Reports to the parent the processes that this process has no right to signal.
    fn report_refused(&self, signal: Signal) {
        let processes = self.tree.refusing(self.guard.ends_escaped());
        if !processes.is_empty() {
            report(&Report::NotPermitted { signal: signal.as_raw(), processes });
        }
    }

    /// Sleeps until an event may have happened, but at most for `nap`.
    fn sleep(&self, nap: Duration) {
        let mut watched: Vec<PollFd<'_>> = Vec::with_capacity(2);
        watched.push(PollFd::new(&self.changes, PollFlags::IN));
        if let Some(socket) = self.orders.socket() {
            watched.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        }
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.min(LOOK_AT_LEAST_EVERY).subsec_nanos().into() };
        let _ = poll(&mut watched, Some(&nap));
        let mut bytes = [0; 64];
        while matches!((&self.changes).read(&mut bytes), Ok(1..)) {}
    }

    fn stopped(&mut self, signal: i32) {
        let wanted_it = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal);
        if wanted_it && self.lend() {
            return self.tree.signal(Signal::CONT);
        }
        // Job-control signals stop the parent too. A SIGSTOP is meant only for the command.
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

/// Sends a report to the parent. If the parent has ended, or is stopped and its socket is full, the report is
/// lost, and the supervisor process continues.
fn report(report: &Report) {
    use rustix::net::{SendFlags, send};
    #[cfg(target_os = "linux")]
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::DONTWAIT;
    let _ = send(io::stdin().as_fd(), &wire::line(report), flags);
}
