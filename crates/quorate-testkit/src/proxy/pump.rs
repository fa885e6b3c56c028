use super::rules::{Rules, Way};
use crate::sim::SeedRng;
use quorate::env::{BootTime, Env};
use rustix::net::{Shutdown, shutdown};
use std::{collections::VecDeque, io, time::Duration};
use tokio::{net::TcpStream, sync::watch};

/// The largest number of bytes that wait in one direction. When this number is reached, the proxy stops
/// reading. The sender's own buffers then fill, as on a network that delivers nothing.
const HELD_MAX: usize = 1 << 20;

/// The reason why one direction of a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpEnd {
    /// The sender closed its end, and all bytes have arrived.
    Finished,
    /// The connection to the sender or to the receiver broke.
    Broken,
    /// A reply was cut, as the test requested.
    ReplyCut,
}

/// One direction of one connection. Bytes wait in it until they are due and the direction is not cut.
pub(super) struct Pump<'a> {
    env: &'a Env,
    from: &'a TcpStream,
    to: &'a TcpStream,
    way: Way,
    rules: &'a watch::Sender<Rules>,
    rng: SeedRng,
    held: VecDeque<(BootTime, SenderEvent)>,
    held_bytes: usize,
    /// Set once the sender has closed its end.
    read_all: bool,
}

/// An event at the sender's end.
enum SenderEvent {
    Bytes(Vec<u8>),
    Closed,
    Broke,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        env: &'a Env,
        from: &'a TcpStream,
        to: &'a TcpStream,
        way: Way,
        rules: &'a watch::Sender<Rules>,
        rng: SeedRng,
    ) -> Self {
        Self { env, from, to, way, rules, rng, held: VecDeque::new(), held_bytes: 0, read_all: false }
    }

    /// Forwards all bytes until the direction has ended.
    pub(super) async fn run(&mut self) -> PumpEnd {
        let mut changes = self.rules.subscribe();
        loop {
            let cut = changes.borrow_and_update().is_cut(self.way);
            let next = self.held.front().map(|(due, _)| *due);
            let due = !cut && next.is_some_and(|due| due <= self.env.now());
            let reads = !self.read_all && self.held_bytes < HELD_MAX;
            let nap = next.filter(|_| !cut && !due);
            tokio::select! { biased;
                _ = changes.changed() => {}
                ready = self.to.writable(), if due => {
                    if let Some(end) = ready.map_or(Some(PumpEnd::Broken), |()| self.forward()) {
                        return end;
                    }
                }
                () = self.env.sleep_until(nap.unwrap_or_default()), if nap.is_some() => {}
                _ = self.from.readable(), if reads => self.take(),
            }
        }
    }

    /// Reads the bytes that have arrived from the sender, and sets the time at which they are due.
    fn take(&mut self) {
        let mut bytes = vec![0; 64 * 1024];
        let piece = match self.from.try_read(&mut bytes) {
            Ok(0) => SenderEvent::Closed,
            Ok(count) => {
                bytes.truncate(count);
                self.held_bytes += count;
                SenderEvent::Bytes(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => SenderEvent::Broke,
        };
        self.read_all = !matches!(piece, SenderEvent::Bytes(_));
        let latency = self.rules.borrow().latency;
        let jitter = u64::try_from(latency.jitter.as_micros()).unwrap_or(u64::MAX);
        let jitter = Duration::from_micros(self.rng.number(0..=jitter));
        let due = self.env.now() + latency.of(self.way) + jitter;
        let after = self.held.back().map_or(due, |(before, _)| due.max(*before));
        self.held.push_back((after, piece));
    }

    /// Forwards the first bytes, which are due. Does nothing if the direction has been cut meanwhile. The
    /// rules cannot change while the bytes are written.
    fn forward(&mut self) -> Option<PumpEnd> {
        let mut end = None;
        self.rules.send_if_modified(|rules| {
            if !rules.is_cut(self.way) {
                end = self.forward_under(rules);
            }
            false
        });
        end
    }

    fn forward_under(&mut self, rules: &mut Rules) -> Option<PumpEnd> {
        let bytes = match &mut self.held.front_mut()?.1 {
            SenderEvent::Closed => {
                let _ = shutdown(self.to, Shutdown::Write);
                return Some(PumpEnd::Finished);
            }
            SenderEvent::Broke => return Some(PumpEnd::Broken),
            SenderEvent::Bytes(bytes) => bytes,
        };
        let allowed = rules.cut_reply_after.filter(|_| self.way == Way::Back);
        if allowed == Some(0) {
            rules.cut_reply();
            return Some(PumpEnd::ReplyCut);
        }
        let part = bytes.len().min(allowed.unwrap_or(usize::MAX));
        let written = match self.to.try_write(&bytes[..part]) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // The receiver has closed the connection. While the opposite direction is cut, the sender must
            // not learn this. The proxy drops the sender's bytes and reports no error.
            Err(_) if rules.is_cut(self.way.other()) => bytes.len(),
            Err(_) => return Some(PumpEnd::Broken),
        };
        bytes.drain(..written);
        self.held_bytes -= written;
        if bytes.is_empty() {
            self.held.pop_front();
        }
        let left = allowed.map(|allowed| allowed - written)?;
        rules.cut_reply_after = Some(left);
        if left > 0 {
            return None;
        }
        rules.cut_reply();
        Some(PumpEnd::ReplyCut)
    }
}
