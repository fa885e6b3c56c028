use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;

/// Sends a signal to a process, which need not be a child of the test.
///
/// # Panics
///
/// If the signal cannot be sent. The test would prove nothing without it.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(raw(pid).expect("a process id"), signal).expect("it runs");
}

/// Returns the parent of a process.
///
/// # Panics If the system does not report the parent.
pub fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs, on Linux");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.and_then(|parent| parent.trim().parse().ok()).expect("a parent")
}

/// Returns whether a process runs. The process need not be a child of the test. A process that has ended and
/// waits to be reaped does not run.
pub fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The line is `pid (name) state …`. The name may contain any characters, so the state is read after the
        // last parenthesis.
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok()),
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
