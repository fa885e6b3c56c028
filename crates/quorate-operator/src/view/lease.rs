use super::serial::{Millis, Rfc3339};
use quorate::env::WallTime;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A lease that a sidecar holds for one of its clients. Its id is the client's secret, and not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ClientLease")]
pub struct ClientLease {
    /// The client: its name, if it has given one, and the process or the address from which it connects.
    pub client: String,
    /// The locks or messages.
    pub names: Vec<String>,
    /// `exclusive`, `shared`, or `messages of SET`.
    pub kind: String,
    /// `held` or `step_down`.
    pub state: &'static str,
    /// The fencing token of the first; `null` for a reader.
    pub token: Option<u64>,
    /// When it was acquired.
    #[serde(with = "Rfc3339")]
    pub since: WallTime,
    /// For how long it has been held.
    #[serde(rename = "age_ms", with = "Millis")]
    pub age: Duration,
    /// For how long its client has sent no request about it.
    #[serde(rename = "quiet_ms", with = "Millis")]
    pub quiet: Duration,
    /// For how long it is held if the client sends no further request.
    #[serde(rename = "remaining_ms", with = "Millis")]
    pub remaining: Duration,
}
