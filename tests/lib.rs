//! Tests that need several real processes, and what they share. See the files beside this one.
//!
//! # What is not guaranteed
//!
//! Times that these tests compare are read on a machine that may be busy. Where a test says *before*, the
//! slack is on the safe side: it may miss a fault of a few milliseconds, and never finds one that is not there.

pub mod support;
pub mod unfriendly;
