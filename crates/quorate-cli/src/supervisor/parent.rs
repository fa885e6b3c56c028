//! The view that the parent of the supervisor process has of the command. The parent needs it if the supervisor
//! process fails.

use super::processes::{Pinned, Process, descendants, members, pin};
use super::{Survivor, cgroup, processes};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::io;
#[cfg(target_os = "linux")]
use tokio::io::{Interest, unix::AsyncFd};

/// The command, whose parent is the supervisor process.
#[derive(Debug)]
pub(super) struct CommandView {
    group: Pid,
    /// The command itself. `None` without `/proc`, or if the command was already reaped when this process
    /// looked for it.
    leader: Option<Process>,
    #[cfg(target_os = "linux")]
    end: Option<AsyncFd<std::os::fd::OwnedFd>>,
}

impl CommandView {
    /// Returns the command that leads `group`, as a child of `supervisor`. Needs a tokio runtime with I/O.
    pub(super) fn new(group: Pid, supervisor: Pid) -> Self {
        let pinned = pin(group);
        // The process is pinned before its data is read. If the process id now belongs to a child of the
        // supervisor process, that child is the command, and the pidfd refers to the command too.
        let leader = Process::read(group).filter(|command| command.is_child_of(supervisor));
        if leader.is_some() && pinned.is_none() {
            tracing::warn!(
                "this kernel has no pidfds (they came with Linux 5.3): the end of the command is known from its \
                 supervisor alone"
            );
        }
        Self::watching(group, leader, pinned)
    }

    #[cfg(target_os = "linux")]
    #[allow(
        deprecated,
        reason = "what replaces it is newer than the oldest tokio that we allow; the descriptor is owned"
    )]
    fn watching(group: Pid, leader: Option<Process>, pinned: Option<Pinned>) -> Self {
        let pinned = pinned.filter(|_| leader.is_some());
        let end = pinned.and_then(|Pinned(fd)| AsyncFd::with_interest(fd, Interest::READABLE).ok());
        Self { group, leader, end }
    }

    #[cfg(not(target_os = "linux"))]
    fn watching(group: Pid, leader: Option<Process>, _: Option<Pinned>) -> Self {
        Self { group, leader }
    }

    /// Returns the process id of the command, which is also the id of its group.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Waits until the command itself has ended. Never returns if that cannot be observed.
    ///
    /// Cancel safe.
    #[cfg(target_os = "linux")]
    pub(super) async fn ended(&self) {
        match &self.end {
            Some(end) if end.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Never returns, because on these systems the exit of the command cannot be observed.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn ended(&self) {
        std::future::pending().await
    }

    /// Returns whether the command itself has ended by now. Returns false if the command could not be read.
    pub(super) fn has_ended(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| !(leader.is_unreaped() && leader.still_runs()))
    }

    /// Kills the group and all descendants of `supervisor`. `supervisor` must not have been reaped.
    pub(super) fn kill(&self, supervisor: Option<Pid>) {
        match &self.leader {
            // While the command has not been reaped, its process id, which is also the id of the group, is not
            // reused.
            Some(leader) if leader.is_unreaped() => {
                let _ = kill_process_group(self.group, Signal::KILL);
            }
            Some(leader) => {
                for member in members(leader) {
                    let _ = member.signal(Signal::KILL);
                }
            }
            // The command was already reaped when this process looked for it. The supervisor process reaps it
            // only after its whole group has ended, so nothing is left to kill.
            None if processes::are_shown() => {}
            None => {
                let _ = kill_process_group(self.group, Signal::KILL);
            }
        }
        if let Some(supervisor) = supervisor {
            for process in descendants(supervisor) {
                let _ = process.signal(Signal::KILL);
            }
            cgroup::kill_command_of(supervisor);
        }
    }

    /// Returns the processes of the group, and the descendants of `supervisor`, that still run. `supervisor`
    /// must not have been reaped.
    pub(super) fn survivors(&self, supervisor: Option<Pid>) -> Vec<Survivor> {
        let mut running: Vec<Process> = supervisor.map(descendants).unwrap_or_default();
        running.retain(Process::runs);
        match &self.leader {
            Some(leader) => running.extend(members(leader)),
            None if processes::are_shown() => {}
            None if test_kill_process_group(self.group) == Err(rustix::io::Errno::SRCH) => {}
            None => {
                return vec![Survivor {
                    pid: self.group.as_raw_pid(),
                    name: String::new(),
                    user: None,
                    permitted: true,
                }];
            }
        }
        running.sort_unstable_by_key(|process| process.pid.as_raw_pid());
        running.dedup_by_key(|process| process.pid.as_raw_pid());
        running.iter().map(Process::survivor).collect()
    }
}

/// Kills a child of this process if the child is stopped, because a stopped process cannot end by itself. The
/// child must not have been reaped.
pub(super) fn kill_if_stopped(pid: Pid) -> io::Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()))?;
    if status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't'])) {
        rustix::process::kill_process(pid, Signal::KILL)?;
    }
    Ok(())
}
