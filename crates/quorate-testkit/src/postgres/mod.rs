//! A real PostgreSQL server on loopback.
//!
//! # What is not guaranteed
//!
//! It does not sync to the disk: what it has committed does not survive the machine. It trusts whoever
//! connects from loopback. A test process that is killed outright leaves it behind.

mod programs;
mod server;

pub use server::{PostgresServer, StartPostgresError};
