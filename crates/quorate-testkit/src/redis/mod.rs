//! Real `redis-server` processes on loopback.
//!
//! # What is not guaranteed
//!
//! A server gets a port that was free a moment before. If another process takes that port first, the server
//! is started on another one. A test process that is killed outright leaves its servers behind. A test that
//! panics ends its servers.
//!
//! A server's clock can be stepped ([`RedisConfig::own_clock`]) on 64-bit Linux only. A worker's clock cannot
//! be stepped in this way: its process asks the kernel for the time, and ignores a preloaded library.

mod clock;
mod cluster;
mod config;
pub(crate) mod port;
mod server;

pub use cluster::RedisCluster;
pub use config::RedisConfig;
pub use server::{RedisServer, StartError};
