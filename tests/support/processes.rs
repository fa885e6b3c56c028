use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;

/// Sends a signal to a process that need not be our child.
///
/// # Panics
/// Where that fails: a fault that was not made proves nothing.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(raw(pid).expect("a process id"), signal).expect("it runs");
}

/// The process that started this one, or has inherited it.
///
/// # Panics
/// Where the system does not tell.
pub fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs, on Linux");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.and_then(|parent| parent.trim().parse().ok()).expect("a parent")
}

/// Whether a process runs that need not be our child. A dead one that nobody has reaped does not.
pub fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // `pid (name) state …`, where the name may hold anything.
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok()),
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
