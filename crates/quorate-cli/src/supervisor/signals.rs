use std::{io, task::Poll};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are forwarded to a command, the same as with timeout(1): HUP, INT, QUIT, USR1, USR2, TERM.
const FORWARDED: [i32; 6] = [1, 2, 3, USR1, USR2, 15];
const CHLD: i32 = rustix::process::Signal::CHILD.as_raw();
const USR1: i32 = rustix::process::Signal::USR1.as_raw();
const USR2: i32 = rustix::process::Signal::USR2.as_raw();

/// The signals that this process receives and forwards to a command.
///
/// Once this value exists, these signals no longer end this process. A signal that was ignored (under
/// `nohup`, for example) stays ignored.
#[derive(Debug)]
pub struct ForwardedSignals {
    signals: Vec<(i32, Signal)>,
}

impl ForwardedSignals {
    /// Begins to catch the signals. Call this before [`Supervisor::start`](super::Supervisor::start). Otherwise
    /// a signal that arrives in between would end this process.
    ///
    /// # Errors
    /// The error of the system for a handler that cannot be installed.
    pub fn catch() -> io::Result<Self> {
        let caught =
            not_ignored(&FORWARDED).map(|number| Ok((number, signal(SignalKind::from_raw(number))?)));
        Ok(Self { signals: caught.collect::<io::Result<_>>()? })
    }

    /// Waits for the next signal, which the caller passes to
    /// [`Supervisor::signal`](super::Supervisor::signal).
    ///
    /// # Cancel safety
    /// Safe: no signal is lost.
    pub async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| {
            for (number, signal) in &mut self.signals {
                if let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Resets two settings that this process may have inherited from its parent. If SIGCHLD is ignored, the kernel
/// reaps children itself, and their exit status is lost. If signals are blocked, they cannot end this process.
/// Call this once, before another thread exists.
pub(crate) fn reset() -> io::Result<()> {
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    // A command that this process starts inherits an ignored SIGCHLD, but not a handler. So a handler that does
    // nothing is installed, and the command gets the default action.
    signal_hook::flag::register(CHLD, std::sync::Arc::default())?;
    Ok(())
}

/// Returns a socket that becomes readable after each change of a child.
pub(super) fn children() -> io::Result<std::os::unix::net::UnixStream> {
    let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(CHLD, writer)?;
    Ok(reader)
}

/// Installs handlers, so that signals for a command, or for a whole service, do not end the supervisor process
/// that guards the command. The signals are not ignored or blocked, because the command would inherit that.
pub(super) fn install_handlers() -> io::Result<()> {
    let stops = [rustix::process::Signal::TSTP.as_raw()];
    for number in not_ignored(&FORWARDED).chain(stops) {
        signal_hook::flag::register(number, std::sync::Arc::default())?;
    }
    Ok(())
}

fn not_ignored(numbers: &[i32]) -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    numbers.iter().copied().filter(move |number| ignored & (1 << (number - 1)) == 0)
}

/// Returns the set of ignored signals from the text of `/proc/self/status`. On systems other than Linux,
/// returns an empty set.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_as_linux_writes_them() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tff\n"), 1 | 1 << 12);
        assert_eq!(ignored(""), 0);
    }
}
