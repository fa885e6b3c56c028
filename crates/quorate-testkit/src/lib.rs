//! The tools of Quorate's tests: real Redis servers, a faulty network in front of them, the suite that
//! every kind of node passes, random histories to which every kind must give the same answers, and a seeded
//! simulation.
//!
//! # What is not guaranteed
//!
//! Nothing here is for production, and the package is not published. A test process that is killed outright
//! leaves the servers that it started behind.

pub mod conformance;
pub mod differential;
pub mod hostile;
pub mod model;
mod not_run;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod sim;

pub use not_run::{NOT_RUN_FILE, cannot_run};
