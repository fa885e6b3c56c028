//! The end of a daemon that does not end by itself.

use crate::{exit::FAILURE, log};
use signal_hook::{
    SigId,
    consts::{SIGINT, SIGTERM},
    low_level::{self, pipe},
};
use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

/// How long after the step-down grace a daemon may take to end: its last records, its lease, its connections.
const REST: Duration = Duration::from_secs(10);

/// Ends the process some time after SIGTERM or SIGINT, whatever the rest of it does: from a thread of its own, which
/// shares nothing with the daemon's loop. Dropping this ends the watch.
#[derive(Debug)]
pub(super) struct StopDeadline {
    signals: Vec<SigId>,
}

impl StopDeadline {
    /// Watches from now on. `grace` is how long the runs have to end.
    pub(super) fn watch(grace: Duration) -> io::Result<Self> {
        let (mut receiver, sender) = UnixStream::pair()?;
        let mut signals = Vec::new();
        for signal in [SIGTERM, SIGINT] {
            signals.push(pipe::register(signal, sender.try_clone()?)?);
        }
        let within = grace + REST;
        let watch = move || {
            // The end of the stream is the end of the watch.
            if !matches!(receiver.read(&mut [0]), Ok(1)) {
                return;
            }
            thread::sleep(within);
            log::say(&format!(
                "quorate: the daemon did not end within {within:?} of SIGTERM or SIGINT: its loop is blocked. It ends now, \
                 and what it leads is free when the lease ends"
            ));
            log::finish();
            // Without the handlers of `exit`, which may wait for the same thing as the loop.
            low_level::exit(i32::from(FAILURE));
        };
        thread::Builder::new().name("quorate-stop".to_owned()).spawn(watch)?;
        Ok(Self { signals })
    }
}

impl Drop for StopDeadline {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            low_level::unregister(signal);
        }
    }
}
