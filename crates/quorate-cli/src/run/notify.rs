//! Messages to systemd: sd_notify(3), one datagram per message.
//!
//! # What is not guaranteed
//!
//! This process never waits for systemd: a message that systemd cannot accept at once is lost. The next
//! watchdog message follows half a watchdog period later.

use quorate::env::{BootTime, Env};
use std::{
    ffi::OsString,
    io,
    os::unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// The environment variables that systemd sets for this process. The commands that this process runs must not
/// inherit these variables.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The connection to the service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    /// The time at which the next watchdog message is due.
    beat_at: BootTime,
    status: String,
}

impl Notifier {
    /// Connects to the socket in `NOTIFY_SOCKET`, and reads the period of the watchdog from `WATCHDOG_USEC`.
    pub(crate) fn from_env() -> Self {
        let variable = |name: &str| std::env::var_os(name);
        Self::new(
            variable("NOTIFY_SOCKET"),
            variable("WATCHDOG_USEC"),
            variable("WATCHDOG_PID"),
            std::process::id(),
        )
    }

    fn new(socket: Option<OsString>, usec: Option<OsString>, pid: Option<OsString>, ours: u32) -> Self {
        let open = |socket: OsString| {
            let opened = address(&socket).and_then(|address| {
                let datagrams = UnixDatagram::unbound()?;
                datagrams.set_nonblocking(true)?;
                Ok((datagrams, address))
            });
            opened
                .inspect_err(|error| {
                    tracing::warn!(
                        "cannot use NOTIFY_SOCKET {socket:?}, so systemd gets no messages: {error}"
                    );
                })
                .ok()
        };
        let to = socket.filter(|socket| !socket.is_empty()).and_then(open);
        let watchdog = to
            .as_ref()
            .and_then(|_| watchdog(usec.as_ref()?.to_str(), pid.as_ref().map(|pid| pid.to_str()), ours));
        Self { to, watchdog, ..Self::default() }
    }

    /// Returns the period within which [`Notifier::beat`] must be called, or `None` without a watchdog.
    pub(super) fn beats_every(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// Reports that the start, or a reload, is complete.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports the status for `systemctl status`, if it has changed.
    pub(crate) fn status(&mut self, text: &str) {
        if self.status != text {
            text.clone_into(&mut self.status);
            self.send(&format!("STATUS={text}"));
        }
    }

    /// Reports that the daemon is reading the file again. [`Notifier::ready`] ends the reload.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Reports that the daemon is stopping.
    pub(crate) fn stopping(&mut self) {
        self.send("STOPPING=1");
        self.status("resigning");
    }

    /// Sends a watchdog message, at most once per half of the watchdog's period. Call it only from the loop
    /// that the watchdog monitors.
    pub(crate) fn beat(&mut self, env: &Env) {
        let Some(every) = self.beats_every() else { return };
        let now = env.now();
        if now >= self.beat_at {
            self.send("WATCHDOG=1");
            self.beat_at = now + every;
        }
    }

    /// Returns the time of the next watchdog message.
    pub(crate) fn beat_at(&self) -> Option<BootTime> {
        self.watchdog.map(|_| self.beat_at)
    }

    fn send(&self, text: &str) {
        let Some((socket, to)) = &self.to else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), to) {
            tracing::debug!("cannot send {text:?} to systemd: {error}");
        }
    }
}

/// Parses the address of a socket: a path, or `@` and a name in the abstract namespace of Linux.
fn address(socket: &OsString) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(socket),
        [b'@', name @ ..] => abstract_address(name),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "it is neither a path nor an abstract name")),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has abstract names"))
}

/// Returns the period of the watchdog, if the watchdog monitors this process. The rule is that of
/// sd_watchdog_enabled(3).
fn watchdog(usec: Option<&str>, pid: Option<Option<&str>>, ours: u32) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok()?;
    let for_us = pid.is_none_or(|pid| pid.and_then(|pid| pid.parse().ok()) == Some(ours));
    (for_us && usec > 0).then_some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_used_if_it_is_for_this_process() {
        let limit = Some(Duration::from_secs(10));
        assert_eq!(watchdog(Some("10000000"), None, 7), limit);
        assert_eq!(watchdog(Some("10000000"), Some(Some("7")), 7), limit);
        assert_eq!(watchdog(Some("10000000"), Some(Some("8")), 7), None, "it is our parent's");
        for wrong in [None, Some("0"), Some("soon"), Some("-1"), Some("")] {
            assert_eq!(watchdog(wrong, None, 7), None, "{wrong:?}");
        }
    }

    #[test]
    fn without_a_manager_or_with_an_unknown_socket_nothing_is_sent() {
        assert!(Notifier::new(None, Some("5".into()), None, 1).beats_every().is_none());
        assert!(Notifier::new(Some("vsock:2:1234".into()), None, None, 1).to.is_none());
        assert!(Notifier::new(Some("".into()), None, None, 1).to.is_none());
    }

    #[test]
    fn messages_arrive_over_a_path_and_over_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let receive = |socket: &UnixDatagram| {
            let mut bytes = [0; 256];
            let n = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..n]).into_owned()
        };
        let mut notifier = Notifier::new(Some(path.into()), Some("1000000".into()), None, 1);
        notifier.ready();
        assert_eq!(receive(&by_path), "READY=1");
        notifier.status("following");
        notifier.status("following");
        notifier.reloading();
        assert_eq!(receive(&by_path), "STATUS=following");
        let reloading = receive(&by_path);
        let micros = reloading
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .expect("a status is sent only when it changes");
        assert!(micros.parse::<u64>().is_ok_and(|micros| micros > 0), "{reloading}");
        let env = Env::system();
        notifier.beat(&env);
        notifier.beat(&env);
        notifier.stopping();
        assert_eq!(receive(&by_path), "WATCHDOG=1", "twice in half a second is once too often");
        assert_eq!(receive(&by_path), "STOPPING=1");

        #[cfg(target_os = "linux")]
        {
            let name = format!("quorate-test-{:x}", env.random());
            let by_name = UnixDatagram::bind_addr(&abstract_address(name.as_bytes()).unwrap()).unwrap();
            Notifier::new(Some(format!("@{name}").into()), None, None, 1).ready();
            assert_eq!(receive(&by_name), "READY=1");
        }
    }
}
