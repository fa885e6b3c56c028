//! A real PostgreSQL server on loopback.
//!
//! # What is not guaranteed
//!
//! The server does not sync to the disk: committed data does not survive a failure of the machine. The server
//! trusts every client that connects from loopback. A test process that is killed outright leaves its server
//! behind.

mod programs;
mod server;

pub use server::{PostgresServer, StartPostgresError};
