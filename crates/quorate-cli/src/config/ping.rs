use super::SecretSource;
use std::collections::BTreeSet;

/// The URL that a job pings, for a service that reports a job which no longer does so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingConfig {
    /// The URL.
    pub url: SecretSource,
    /// The moments at which the URL is pinged; never empty.
    pub on: BTreeSet<PingEvent>,
}

/// A moment at which a job pings its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PingEvent {
    /// An attempt begins: the URL with `/start`.
    Start,
    /// A run has succeeded: the URL.
    Success,
    /// The last attempt of a run has failed: the URL with `/fail`.
    Fail,
}

impl PingEvent {
    /// All moments.
    pub const ALL: [Self; 3] = [Self::Start, Self::Success, Self::Fail];

    /// Returns the name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Success => "success",
            Self::Fail => "fail",
        }
    }
}
