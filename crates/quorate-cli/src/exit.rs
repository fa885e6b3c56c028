use crate::{config::ConfigError, show};
use std::fmt;

/// There is nothing to do what was asked for to.
pub(crate) const NOTHING: u8 = 1;
/// `EX_UNAVAILABLE` of `sysexits.h`: no quorum of nodes.
pub(crate) const NO_QUORUM: u8 = 69;
/// `EX_SOFTWARE`: the lease was lost while a command ran.
pub(crate) const LEASE_LOST: u8 = 70;
/// `EX_TEMPFAIL`: someone else holds the lock.
pub(crate) const CONFLICT: u8 = 75;
/// `EX_CONFIG`: what was told cannot be used.
pub(crate) const CONFIG: u8 = ConfigError::EXIT;
/// Quorate's own failure, as `timeout(1)` and `env(1)` have it.
pub(crate) const FAILURE: u8 = 125;

/// Why the program ends, and with what status. The text shows no password, and steers no terminal.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl fmt::Display) -> Self {
        Self { code, text: show::page(&text.to_string()) }
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
