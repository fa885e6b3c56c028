//! Traces and metrics for an OpenTelemetry collector, by OTLP over HTTP with messages in protobuf.
//!
//! The spans come from the library's `tracing` spans, and the metrics from the recorder that `/metrics` reads
//! too. One task sends both. Nothing waits for it: spans pass through a bounded queue, and a full queue drops
//! them.
//!
//! # What is not guaranteed
//!
//! A span is lost if the queue is full, if the collector does not accept it in a few attempts, or if the
//! process is killed. So the span of a term that ends with a crash is missing, and its runs have a parent
//! that the collector does not know. At the end of the process the last spans and metrics have one second to
//! arrive.

#[cfg(feature = "otlp")]
mod health;
#[cfg(feature = "otlp")]
mod message;
#[cfg(feature = "otlp")]
mod sender;
#[cfg(feature = "otlp")]
mod spans;
#[cfg(not(feature = "otlp"))]
mod without;

#[cfg(feature = "otlp")]
pub(crate) use sender::{Otlp, Sending};
#[cfg(not(feature = "otlp"))]
pub(crate) use without::{Otlp, Sending};
