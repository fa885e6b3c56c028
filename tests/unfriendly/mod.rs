//! What becomes of input that means no good: one function for each way in, which takes any bytes and panics where
//! a property does not hold. The fuzz targets in `fuzz/` and the property tests in
//! `unfriendly_input.rs` call the same.
//!
//! # What is not guaranteed
//!
//! Random bytes seldom get past the first check of a parser; what a fuzzer learns by coverage, the property tests
//! are given as each [`Door`]'s pieces, and no more than that.

mod arguments;
mod config;
mod files;
mod redis;
mod schedule;
mod secrets;
mod stored;

pub use arguments::arguments;
pub use config::config;
pub use files::file_node;
pub use redis::{handshake, replies};
pub use schedule::{cron, duration, every};
pub use secrets::{SECRET, node_url, secrets};
pub use stored::{marker, records};

/// One way in: its name, what is called, and pieces of what it expects.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// The fuzz target's name.
    pub name: &'static str,
    /// Panics where a property does not hold of these bytes.
    pub look: fn(&[u8]),
    /// What its input is made of.
    pub pieces: &'static [&'static str],
}

/// All of them.
pub const DOORS: [Door; 12] = [
    Door { name: "arguments", look: arguments, pieces: arguments::PIECES },
    Door { name: "config", look: config, pieces: config::PIECES },
    Door { name: "cron", look: cron, pieces: schedule::CRON },
    Door { name: "duration", look: duration, pieces: schedule::DURATION },
    Door { name: "every", look: every, pieces: &[] },
    Door { name: "file_node", look: file_node, pieces: files::PIECES },
    Door { name: "handshake", look: handshake, pieces: redis::HANDSHAKE },
    Door { name: "marker", look: marker, pieces: stored::MARKER },
    Door { name: "node_url", look: node_url, pieces: secrets::URL },
    Door { name: "records", look: records, pieces: stored::RECORDS },
    Door { name: "replies", look: replies, pieces: redis::REPLIES },
    Door { name: "secrets", look: secrets, pieces: secrets::PIECES },
];

/// The most bytes of an error beyond those that it may repeat of what it was given.
const ERROR_MAX: usize = 6_000;

/// An error is for people and for logs: bounded, and without what steers a terminal (but for a new line).
fn fit_to_print(error: &str) {
    assert!(error.len() <= ERROR_MAX, "an error of {} bytes: {:.200}…", error.len(), error);
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!error.contains(steers), "an error that steers a terminal: {error:?}");
    assert!(!error.trim().is_empty(), "an error that says nothing");
}

/// `bytes` as text, and nothing where they are none.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
