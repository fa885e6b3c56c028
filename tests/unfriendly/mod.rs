//! Hostile input: one function for each entry point. Each function takes any bytes, and panics if a property
//! does not hold. The fuzz targets in `fuzz/` and the property tests in `unfriendly_input.rs` call these
//! functions.
//!
//! # What is not guaranteed
//!
//! Random bytes rarely pass the first check of a parser. A fuzzer learns the expected input from the coverage.
//! The property tests know only the pieces of each [`Door`].

mod files;
mod redis;
mod schedule;
mod stored;

pub use files::file_node;
pub use redis::{handshake, replies};
pub use schedule::{cron, every};
pub use stored::{marker, records};

/// An entry point for input from outside, with the function that checks it and pieces of valid input.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// The function that checks the entry point with these bytes. The function panics if a property of the
    /// entry point does not hold.
    pub look: fn(&[u8]),
    /// Pieces of valid input, from which the property tests build their input.
    pub pieces: &'static [&'static str],
}

/// The entry points of the libraries. Those of the program are in `unfriendly_program`.
pub const DOORS: [Door; 7] = [
    Door { name: "cron", look: cron, pieces: schedule::CRON },
    Door { name: "every", look: every, pieces: &[] },
    Door { name: "file_node", look: file_node, pieces: files::PIECES },
    Door { name: "handshake", look: handshake, pieces: redis::HANDSHAKE },
    Door { name: "marker", look: marker, pieces: stored::MARKER },
    Door { name: "records", look: records, pieces: stored::RECORDS },
    Door { name: "replies", look: replies, pieces: redis::REPLIES },
];

/// The longest error, in bytes.
const ERROR_MAX: usize = 6_000;

/// Checks that an error can be shown to people and written to logs. Its length must be limited, and it must
/// have no control characters except line ends.
pub(crate) fn fit_to_print(error: &str) {
    assert!(error.len() <= ERROR_MAX, "an error of {} bytes: {:.200}…", error.len(), error);
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!error.contains(steers), "an error that steers a terminal: {error:?}");
    assert!(!error.trim().is_empty(), "an error that says nothing");
}

/// Returns `bytes` as text, or `None` if they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
