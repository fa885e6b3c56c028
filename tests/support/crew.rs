use super::{PATIENCE, is_alive, signal, until};
use quorate::env::{BootTime, SystemWorld, World};
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

/// A process of a crew, by its member and the number of that member's starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The index of the member.
    pub member: usize,
    /// The number of this run of the member, from one.
    pub run: u32,
}

/// A line that a process of a crew has written, or the end of its output.
#[derive(Clone, Debug)]
pub struct Told {
    /// The process.
    pub who: Who,
    /// The line. `None` at the end of the process's output.
    pub line: Option<String>,
}

/// The reason why the end of a process is a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The description of the failure.
    pub why: String,
    /// The exit code, if the process ended with one.
    pub code: Option<i32>,
}

/// A fixed number of processes (*members*) that report on standard output. A test can stop, kill and restart
/// each of them. Their standard input is a pipe that closes when the test ends. Dropping the crew kills the
/// processes.
pub struct Crew {
    command: Box<dyn Fn(Who) -> Command + Send>,
    members: Vec<Option<Member>>,
    runs: Vec<u32>,
    tell: Sender<Told>,
    told: Receiver<Told>,
}

struct Member {
    child: Child,
    _stdin: Option<ChildStdin>,
    stopped: bool,
    told: Option<BootTime>,
}

impl Crew {
    /// Returns a crew of `size` members, none of which runs yet. `command` returns the command that starts a
    /// member.
    pub fn new(size: usize, command: impl Fn(Who) -> Command + Send + 'static) -> Self {
        let (tell, told) = channel();
        let members = (0..size).map(|_| None).collect();
        Self { command: Box::new(command), members, runs: vec![0; size], tell, told }
    }

    /// Returns the number of members, whether or not they run.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Starts a member that does not run.
    ///
    /// # Panics
    /// If the member cannot be started.
    pub fn start(&mut self, member: usize) -> Who {
        assert!(self.members[member].is_none(), "member {member} runs");
        self.runs[member] += 1;
        let who = self.who(member);
        let mut command = (self.command)(who);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let tell = self.tell.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(Told { who, line: Some(line) });
            }
            let _ = tell.send(Told { who, line: None });
        });
        self.members[member] = Some(Member { child, _stdin: stdin, stopped: false, told: None });
        who
    }

    /// Returns the run of the member that is active, or its last one.
    pub fn who(&self, member: usize) -> Who {
        Who { member, run: self.runs[member] }
    }

    /// Returns the member's process id, while the member runs.
    pub fn pid(&self, member: usize) -> Option<u32> {
        self.members[member].as_ref().map(|one| one.child.id())
    }

    /// Returns whether the member runs, and has neither been stopped nor asked to end.
    pub fn is_going(&self, member: usize) -> bool {
        self.members[member].as_ref().is_some_and(|one| !one.stopped && one.told.is_none())
    }

    /// Returns the next line of any member, within `wait`.
    pub fn next(&self, wait: Duration) -> Option<Told> {
        self.told.recv_timeout(wait).ok()
    }

    /// Stops a member (SIGSTOP), and waits until it is stopped. Returns the time after the stop.
    ///
    /// # Panics
    /// If the member does not run. The test would prove nothing without the fault.
    pub fn stop(&mut self, member: usize) -> BootTime {
        let one = self.members[member].as_mut().expect("it runs");
        let pid = one.child.id();
        signal(pid, Signal::STOP);
        one.stopped = true;
        until("stopped process", PATIENCE, || is_stopped(pid).then_some(()));
        SystemWorld.now()
    }

    /// Lets a stopped member continue (SIGCONT). Returns the time before the signal.
    ///
    /// # Panics
    ///
    /// If the member does not run.
    pub fn go_on(&mut self, member: usize) -> BootTime {
        let one = self.members[member].as_mut().expect("it runs");
        let at = SystemWorld.now();
        signal(one.child.id(), Signal::CONT);
        one.stopped = false;
        at
    }

    /// Kills a member (SIGKILL) and reaps it. Returns the time before the signal.
    ///
    /// # Panics
    /// If the member does not run.
    pub fn kill(&mut self, member: usize) -> BootTime {
        let mut one = self.members[member].take().expect("it runs");
        let at = SystemWorld.now();
        let _ = one.child.kill();
        let _ = one.child.wait();
        at
    }

    /// Sends SIGTERM to a member, and returns the time before the signal. Does not wait: [`Crew::ended`]
    /// reports the end of the member.
    ///
    /// # Panics
    /// If the member does not run.
    pub fn tell_to_end(&mut self, member: usize) -> BootTime {
        let one = self.members[member].as_mut().expect("it runs");
        let at = SystemWorld.now();
        signal(one.child.id(), Signal::TERM);
        one.told.get_or_insert(at);
        at
    }

    /// Returns the members that have ended. The result of a member that ended after SIGTERM is the time since
    /// SIGTERM. The result is an error if a member ended without SIGTERM or with a failure. A member that still
    /// runs at `within` after SIGTERM is killed, and its result is an error too.
    pub fn ended(&mut self, within: Duration) -> Vec<(usize, Result<Duration, Failed>)> {
        let mut ended = Vec::new();
        for (member, place) in self.members.iter_mut().enumerate() {
            let Some(one) = place else { continue };
            let took = one.told.map(|told| SystemWorld.now().since(told));
            let how = match (one.child.try_wait(), took) {
                (Ok(Some(status)), Some(took)) if status.success() => Ok(took),
                (Ok(Some(status)), Some(_)) => {
                    Err(Failed { why: format!("ended with {status} on SIGTERM"), code: status.code() })
                }
                (Ok(Some(status)), None) => {
                    Err(Failed { why: format!("ended by itself: {status}"), code: status.code() })
                }
                (Err(error), _) => Err(Failed { why: error.to_string(), code: None }),
                (Ok(None), Some(took)) if took > within => {
                    Err(Failed { why: format!("did not end in {took:?} of SIGTERM"), code: None })
                }
                (Ok(None), _) => continue,
            };
            let _ = one.child.kill();
            let _ = one.child.wait();
            *place = None;
            ended.push((member, how));
        }
        ended
    }

    /// Returns the process ids of members that run.
    pub fn pids(&self) -> Vec<u32> {
        (0..self.size()).filter_map(|member| self.pid(member)).filter(|pid| is_alive(*pid)).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for one in self.members.iter_mut().flatten() {
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("pids", &self.pids()).finish_non_exhaustive()
    }
}

/// Returns whether the process is stopped, according to the kernel.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
