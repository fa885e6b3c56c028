//! Real `redis-server` processes on loopback, or other programs that speak its protocol ([`SERVER_PROGRAM`]).
//!
//! # What is not guaranteed
//!
//! A server gets a port that was free a moment before. If another process takes that port first, the server
//! is started on another port. A test process that is killed outright leaves its servers behind. A test that
//! panics ends its servers.
//!
//! A server's clock can be stepped ([`RedisConfig::own_clock`]) on 64-bit Linux only. A worker's clock cannot
//! be stepped in this way: its process asks the kernel for the time, and ignores a preloaded library.

mod clock;
mod cluster;
mod config;
pub(crate) mod port;
mod program;
mod server;
mod version;

pub use cluster::RedisCluster;
pub use config::RedisConfig;
pub use program::SERVER_PROGRAM;
pub use server::{RedisServer, StartError};
pub use version::ServerVersion;
