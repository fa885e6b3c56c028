//! A real PostgreSQL server on loopback.
//!
//! # What is not guaranteed
//!
//! It does not sync to the disk: committed data does not survive a failure of the machine. It trusts every
//! client that connects from loopback. A test process that is killed outright leaves it behind.

mod programs;
mod server;

pub use server::{PostgresServer, StartPostgresError};
