//! The functions that the targets call: those of CI's property tests.

#[path = "../unfriendly/mod.rs"]
pub mod unfriendly;
