//! The output of a command. Each line is printed with its job, run and stream, and written to the file of the run. The
//! last bytes are kept for the history.

use super::lines::{LineSplitter, OutputStream, RunLabel, clean};
use crate::{
    log::{self, CommandOutput},
    outputs::{END, RunFile},
};
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
/// may keep the pipe open.
const AFTER_ITS_END: Duration = Duration::from_secs(1);

/// The copies of a command's two outputs to those of this process. Dropping this value stops the copying, and
/// the command then gets an error if it writes more.
#[derive(Debug)]
pub(super) struct Output {
    env: Env,
    tail: Arc<Mutex<Tail>>,
    pumps: [ScopedTask<()>; 2],
    file: SharedFile,
}

/// The file of the run, if there is one. Both outputs write to it.
type SharedFile = Arc<tokio::sync::Mutex<Option<RunFile>>>;

/// The means to pass on one of the outputs.
struct Pump {
    env: Env,
    label: RunLabel,
    stream: OutputStream,
    to: CommandOutput,
    tail: Arc<Mutex<Tail>>,
    file: SharedFile,
}

impl Output {
    /// Creates two pipes for a command's standard output and standard error. The last `limit` bytes of both
    /// together are kept.
    pub(super) fn piped(
        env: &Env,
        limit: usize,
        label: &RunLabel,
        file: Option<RunFile>,
    ) -> io::Result<(Self, OwnedFd, OwnedFd)> {
        let file = Arc::new(tokio::sync::Mutex::new(file));
        let tail = Arc::new(Mutex::new(Tail::new(limit)));
        let (out, their_out) = pipe()?;
        let (err, their_err) = pipe()?;
        let pump = |stream, to| Pump {
            env: env.clone(),
            label: label.clone(),
            stream,
            to,
            tail: Arc::clone(&tail),
            file: Arc::clone(&file),
        };
        let pumps = [
            env.spawn_scoped(pump(OutputStream::Stdout, CommandOutput::stdout()).run(out)),
            env.spawn_scoped(pump(OutputStream::Stderr, CommandOutput::stderr()).run(err)),
        ];
        Ok((Self { env: env.clone(), tail, pumps, file }, their_out, their_err))
    }

    /// Waits for the rest of the output after the command has ended. Returns the kept bytes as text.
    pub(super) async fn tail(self) -> String {
        let [out, err] = self.pumps;
        let both = async {
            let _ = out.await;
            let _ = err.await;
        };
        let _ = self.env.before(self.env.now() + AFTER_ITS_END, both).await;
        // A pump that still waits for a slow file system may hold the lock. Then the file gets no end.
        if let Ok(mut file) = self.file.try_lock()
            && let Some(file) = file.as_mut()
        {
            file.write(self.env.wall(), END, "of the attempt").await;
        }
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

/// Creates a pipe. Returns the read end, which this process uses, and the write end, which the command gets.
fn pipe() -> io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = io::pipe()?;
    Ok((Receiver::from_owned_fd(ours.into())?, theirs.into()))
}

impl Pump {
    async fn run(self, mut from: impl AsyncRead + Unpin) {
        let (mut bytes, mut splitter) = ([0; 8192], LineSplitter::default());
        while let Ok(n @ 1..) = from.read(&mut bytes).await {
            self.tail.lock().unwrap_or_else(PoisonError::into_inner).add(self.stream, &bytes[..n]);
            self.pass_on(splitter.add(&bytes[..n])).await;
        }
        self.pass_on(splitter.finish().into_iter().collect()).await;
    }

    /// Prints lines and writes them to the file. Only the file is waited for: whether this process's own output is read
    /// must not matter to the run.
    async fn pass_on(&self, lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let (now, format) = (self.env.wall(), log::format());
        for line in &lines {
            self.to.add(&self.label.print(format, now, self.stream, line));
        }
        if let Some(file) = self.file.lock().await.as_mut() {
            for line in &lines {
                file.write(now, self.stream.as_str(), &clean(line)).await;
            }
        }
    }
}

/// The last bytes of both outputs together. A line end is inserted where one output follows an unfinished line of
/// the other.
#[derive(Debug)]
struct Tail {
    limit: usize,
    bytes: Vec<u8>,
    /// The output of the newest bytes.
    last: Option<OutputStream>,
    cut: bool,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), last: None, cut: false }
    }

    fn add(&mut self, stream: OutputStream, bytes: &[u8]) {
        let other = self.last.replace(stream).is_some_and(|last| last != stream);
        if other && self.bytes.last().is_some_and(|last| *last != b'\n') {
            self.bytes.push(b'\n');
        }
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
            tail.add(OutputStream::Stdout, part);
        }
        tail.text()
    }

    #[test]
    fn a_line_of_one_output_does_not_continue_a_line_of_the_other() {
        let mut tail = Tail::new(100);
        for (stream, part) in [
            (OutputStream::Stdout, "out"),
            (OutputStream::Stdout, " one\n"),
            (OutputStream::Stderr, "err\n"),
            (OutputStream::Stdout, "last"),
            (OutputStream::Stderr, "err"),
            (OutputStream::Stderr, "or"),
        ] {
            tail.add(stream, part.as_bytes());
        }
        assert_eq!(tail.text(), "out one\nerr\nlast\nerror");
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
    async fn each_line_is_printed_with_its_run_and_the_tail_is_kept() {
        let kept = Arc::new(Mutex::new(Tail::new(4)));
        let printed = log::Shared::default();
        let to = CommandOutput::new("test", printed.clone());
        let label = RunLabel { job: "j".into(), tick: quorate::env::WallTime::default(), attempt: 1 };
        let pump = Pump {
            env: Env::system(),
            label,
            stream: OutputStream::Stdout,
            to: to.clone(),
            tail: Arc::clone(&kept),
            file: Arc::default(),
        };
        pump.run(&b"one\ntwo"[..]).await;
        assert!(to.flush(Duration::from_secs(20)));
        let printed = printed.text();
        let lines: Vec<&str> =
            printed.lines().filter_map(|line| line.split_once("  ")).map(|(_, line)| line).collect();
        assert_eq!(lines, ["j 1970-01-01T00:00:00Z stdout: one", "j 1970-01-01T00:00:00Z stdout: two"]);
        assert_eq!(kept.lock().unwrap().text(), "\ntwo");
    }
}
