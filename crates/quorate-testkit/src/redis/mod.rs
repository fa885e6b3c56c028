//! Real `redis-server` processes on loopback.
//!
//! # What is not guaranteed
//!
//! Ports are found free and then taken: another process may be quicker, and then another port is tried. A
//! test process that is killed outright leaves its servers behind; one that panics does not.

mod cluster;
mod config;
mod server;

pub use cluster::RedisCluster;
pub use config::RedisConfig;
pub use server::{RedisServer, StartError};
