//! What the tests of Quorate stand on: real Redis servers, and the suite that every kind of node passes.
//!
//! # What is not guaranteed
//!
//! Nothing here is for production, and the package is not published. A test process that is killed outright
//! leaves the servers that it started behind.

pub mod redis;
