//! The command's process group, and on Linux what has left it.

use super::Status;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group, waitid,
};

/// A change of the command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Stopped(i32),
    Exited(Status),
}

/// Waits for the next change of the command. An ended one stays a zombie, so that its number, which is the
/// group's too, can be nobody else's.
pub(super) fn next_change(command: Pid) -> rustix::io::Result<Change> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        let seen = match waitid(WaitId::Pid(command), look) {
            Ok(Some(seen)) => seen,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        if let Some(code) = seen.exit_status() {
            return Ok(Change::Exited(Status::Code(code)));
        }
        if let Some(signal) = seen.terminating_signal() {
            return Ok(Change::Exited(Status::Signal(signal)));
        }
        // Taken this time, or it would be seen again and again.
        let stop = waitid(WaitId::Pid(command), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?;
        if let Some(signal) = stop.and_then(|stop| stop.stopping_signal()) {
            return Ok(Change::Stopped(signal));
        }
    }
}

/// The command's process group, and those that have left it and were given to us.
#[derive(Debug)]
pub(super) struct Family {
    command: Pid,
    adopts: bool,
}

impl Family {
    pub(super) fn of(command: Pid, adopts: bool) -> Self {
        Self { command, adopts }
    }

    /// Signals the group and, where they are to end as well, those that have left it.
    pub(super) fn signal(&self, signal: Signal, strays_too: bool) {
        // Whoever has gone meanwhile needs no signal.
        let _ = kill_process_group(self.command, signal);
        if strays_too {
            for stray in self.strays() {
                let _ = kill_process(stray, signal);
            }
        }
    }

    /// Lets go of those that have ended and were given to us.
    pub(super) fn bury_strays(&self) {
        for stray in self.strays() {
            let _ = waitid(WaitId::Pid(stray), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }

    /// Whether nothing runs any more, after the command itself has ended.
    pub(super) fn is_gone(&self, strays_too: bool) -> bool {
        let _ = waitid(WaitId::Pid(self.command), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        self.bury_strays();
        test_kill_process_group(self.command) == Err(rustix::io::Errno::SRCH)
            && (!strays_too || self.strays().is_empty())
    }

    fn strays(&self) -> Vec<Pid> {
        let mut strays = if self.adopts { adopted() } else { Vec::new() };
        strays.retain(|&pid| pid != self.command);
        strays
    }
}

/// From now on, whoever below us loses its parent becomes our child. `false` where that cannot be, or our
/// children cannot be listed.
#[cfg(target_os = "linux")]
pub(super) fn adopt() -> bool {
    use rustix::process::{getpid, set_child_subreaper};
    let listed = std::fs::exists("/proc/thread-self/children").unwrap_or(false);
    listed && set_child_subreaper(Some(getpid())).is_ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() -> bool {
    false
}

/// All our children. They are ours to wait for, so none of their numbers can be anybody else's.
fn adopted() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let all: String = lists.collect();
    all.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
