//! The tools of Quorate's tests:
//!
//! * [`redis`] and [`postgres`] start real servers. [`proxy`] puts a faulty network in front of a server, and
//!   [`hostile`] is a server that answers wrongly. [`machines`] are namespaces with a network, for servers and workers.
//! * [`conformance`] is the suite that every kind of node passes. [`differential`] sends random histories to
//!   several kinds, which must give the same answers.
//! * [`model`] searches models of the protocol. [`sim`] runs the shipped code in a seeded simulation, on
//!   the machines, links and servers of `quorate-test`.
//!
//! # What is not guaranteed
//!
//! Nothing here is for production, and the package is not published. A test process that is killed outright
//! leaves the servers that it started behind.

pub mod conformance;
pub mod differential;
pub mod history;
pub mod hostile;
pub mod machines;
pub mod model;
mod not_run;
pub mod pictures;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod sim;

pub use not_run::{NOT_RUN_FILE, cannot_run};
