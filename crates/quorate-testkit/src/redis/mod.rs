//! Real `redis-server` processes on loopback.
//!
//! # What is not guaranteed
//!
//! A free port is found and then used: another process may take it first, and then another port is tried. A
//! test process that is killed outright leaves its servers behind; one that panics does not.
//!
//! A server's clock can be stepped ([`RedisConfig::own_clock`]) on 64-bit Linux only. A worker's clock
//! cannot: a process that asks the kernel itself ignores a preloaded library.

mod clock;
mod cluster;
mod config;
pub(crate) mod port;
mod server;

pub use cluster::RedisCluster;
pub use config::RedisConfig;
pub use server::{RedisServer, StartError};
