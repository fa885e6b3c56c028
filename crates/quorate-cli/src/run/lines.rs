//! The lines of a command's output, with the job, the run and the stream. All functions are pure.

use crate::{args::LogFormat, show, time::rfc3339};
use quorate::env::WallTime;
use std::sync::Arc;

/// The longest line, in bytes. A longer one continues in further lines.
const LINE_MAX: usize = 16 << 10;

/// One of the two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The run whose output is printed.
#[derive(Clone, Debug)]
pub(super) struct RunLabel {
    pub(super) job: Arc<str>,
    pub(super) tick: WallTime,
    pub(super) attempt: u32,
}

/// Splits a stream into lines.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    /// Adds bytes, and returns the lines that are complete, without their ends.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            while self.rest.last() == Some(&b'\n') || self.rest.len() >= LINE_MAX {
                lines.push(self.take());
            }
        }
        lines
    }

    /// Returns the last line, if the stream does not end with a line end.
    pub(super) fn finish(&mut self) -> Option<String> {
        (!self.rest.is_empty()).then(|| self.take())
    }

    /// Removes the first line of at most [`LINE_MAX`] bytes. Invalid UTF-8 is shown as `\u{FFFD}`.
    fn take(&mut self) -> String {
        let mut end = self.rest.len();
        if end >= LINE_MAX {
            // A character is not cut in two. Its other bytes may not have arrived yet.
            end = without_partial(&self.rest[..LINE_MAX]);
        }
        let line: Vec<u8> = self.rest.drain(..end).collect();
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        String::from_utf8_lossy(line).into_owned()
    }
}

/// Returns the length of `bytes` without a last character of which some bytes are missing.
fn without_partial(bytes: &[u8]) -> usize {
    let has = bytes.iter().rev().take_while(|byte| **byte & 0xC0 == 0x80).take(3).count() + 1;
    let first = bytes.len().saturating_sub(has);
    let needs = match bytes.get(first) {
        Some(0xC2..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF4) => 4,
        _ => 1,
    };
    if needs > has { first } else { bytes.len() }
}

impl RunLabel {
    /// Returns a line as this process prints it. It is one line without characters that control a terminal.
    pub(super) fn print(&self, format: LogFormat, now: WallTime, stream: OutputStream, text: &str) -> String {
        let (now, tick, stream) = (rfc3339(now), rfc3339(self.tick), stream.as_str());
        match format {
            LogFormat::Text => {
                let (job, text) = (show::line(&self.job, LINE_MAX), clean(text));
                format!("{now}  {job} {tick} {stream}: {text}\n")
            }
            LogFormat::Json => {
                let line = serde_json::json!({
                    "timestamp": now, "level": "INFO", "message": text, "job": *self.job, "run": tick,
                    "attempt": self.attempt, "stream": stream,
                });
                show::json_text(&line.to_string()) + "\n"
            }
        }
    }
}

/// Returns a line without characters that control a terminal. A tab becomes four spaces.
pub(super) fn clean(text: &str) -> String {
    show::line(&text.replace('\t', "    "), usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(parts: &[&[u8]]) -> Vec<String> {
        let mut splitter = LineSplitter::default();
        let mut lines: Vec<String> = parts.iter().flat_map(|part| splitter.add(part)).collect();
        lines.extend(splitter.finish());
        lines
    }

    #[test]
    fn lines_are_the_same_however_their_bytes_arrive() {
        let text = "one\r\n\nїжак\nlast".as_bytes();
        let whole = split(&[text]);
        assert_eq!(whole, ["one", "", "їжак", "last"]);
        for size in 1..text.len() {
            assert_eq!(split(&text.chunks(size).collect::<Vec<_>>()), whole, "{size} bytes at once");
        }
        assert_eq!(split(&[b"a\n"]), ["a"]);
        assert_eq!(split(&[]), [""; 0]);
        assert_eq!(split(&[b"\xff\n"]), ["\u{fffd}"]);
    }

    #[test]
    fn a_long_line_is_continued_and_loses_nothing() {
        // `LINE_MAX` is no multiple of 3. So some lines end within a character, of which the next chunk has the
        // rest: 8,192 bytes are read at once.
        for long in ["ї", "€", "𝄞", "a€"].map(|part| part.repeat(LINE_MAX)) {
            for size in [1_000, 8_192, LINE_MAX - 1, long.len()] {
                let lines = split(&long.as_bytes().chunks(size).collect::<Vec<_>>());
                assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= LINE_MAX));
                assert!(lines.concat() == long, "{:?}, {size} bytes at once", &long[..4]);
            }
        }
    }

    #[test]
    fn only_a_last_character_that_lacks_bytes_is_left_for_the_next_line() {
        for (bytes, length) in [
            (&b""[..], 0),
            (b"ab", 2),
            ("a€".as_bytes(), 4),
            (b"a\xe2\x82", 1),
            (b"a\xe2", 1),
            (b"a\xf0\x9d\x84", 1),
            (b"\x80\x80\x80\x80\x80", 5),
            (b"\xff", 1),
        ] {
            assert_eq!(without_partial(bytes), length, "{bytes:?}");
        }
    }

    #[test]
    fn a_printed_line_has_job_run_and_stream_and_no_control_characters() {
        let run =
            RunLabel { job: "a".into(), tick: WallTime::from_micros(1_800_000_000_000_000), attempt: 2 };
        let now = WallTime::from_micros(1_800_000_001_000_000);
        let hostile = "x\ty\u{1b}[2J\u{202e}";
        let text = run.print(LogFormat::Text, now, OutputStream::Stderr, hostile);
        assert_eq!(text, "2027-01-15T08:00:01Z  a 2027-01-15T08:00:00Z stderr: x    y [2J \n");
        let json = run.print(LogFormat::Json, now, OutputStream::Stdout, hostile);
        assert!(!json.trim_end().contains(quorate::plain::steers), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&value["message"], &value["stream"]),
            (&hostile.into(), &"stdout".into()),
            "JSON loses nothing"
        );
        assert_eq!((&value["job"], &value["run"]), (&"a".into(), &"2027-01-15T08:00:00Z".into()));
    }
}
