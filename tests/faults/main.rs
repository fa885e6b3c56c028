//! Tests with five real Redis servers that are killed, stopped, flushed, full, cut off or slow, or whose clocks
//! step. In some tests, workers are paused. The tests check that no two workers hold one lease at the same
//! time, that the lease can be acquired again after the fault, and that no key is left behind.
//!
//! # What is not guaranteed
//!
//! All processes run on one machine. They share one boot clock, by which the tests know the order of events.
//! The tests do not cover a real suspend, a real network, or a power loss. They run only on Linux: a preloaded
//! library steps the servers' clocks, and the tests read in `/proc` whether a process is stopped.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

mod bench;
mod clock;
mod forgotten;
mod killed;
mod kleppmann;
mod memory;
mod network;
mod readers;
mod repaired;
mod stopped;
mod worker;
mod wrong_type;
