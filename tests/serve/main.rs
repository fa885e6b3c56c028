//! Tests of `quorate serve` on real Redis servers: leases and messages of clients over HTTP, bad input, limits, what a client
//! sees of others, and the clients in Python and Node.js.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod api;
mod clients;
mod input;
mod sidecar;
