use crate::{clean, config::ConfigError};
use std::fmt;

/// The target of the command was not found: no such job, no leader, no holder.
pub(crate) const NOT_FOUND: u8 = 1;
/// The command refused an operation that would be dangerous, and changed nothing.
pub(crate) const REFUSED: u8 = 1;
/// A command line that cannot be understood, as with other programs.
pub(crate) const USAGE: u8 = 2;
/// `EX_UNAVAILABLE` of `sysexits.h`: no quorum of nodes.
pub(crate) const NO_QUORUM: u8 = 69;
/// `EX_SOFTWARE`: the lease was lost while a command ran.
pub(crate) const LEASE_LOST: u8 = 70;
/// `EX_TEMPFAIL`: timed out waiting for the lock, or for an answer.
pub(crate) const CONFLICT: u8 = 75;
/// `EX_CONFIG`: settings that cannot be used, in arguments, environment or configuration file.
pub(crate) const CONFIG: u8 = ConfigError::EXIT;
/// A failure of quorate itself. `timeout(1)` and `env(1)` use the same number.
pub(crate) const FAILURE: u8 = 125;

/// The error with which the program ends: the exit status and a text. The text contains no password and no character
/// that controls a terminal.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl fmt::Display) -> Self {
        Self { code, text: clean::page(&text.to_string()) }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(CONFIG, error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
