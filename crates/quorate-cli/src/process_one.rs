//! The duties of process 1 in a container, which are to reap orphaned processes and to forward signals.

use crate::exit::{FAILURE, Failure};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use std::{os::unix::process::CommandExt, process::Command};
use tokio::signal::unix::{SignalKind, signal};

/// The signals HUP, INT, QUIT, USR1, USR2 and TERM. The kernel gives process 1 no default action for them.
const FORWARDED: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TERM];

pub(crate) fn is_process_one() -> bool {
    std::process::id() == 1
}

/// Runs this program again as a child, with the same arguments. Acts as the child's init process until the
/// child ends.
pub(crate) async fn supervise() -> Result<u8, Failure> {
    let fail = |error: std::io::Error| Failure::new(FAILURE, format!("as process 1: {error}"));
    let mut children = signal(SignalKind::child()).map_err(fail)?;
    let mut passed_on = Vec::new();
    for number in FORWARDED {
        passed_on.push((number, signal(SignalKind::from_raw(number.as_raw())).map_err(fail)?));
    }
    let exe = std::env::current_exe().map_err(fail)?;
    // The child gets a process group of its own. The group of process 1 may be outside of the container's
    // process namespace, so signals could not reach it.
    let child = Command::new(exe).args(std::env::args_os().skip(1)).process_group(0).spawn().map_err(fail)?;
    let child = Pid::from_child(&child);
    loop {
        if let Some(code) = reap(child) {
            return Ok(code);
        }
        let requested = std::future::poll_fn(|cx| {
            for (number, stream) in &mut passed_on {
                if stream.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        });
        tokio::select! { biased;
            // If the child has just ended, the next iteration of the loop reaps it.
            number = requested => drop(kill_process(child, number)),
            _ = children.recv() => {}
        }
    }
}

/// Reaps all children that have ended. Returns the exit status of `child` if it is among them.
fn reap(child: Pid) -> Option<u8> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == child {
            return Some(code(status));
        }
    }
    None
}

fn code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => i32::from(FAILURE),
    };
    u8::try_from(code).unwrap_or(FAILURE)
}
