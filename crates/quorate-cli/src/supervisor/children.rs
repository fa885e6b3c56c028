//! The child processes of the supervisor process: the command, its process group, and processes that have
//! left the group.

use super::cgroup::Cgroup;
use super::processes::{Process, children, descendants};
use super::{Status, Survivor};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, test_kill_process_group,
    waitid,
};
use std::collections::BTreeSet;

/// A change of the command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Stopped(i32),
    Exited(Status),
}

/// Returns the next change of the command that has not been returned yet. A command that has ended is not
/// reaped: its process id, which is also the id of its group, must not be reused.
pub(super) fn change(command: Pid) -> Option<Change> {
    let stop = waitid(WaitId::Pid(command), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
    if let Ok(Some(stop)) = stop
        && let Some(signal) = stop.stopping_signal()
    {
        return Some(Change::Stopped(signal));
    }
    let exited = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(command), exited) {
        Ok(None) | Err(rustix::io::Errno::INTR) => None,
        Ok(Some(seen)) => Some(Change::Exited(match (seen.exit_status(), seen.terminating_signal()) {
            (Some(code), _) => Status::Code(code),
            (None, Some(signal)) => Status::Signal(signal),
            (None, None) => Status::Unknown,
        })),
        // The command is no longer a child of this process, because another process has reaped it. So its exit
        // status is not known.
        Err(_) => Some(Change::Exited(Status::Unknown)),
    }
}

/// The command's process group, and the processes that have left it.
#[derive(Debug)]
pub(super) struct ProcessTree {
    command: Pid,
    is_subreaper: bool,
    cgroup: Option<Cgroup>,
    /// The orphans that have been sent SIGTERM.
    signalled: BTreeSet<i32>,
}

impl ProcessTree {
    pub(super) fn of(command: Pid, is_subreaper: bool, cgroup: Option<Cgroup>) -> Self {
        Self { command, is_subreaper, cgroup, signalled: BTreeSet::new() }
    }

    /// Sends a signal to the command's group. The group's leader has not been reaped, so the id of the group is
    /// valid.
    pub(super) fn signal(&self, signal: Signal) {
        // A process that must not be signalled does not show in the result of a call for the whole group.
        // `ProcessTree::refusing` finds it.
        let _ = kill_process_group(self.command, signal);
    }

    /// Sends SIGTERM, once, to each process that has left the group and lost its parent.
    pub(super) fn end_escaped(&mut self) {
        for orphan in self.orphans() {
            if Process::read(orphan).is_some_and(|orphan| orphan.runs() && !orphan.is_in(self.command))
                && self.signalled.insert(orphan.as_raw_pid())
            {
                // Only this process can reap the orphan. So the process id cannot belong to another process
                // yet.
                let _ = kill_process(orphan, Signal::TERM);
                let _ = kill_process(orphan, Signal::CONT);
            }
        }
    }

    /// Kills the group. If `with_escaped` is true, also kills all other processes that the command has started.
    pub(super) fn kill(&self, with_escaped: bool) {
        self.signal(Signal::KILL);
        if with_escaped {
            for process in self.running(true) {
                let _ = process.signal(Signal::KILL);
            }
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
        }
    }

    /// Returns the processes that this process has no right to signal.
    pub(super) fn refusing(&self, with_escaped: bool) -> Vec<Survivor> {
        self.survivors(with_escaped).into_iter().filter(|one| !one.permitted).collect()
    }

    /// Returns the processes that still run.
    pub(super) fn survivors(&self, with_escaped: bool) -> Vec<Survivor> {
        self.running(with_escaped).iter().map(Process::survivor).collect()
    }

    /// Returns the number of processes that still run in the group after the command itself has ended. Called if there
    /// are any. If they cannot be listed, returns 1.
    pub(super) fn count(&self) -> usize {
        self.running(false).len().max(1)
    }

    /// Returns the number of processes that have left the group and still run.
    pub(super) fn escaped(&self) -> usize {
        self.running(true).iter().filter(|process| !process.is_in(self.command)).count()
    }

    /// Reaps the orphans that have ended.
    pub(super) fn reap_orphans(&self) {
        for orphan in self.orphans() {
            let _ = waitid(WaitId::Pid(orphan), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }

    /// Returns whether no process runs any more, after the command itself has ended. If descendants can be
    /// listed, the command is not reaped, so that the id of its group is not reused.
    pub(super) fn is_gone(&self, with_escaped: bool) -> bool {
        if !self.is_subreaper {
            self.reap();
            return test_kill_process_group(self.command) == Err(rustix::io::Errno::SRCH);
        }
        self.reap_orphans();
        // A process that changes its parent at this moment may be missing from one list, but not from both. So
        // the processes are listed twice.
        self.running(with_escaped).is_empty() && self.running(with_escaped).is_empty()
    }

    /// Ends a process that has not become the command.
    pub(super) fn abandon(self) {
        self.kill(true);
        // The process may still wait for a file system. Then it ends with that wait, without becoming the command.
        self.finish();
    }

    /// Reaps all processes. After that the group must not be signalled, because its id may be reused.
    pub(super) fn finish(self) {
        self.reap();
        self.reap_orphans();
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    fn reap(&self) {
        let _ = waitid(WaitId::Pid(self.command), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }

    /// Returns the processes that still run: the command, its group and, if `with_escaped` is true, those that
    /// have left the group. If this process is not a subreaper, it can find only the command itself.
    fn running(&self, with_escaped: bool) -> Vec<Process> {
        if !self.is_subreaper {
            return Process::read(self.command).into_iter().filter(Process::runs).collect();
        }
        let mut all = descendants(getpid());
        all.retain(|process| process.runs() && (with_escaped || process.is_in(self.command)));
        all
    }

    /// Returns the children of this process, except the command. These processes became children of this
    /// process when they lost their own parents.
    fn orphans(&self) -> Vec<Pid> {
        let mut orphans = if self.is_subreaper { children(getpid()) } else { Vec::new() };
        orphans.retain(|&pid| pid != self.command);
        orphans
    }
}

/// Makes this process the parent of every descendant that loses its own parent. Returns `false` if the system
/// does not support this, or if the children of this process cannot be listed.
#[cfg(target_os = "linux")]
pub(super) fn become_subreaper() -> bool {
    let listed = std::fs::exists("/proc/thread-self/children").unwrap_or(false);
    listed && rustix::process::set_child_subreaper(Some(getpid())).is_ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn become_subreaper() -> bool {
    false
}
