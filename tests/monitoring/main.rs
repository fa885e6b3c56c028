//! Tests of what an operator is notified of and looks at: notifications, alert rules, the dashboard, and the output of
//! runs.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod dashboard;
mod documents;
mod notify;
mod output;
