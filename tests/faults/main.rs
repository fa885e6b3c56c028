//! Five real Redis servers and their faults: killed, stopped, flushed, full, cut off, slow, with stepped clocks; and
//! workers that are paused. After each fault two things are checked: no two workers held one lease, and once the fault is
//! over the lease can be acquired again and nothing is left behind.
//!
//! # What is not guaranteed
//!
//! All of it is one machine: the workers share one boot clock, which is how the tests can tell who came first.
//! No real suspend, no real network, no power loss. Linux alone: the servers' clocks are stepped by a preloaded
//! library, and whether a process stands still is read in `/proc`.

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
