//! The output of a command. It is passed on to this process's own output, and its last bytes are kept.

use super::sink::Sink;
use quorate::env::{Env, ScopedTask};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::unix::pipe::Receiver,
};

/// The longest wait for the rest of the output after the command has ended. A process that has left the group
/// may keep the pipe open, or this process's own output may be blocked.
const AFTER_ITS_END: Duration = Duration::from_secs(1);

/// The copies of a command's two outputs to those of this process. Dropping this value stops the copying, and
/// the command then gets an error if it writes more.
#[derive(Debug)]
pub(super) struct Output {
    env: Env,
    tail: Arc<Mutex<Tail>>,
    pumps: [ScopedTask<()>; 2],
}

impl Output {
    /// Creates two pipes for a command's standard output and standard error. The last `limit` bytes of both
    /// together are kept.
    pub(super) fn piped(env: &Env, limit: usize) -> io::Result<(Self, OwnedFd, OwnedFd)> {
        let tail = Arc::new(Mutex::new(Tail::new(limit)));
        let (out, their_out) = pipe()?;
        let (err, their_err) = pipe()?;
        let pumps = [
            env.spawn_scoped(pump(out, Sink::stdout(), Arc::clone(&tail))),
            env.spawn_scoped(pump(err, Sink::stderr(), Arc::clone(&tail))),
        ];
        Ok((Self { env: env.clone(), tail, pumps }, their_out, their_err))
    }

    /// Waits for the rest of the output after the command has ended. Returns the kept bytes as text.
    pub(super) async fn tail(self) -> String {
        let [out, err] = self.pumps;
        let both = async {
            let _ = out.await;
            let _ = err.await;
        };
        let _ = self.env.before(self.env.now() + AFTER_ITS_END, both).await;
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

/// Creates a pipe. Returns the read end, which this process uses, and the write end, which the command gets.
fn pipe() -> io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = io::pipe()?;
    Ok((Receiver::from_owned_fd(ours.into())?, theirs.into()))
}

async fn pump(mut from: impl AsyncRead + Unpin, to: Sink, tail: Arc<Mutex<Tail>>) {
    let mut bytes = [0; 8192];
    let mut closed = false;
    while let Ok(n @ 1..) = from.read(&mut bytes).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).add(&bytes[..n]);
        // If the output of this process is closed, the command's output can no longer be passed on, but its
        // last bytes are still kept.
        closed = closed || to.write(&bytes[..n]).await.is_err();
    }
}

/// The last bytes of a text.
#[derive(Debug)]
struct Tail {
    limit: usize,
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), cut: false }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // The kept bytes are moved only once for each `limit` new bytes, because moving them each time would be
        // slow.
        if self.bytes.len() > self.limit.saturating_mul(2) {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let over = self.bytes.len().saturating_sub(self.limit);
        self.cut |= over > 0;
        self.bytes.drain(..over);
    }

    /// Returns the kept bytes as text that begins with a whole character. Invalid UTF-8 is shown as `\u{FFFD}`.
    fn text(&mut self) -> String {
        self.shorten();
        let begin =
            if self.cut { self.bytes.iter().take_while(|byte| **byte & 0xC0 == 0x80).count() } else { 0 };
        let mut text = String::from_utf8_lossy(&self.bytes[begin..]).into_owned();
        // Each invalid byte becomes a character of three bytes, so the text may be longer than the limit.
        while text.len() > self.limit {
            text.remove(0);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(limit: usize, parts: &[&[u8]]) -> String {
        let mut tail = Tail::new(limit);
        for part in parts {
            tail.add(part);
        }
        tail.text()
    }

    #[test]
    fn the_last_bytes_are_kept_however_they_arrive() {
        assert_eq!(tail(5, &[b"abc"]), "abc");
        assert_eq!(tail(5, &[b"abc", b"defgh"]), "defgh");
        let long: Vec<&[u8]> = std::iter::repeat_n(&b"0123456789"[..], 100).collect();
        assert_eq!(tail(7, &long), "3456789");
        assert_eq!(tail(0, &[b"abc"]), "");
    }

    #[test]
    fn characters_are_kept_whole_and_the_limit_holds_for_invalid_bytes() {
        assert_eq!(tail(5, &["їїї".as_bytes()]), "її");
        assert_eq!(tail(4, &["їїї".as_bytes()]), "її");
        let odd = tail(6, &[&[0xFF; 100]]);
        assert!(odd.len() <= 6 && !odd.is_empty(), "{odd:?}");
    }

    #[tokio::test]
    async fn the_output_is_copied_unchanged_and_its_tail_is_kept() {
        let kept = Arc::new(Mutex::new(Tail::new(4)));
        let (mut passed, ours) = io::pipe().unwrap();
        pump(&b"one two"[..], Sink::new("test", ours), Arc::clone(&kept)).await;
        // When the sink is dropped, its thread ends and closes the pipe, so the read ends.
        assert_eq!(io::read_to_string(&mut passed).unwrap(), "one two");
        assert_eq!(kept.lock().unwrap().text(), " two");
    }
}
