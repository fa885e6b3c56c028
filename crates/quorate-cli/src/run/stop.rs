//! Ends the process if the daemon does not end by itself after a stop signal.

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

/// The longest time after the step-down grace period in which a daemon must write its last records, release
/// its lease and close its connections.
const REST: Duration = Duration::from_secs(10);

/// Ends the process some time after SIGTERM or SIGINT, even if all other threads are blocked. For this, it uses
/// a separate thread that shares nothing with the daemon's loop. If this value is dropped before such a signal
/// arrives, the thread ends and does nothing.
#[derive(Debug)]
pub(crate) struct StopDeadline {
    signals: Vec<SigId>,
}

impl StopDeadline {
    /// Starts the watch. `grace` is the grace period in which the runs must end.
    pub(crate) fn watch(grace: Duration) -> io::Result<Self> {
        let (mut receiver, sender) = UnixStream::pair()?;
        let mut signals = Vec::new();
        for signal in [SIGTERM, SIGINT] {
            signals.push(pipe::register(signal, sender.try_clone()?)?);
        }
        let within = grace + REST;
        let watch = move || {
            // If the stream ends without a byte, the watch was dropped, and the thread ends.
            if !matches!(receiver.read(&mut [0]), Ok(1)) {
                return;
            }
            thread::sleep(within);
            log::say(&format!(
                "quorate: the daemon did not end within {within:?} of SIGTERM or SIGINT: its loop is blocked. It is \
                 ended now, and another worker leads when the lease has expired"
            ));
            log::finish();
            // The handlers of `exit` are skipped, because they may wait for the same resource as the loop.
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
