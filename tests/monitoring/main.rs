//! Tests of what an operator is notified of and looks at: notifications, alert rules, the dashboard, the
//! output of runs, and the traces and metrics for an OpenTelemetry collector.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod dashboard;
mod documents;
mod notify;
mod otlp;
mod output;
mod refusing;
