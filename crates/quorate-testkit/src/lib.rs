//! What the tests of Quorate stand on: real Redis servers, the suite that every kind of node passes,
//! and a seeded simulation.
//!
//! # What is not guaranteed
//!
//! Nothing here is for production, and the package is not published. A test process that is killed outright
//! leaves the servers that it started behind.

pub mod conformance;
pub mod model;
pub mod redis;
pub mod sim;
