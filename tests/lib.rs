//! The code that tests with several real processes share. The tests are in the files next to this one.
//!
//! # What is not guaranteed
//!
//! Times that these tests compare are read on a machine that may be busy. If a test checks that one event
//! came *before* another, it allows some slack. So it may miss a fault of a few milliseconds, but never
//! reports a fault that does not exist.

pub mod support;
pub mod unfriendly;
