//! What Quorate is tested with. Not published.
//!
//! # What is not guaranteed
//!
//! Passing here is evidence, not proof: the faults are those that somebody thought of.

pub mod sim;
