//! Finds processes in `/proc`, and signals them. A signal never reaches another process to which the system
//! has given the same process id later.
//!
//! On systems other than Linux, this module finds no process and signals none.

use super::Survivor;
use nix::unistd;
use quorate::plain::plain;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, test_kill_process};
use std::{collections::BTreeMap, fs};

/// The longest name of a process that is shown, in bytes.
const NAME_MAX: usize = 64;

/// A process, identified by its process id together with its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    parent: i32,
    group: i32,
    session: i32,
    /// The start time, in clock ticks since boot. `None` if `/proc` hides the process from this user.
    started: Option<u64>,
    ended: bool,
}

impl Process {
    /// Reads the process with this id. Returns `None` if the process does not exist, or if `/proc` does not
    /// show it.
    pub(super) fn read(pid: Pid) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
    }

    /// Finds a process like [`Process::read`], even if `/proc` hides it from this user.
    fn find(pid: Pid) -> Option<Self> {
        Self::read(pid).or_else(|| {
            let hidden = test_kill_process(pid) == Err(Errno::PERM);
            let raw = unistd::Pid::from_raw(pid.as_raw_pid());
            let group = unistd::getpgid(Some(raw)).ok().filter(|_| hidden)?.as_raw();
            Some(Self { pid, parent: 0, group, session: 0, started: None, ended: false })
        })
    }

    /// Parses `pid (name) state parent group session …`. The name may contain any characters.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        // The first thread of a process may have ended while the other threads still run. Then the process has
        // not ended.
        let ended = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: Some(number(19)?),
            ended,
        })
    }

    /// Returns whether the process had not ended when it was read. A process that waits to be reaped has ended.
    pub(super) fn runs(&self) -> bool {
        !self.ended
    }

    /// Reads the process's state again, and returns whether it has not ended. Another process may have the
    /// process id by now, so [`Process::is_unreaped`] must be checked too.
    pub(super) fn still_runs(&self) -> bool {
        Self::find(self.pid).is_some_and(|now| now.runs())
    }

    pub(super) fn is_child_of(&self, parent: Pid) -> bool {
        self.parent == parent.as_raw_pid()
    }

    pub(super) fn is_in(&self, group: Pid) -> bool {
        self.group == group.as_raw_pid()
    }

    /// Returns whether the process id still belongs to this process. The id belongs to the process until the
    /// process is reaped.
    pub(super) fn is_unreaped(&self) -> bool {
        match self.started {
            Some(_) => Self::read(self.pid).is_some_and(|now| now.started == self.started),
            None => test_kill_process(self.pid) == Err(Errno::PERM),
        }
    }

    /// Sends a signal to this process. If the process id belongs to another process by now, sends nothing.
    pub(super) fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        let pinned = pin(self.pid);
        if !self.is_unreaped() {
            return Err(Errno::SRCH);
        }
        match pinned {
            Some(pinned) => pinned.signal(signal),
            // Linux before 5.3 has no pidfds. The start time was just checked, and the system does not reuse a
            // process id so soon.
            None => rustix::process::kill_process(self.pid, signal),
        }
    }

    /// Returns the description of a process that could not be ended, for the exit.
    pub(super) fn survivor(&self) -> Survivor {
        let dir = format!("/proc/{}", self.pid.as_raw_pid());
        let name = fs::read(format!("{dir}/comm")).unwrap_or_default();
        let status = fs::read_to_string(format!("{dir}/status")).unwrap_or_default();
        let user = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
        Survivor {
            pid: self.pid.as_raw_pid(),
            name: plain(String::from_utf8_lossy(&name).trim_end(), NAME_MAX),
            user,
            permitted: test_kill_process(self.pid) != Err(Errno::PERM),
        }
    }
}

/// Returns whether processes can be found at all. That requires a mounted `/proc`.
pub(super) fn are_shown() -> bool {
    Process::read(rustix::process::getpid()).is_some()
}

/// A handle of a process, which refers to the same process even after its process id is reused.
#[derive(Debug)]
pub(super) struct Pinned(#[cfg(target_os = "linux")] pub(super) std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Pinned {
    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::pidfd_send_signal(&self.0, signal)
    }
}

#[cfg(not(target_os = "linux"))]
impl Pinned {
    fn signal(&self, _: Signal) -> rustix::io::Result<()> {
        Err(Errno::NOSYS)
    }
}

/// Opens a pidfd of the process. Returns `None` if the system has no pidfds, or if the process does not exist.
#[cfg(target_os = "linux")]
pub(super) fn pin(pid: Pid) -> Option<Pinned> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok().map(Pinned)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn pin(_: Pid) -> Option<Pinned> {
    None
}

/// Returns the children that any thread of the process has started.
pub(super) fn children(of: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", of.as_raw_pid())).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let all: String = lists.collect();
    all.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Returns all descendants of `of` that have not been reaped. A process that changes its parent at this moment
/// may be missing.
pub(super) fn descendants(of: Pid) -> Vec<Process> {
    let mut found = BTreeMap::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for process in children(parent).into_iter().filter_map(Process::find) {
            if found.insert(process.pid.as_raw_pid(), process).is_none() {
                parents.push(process.pid);
            }
        }
    }
    found.into_values().collect()
}

/// Returns the processes of the group that `leader` led, as far as they still run. The leader itself may have
/// been reaped.
pub(super) fn members(leader: &Process) -> Vec<Process> {
    if Process::read(leader.pid).is_some_and(|now| now.started != leader.started) {
        // Another process has the leader's process id. The system reuses the id only after the whole group has
        // ended.
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let all = pids.filter_map(Process::read);
    all.filter(|one| one.runs() && one.group == leader.group && one.session == leader.session).collect()
}

/// Returns the process group of this process. Returns `None` if the group is outside of this process's namespace of
/// processes, where the kernel gives it the number 0. `rustix` does not accept that number.
pub(crate) fn own_group() -> Option<Pid> {
    Pid::from_raw(unistd::getpgrp().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) Z 9) S 3 5 4 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2 3\n";

    #[test]
    fn a_name_cannot_imitate_the_fields_after_it() {
        let pid = Pid::from_raw(7).unwrap();
        let process = Process::parse(pid, STAT).unwrap();
        assert_eq!((process.parent, process.group, process.session, process.started), (3, 5, 4, Some(4711)));
        assert!(process.runs());
        assert!(!Process::parse(pid, &STAT.replace(") S", ") Z")).unwrap().runs());
        let threads = STAT.replace(") S", ") Z").replace("20 0 1 0", "20 0 2 0");
        assert!(Process::parse(pid, &threads).unwrap().runs(), "its other threads run");
        assert_eq!(Process::parse(pid, "7 (a"), None);
    }

    #[test]
    fn a_process_of_another_start_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let process = Process::read(pid).unwrap();
        let earlier = Process { started: process.started.map(|at| at - 1), ..process };
        assert_eq!(earlier.signal(Signal::KILL), Err(Errno::SRCH));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(process.signal(Signal::KILL), Ok(()));
        child.wait().unwrap();
        assert_eq!(process.signal(Signal::KILL), Err(Errno::SRCH));
    }
}
