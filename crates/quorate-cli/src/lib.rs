//! The `quorate` program, as a library.
//!
//! # What is not guaranteed
//!
//! See [`warden`] for the limits of ending a command in time.

pub mod warden;
