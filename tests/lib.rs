//! The code that tests with several real processes share. The tests are in the files next to this one.
//!
//! # What is not guaranteed
//!
//! Times that these tests compare are read on a machine that may be busy. So a test that checks the order of
//! two events allows some slack. Such a test may miss a fault of a few milliseconds, but never reports a fault
//! that does not exist.

pub mod support;
pub mod unfriendly;
pub mod unfriendly_program;
